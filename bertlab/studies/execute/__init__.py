"""Running the runs of a study: here, on Ray, or as SLURM job arrays."""
