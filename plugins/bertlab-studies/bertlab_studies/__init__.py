"""Ablations: a base config × variants × seeds × downstream evaluations."""
