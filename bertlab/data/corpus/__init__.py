"""Pre-training text: from sources to the token store."""
