"""One pipeline from YAML files and arguments to a typed config."""
