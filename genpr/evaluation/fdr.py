"""FDr6 of FD-loss: the mean, over six representations, of the Fréchet distance as a ratio to that of held-out reals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from genpr.errors import UsageError, some
from genpr.features.representations import FDR6, ROUNDING


@dataclass(frozen=True)
class FrechetRatios:
    """FDr of each representation, and what their mean may be where the published constants were not rounded."""

    ratios: Mapping[str, float]  # FDr by the name of the representation
    mean: float  # FDr6
    low: float  # of FDr6, over all constants that round to the published ones
    high: float


def frechet_ratios(distances: Mapping[str, float]) -> FrechetRatios:
    """FDr = FD / (FD of ImageNet's validation images) of six representations, and FDr6, their arithmetic mean (arXiv:2604.28190).

    The published constants have two decimals: that of MAE, 0.04, stands for any from 0.035 to 0.045, which changes its ratio by
    -11 to 14 %. `low` and `high` bound FDr6 accordingly.

    Args:
        distances: Fréchet distances to the moments of ImageNet's training images at 256 pixels, by the names of
            `genpr.features.representations.FDR6`: inception, convnext, dinov2, mae, siglip and clip.

    Raises:
        UsageError: One is missing or not known ("fdr-incomplete"), or not a finite number of at least 0 ("bad-option").

    Example:
        >>> found = frechet_ratios({each.name: 2 * each.validation_fd for each in FDR6})
        >>> round(found.mean, 6)
        2.0
    """
    names = {each.name for each in FDR6}
    if distances.keys() != names:
        missing, other = sorted(names - distances.keys()), sorted(distances.keys() - names)
        found = f"missing {some(missing, 6)}" if missing else f"unknown {some(other)}"
        text = f"FDr6 needs the distances of {some(sorted(names), 6)}: {found}"
        raise UsageError(text, code="fdr-incomplete")
    for name, value in distances.items():
        if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
            text = f"the distance of {name} must be a finite number of at least 0, got {value!r}"
            raise UsageError(text, code="bad-option")
    ratios, *shifted = (
        {each.name: float(distances[each.name]) / (each.validation_fd + shift) for each in FDR6}
        for shift in (0, ROUNDING, -ROUNDING)
    )
    return FrechetRatios(ratios, *(math.fsum(each.values()) / len(FDR6) for each in (ratios, *shifted)))
