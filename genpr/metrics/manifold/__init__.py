"""Balls around neighbours: precision, recall and their companions, with nulls, curves and samples."""
