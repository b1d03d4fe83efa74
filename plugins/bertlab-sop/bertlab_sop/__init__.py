"""Sentence-order prediction (ALBERT) for bertlab."""
