"""Generators and checkpoints: sampling, truncation sweeps, ranking, and watching a training run."""
