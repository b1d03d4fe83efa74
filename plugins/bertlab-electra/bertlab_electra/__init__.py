"""Replaced-token detection (ELECTRA) for bertlab."""
