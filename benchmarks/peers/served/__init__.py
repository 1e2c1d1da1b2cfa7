"""What runs in the environments of the servers; only `models` is imported by anybody else."""
