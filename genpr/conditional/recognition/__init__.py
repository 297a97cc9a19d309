"""Entities recognised in images, and scored against those that should be there."""
