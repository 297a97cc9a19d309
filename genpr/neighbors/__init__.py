"""Exact geometry of feature vectors: k-th neighbour distances and ball membership, the same on every device."""
