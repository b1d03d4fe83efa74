"""Unsupervised SimCSE for bertlab."""
