"""Sanity checks for metrics: data whose fidelity and diversity are known, and what each metric makes of it."""
