"""Checkpoints of bertlab for ONNX and sentence-transformers, and from TensorFlow 1."""
