"""bertlab: a plugin-based experiment framework for BERT on PyTorch Lightning."""

__version__ = "0.1.0"
