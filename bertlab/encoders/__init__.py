"""Encoders: modules that map a packed batch to hidden states."""
