"""The LightningModule, its optimiser and its evaluation."""
