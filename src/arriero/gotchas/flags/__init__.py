"""Flags that the engine refuses, or takes for something else."""
