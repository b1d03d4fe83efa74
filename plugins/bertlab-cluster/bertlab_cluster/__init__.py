"""bertlab on several machines: Ray and SLURM."""
