"""Metrics: pure functions on features and on the exact geometry of `genpr.neighbors`."""
