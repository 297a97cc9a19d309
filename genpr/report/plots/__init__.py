"""Drawings, as PNG files and inside of pages."""
