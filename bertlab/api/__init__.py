"""The contracts: all that a plugin imports, and nothing that does the work."""
