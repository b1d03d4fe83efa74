"""Optimisers: AdamW, Muon, LAMB, Lion, and all that ``torch.optim`` has."""
