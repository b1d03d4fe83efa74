"""Evaluations: what scores a model without training it."""
