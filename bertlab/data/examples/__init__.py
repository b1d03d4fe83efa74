"""Labelled examples: read, checked, split, encoded."""
