"""Optimisers: AdamW, and all that ``torch.optim`` has."""
