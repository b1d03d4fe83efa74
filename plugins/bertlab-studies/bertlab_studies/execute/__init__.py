"""Running the runs of a study: here, on Ray, or as jobs of SLURM."""
