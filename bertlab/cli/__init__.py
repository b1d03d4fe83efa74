"""The ``bertlab`` command: each module parses, calls the package, and prints."""
