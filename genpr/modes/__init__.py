"""Missed and invented modes of two sources."""
