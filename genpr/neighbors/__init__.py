"""Exact geometry of feature vectors: k-th neighbor distances and ball membership, the same on every device."""
