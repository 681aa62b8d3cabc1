"""Layers that are a forward of arrays and nothing else."""
