"""The page that ``bertlab demo`` opens on this machine: a model to try, and to look inside."""
