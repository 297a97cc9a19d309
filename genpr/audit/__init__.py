"""Sanity checks for metrics, on data with known fidelity and diversity."""
