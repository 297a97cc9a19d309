"""One generator at many truncations: kept as they are scored, and read as a trade-off."""
