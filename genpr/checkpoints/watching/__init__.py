"""Checkpoints scored as they arrive, and the log of their scores."""
