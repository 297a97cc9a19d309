"""A world small enough to know by heart: drawn images, four ways to fake them, and what the scores should say."""

from genpr.demo.scenario import Demo, DemoSet, build_demo, contact_sheet, save_sets
from genpr.demo.shapes import KINDS, LATENTS, ShapesGenerator, draw_latents

__all__ = [
    "KINDS",
    "LATENTS",
    "Demo",
    "DemoSet",
    "ShapesGenerator",
    "build_demo",
    "contact_sheet",
    "draw_latents",
    "save_sets",
]
