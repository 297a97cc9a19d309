"""What draws images at a setting: generators, the latents they share over all settings, and truncation."""

from genpr.generation.checkpoints import CheckpointImages, checkpoints_at
from genpr.generation.latents import RULES, Latents
from genpr.generation.load import LoadedGenerator, load_generator
from genpr.generation.sampler import GeneratedImages, Sampler

__all__ = [
    "RULES",
    "CheckpointImages",
    "GeneratedImages",
    "Latents",
    "LoadedGenerator",
    "Sampler",
    "checkpoints_at",
    "load_generator",
]
