"""A Transformer decoder over a bertlab encoder: from one text to another."""
