"""What draws images at a setting: generators, the latents they share over all settings, and truncation."""

from genpr.checkpoints.generation.checkpoints import CheckpointImages, checkpoints_at
from genpr.checkpoints.generation.latents import RULES, Latents
from genpr.checkpoints.generation.load import LoadedGenerator, load_generator
from genpr.checkpoints.generation.sampler import GeneratedImages, Sampler

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
