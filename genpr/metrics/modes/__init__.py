"""Kinds of images: those that fakes miss or invent, and what their images have in common."""
