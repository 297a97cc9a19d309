"""Pixels to vectors: extractors, their weights, resize rules, and the feature cache."""
