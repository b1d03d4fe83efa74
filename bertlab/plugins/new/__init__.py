"""TODO plugins/new."""
