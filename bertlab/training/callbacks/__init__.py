"""Lightning callbacks that bertlab adds to every run."""
