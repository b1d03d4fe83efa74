"""What installed packages add: the index of classes, the hooks, and ``new-plugin``."""
