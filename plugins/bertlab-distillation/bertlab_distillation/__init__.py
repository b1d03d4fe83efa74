"""Distillation of a masked language model for bertlab."""
