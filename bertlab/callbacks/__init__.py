"""What happens around the training loop: progress, the run's record, the loss curve."""
