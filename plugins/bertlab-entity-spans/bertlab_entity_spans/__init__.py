"""Entities as scored spans: a head for bertlab."""
