"""What makes training quick on a GPU for bertlab: kernels, CUDA graphs, batches of few sizes."""
