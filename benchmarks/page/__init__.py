"""The page: made from the files in `results`, and from nothing else."""
