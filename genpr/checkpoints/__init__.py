"""Many checkpoints: sampling from generators, ranking, sweeps, and watching a training run."""
