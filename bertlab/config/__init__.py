"""From YAML files and arguments to one config as plain data."""
