"""FDr6 of FD-loss: the mean, over six representations, of the Fréchet distance as a ratio to that of held-out reals.

References:
    J. Yang et al., Representation Fréchet Loss for Visual Generation, 2026, arXiv:2604.28190.
    Jiawei-Yang/FD-loss at 5c03b811, eval_all_fds.py (FDR_VALIDATION_FD, the models and their sizes) and
    scripts/README.md (the files); the same in fd_evaluator/catalogue.yaml of End2End-Diffusion/diffusionbench-evals at 01c437fe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from genpr.errors import UsageError, some

_ROUNDING = 0.005  # the published distances have two decimals


@dataclass(frozen=True, slots=True)
class Representation:
    """One representation: its name here, its extractor, and its published moments."""

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
"""The representations of FDr6, in the authors' order."""


@dataclass(frozen=True)
class FrechetRatios:
    """FDr of each representation, and FDr6 with bounds for the rounding of the published constants."""

    ratios: Mapping[str, float]  # FDr by the name of the representation
    mean: float  # FDr6
    low: float  # lower bound of FDr6 over all constants that round to the published ones
    high: float  # upper bound


def frechet_ratios(distances: Mapping[str, float]) -> FrechetRatios:
    """FDr = FD / (FD of ImageNet's validation images) of six representations, and FDr6, their arithmetic mean (arXiv:2604.28190).

    The published constants have two decimals: that of MAE, 0.04, may be anything from 0.035 to 0.045, which changes its ratio by
    -11 to 14 %. `low` and `high` are the resulting bounds of FDr6.

    Args:
        distances: Fréchet distances to the moments of ImageNet's training images at 256 pixels, by the names in `FDR6`:
            inception, convnext, dinov2, mae, siglip and clip.

    Raises:
        UsageError: A distance is missing or unknown ("fdr-incomplete"), or not a finite number of at least 0 ("bad-option").

    Example:
        >>> found = frechet_ratios({each.name: 2 * each.validation_fd for each in FDR6})
        >>> round(found.mean, 6)
        2.0
    """
    names = {each.name for each in FDR6}
    if odd := sorted(names ^ distances.keys()):
        text = f"FDr6 needs the distances of {some(sorted(names), 6)}; missing or unknown: {some(odd, 6)}"
        raise UsageError(text, code="fdr-incomplete")
    for name, value in distances.items():
        if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
            text = f"the distance of {name} must be a finite number of at least 0, got {value!r}"
            raise UsageError(text, code="bad-option")
    ratios, *shifted = (
        {each.name: float(distances[each.name]) / (each.validation_fd + shift) for each in FDR6}
        for shift in (0, _ROUNDING, -_ROUNDING)
    )
    return FrechetRatios(ratios, *(math.fsum(each.values()) / len(FDR6) for each in (ratios, *shifted)))
