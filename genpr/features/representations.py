"""The six representations of FD-loss, whose Fréchet distances make FDr6.

References:
    J. Yang et al., Representation Fréchet Loss for Visual Generation, 2026, arXiv:2604.28190.
    Jiawei-Yang/FD-loss at 5c03b811, eval_all_fds.py (FDR_VALIDATION_FD, the models and their sizes) and
    scripts/README.md (the files); the same in fd_evaluator/catalogue.yaml of End2End-Diffusion/diffusionbench-evals at 01c437fe.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUNDING = 0.005
"""The published distances have two decimals."""


@dataclass(frozen=True, slots=True)
class Representation:
    """One representation as it is named here, in genpr's extractors, and in the authors' file of moments."""

    name: str
    extractor: str
    validation_fd: float  # of the 50,000 ImageNet validation images to the training images, as published
    statistics: str  # .npz file of the moments of ImageNet's training images


def _timm(
    name: str, model: str, side: int, pooling: str, validation_fd: float, *, file: str | None = None
) -> Representation:
    extractor = f"timm:{model}@{side}@{pooling}@torch-bicubic-antialias"
    statistics = f"{file or model.replace('.', '_')}_in256_t{side}_stats.npz"
    return Representation(name, extractor, validation_fd, statistics)


FDR6 = (
    Representation("inception", "inception", 1.68, "guided_diffusion_stats.npz"),
    _timm("convnext", "convnextv2_base.fcmae_ft_in22k_in1k", 224, "mean", 56.87, file="convnext"),
    _timm("dinov2", "vit_large_patch14_dinov2.lvd142m", 256, "cls", 14.19),
    _timm("mae", "vit_large_patch16_224.mae", 224, "cls", 0.04),
    _timm("siglip", "vit_so400m_patch16_siglip_256.v2_webli", 224, "map", 0.60),
    _timm("clip", "vit_large_patch14_clip_224.openai", 256, "cls", 5.60),
)
"""In the authors' order."""
