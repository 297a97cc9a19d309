"""The metrics beside the manifold ones, behind one pair of functions: what is kept of the reals, and the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.metrics.distances.diversity import vendi_score
from genpr.metrics.distances.frechet import Gaussian, frechet_distance, frechet_infinity
from genpr.metrics.distances.inception_score import inception_score
from genpr.metrics.distances.kernel import SUBSET_SIZE, cmmd, kernel_distance

Fitted = Tensor | Gaussian | None
"""What is kept of the real side: its features, their mean and covariance; nothing if the metric ignores it."""


class CompanionValue(NamedTuple):
    """A value; its standard deviation, and over what, if it is a mean; what was done differently."""

    value: float
    spread: float | None = None
    spread_over: str | None = None
    variant: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompanionOptions:
    """What protocols choose differently.

    Attributes:
        device: Where to compute.
        inception_score_chunk: Images per part of the Inception Score, in order; None shuffles into 10 parts.
    """

    device: torch.device
    inception_score_chunk: int | None = None


def fit_companion(name: str, real: Tensor | Gaussian, options: CompanionOptions) -> Fitted:
    """What metric `name` needs to know of real features (n, d), so that each fake set costs only its own side."""
    if (
        name in _OF_MOMENTS and isinstance(real, Tensor) and len(real) > real.shape[1]
    ):  # fewer are faster as they are
        return Gaussian.of(real, device=options.device)
    return real


def companion(name: str, real: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    """The value of metric `name` for fake features (m, d), or for their moments where only those are looked at."""
    return _FUNCTIONS[name](real, fake, options)


def _frechet(real: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    assert real is not None
    return CompanionValue(frechet_distance(real, fake, device=options.device))


def _frechet_infinity(real: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    assert real is not None
    assert isinstance(fake, Tensor)
    return CompanionValue(frechet_infinity(real, fake, device=options.device))


def _kernel(real: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    assert isinstance(real, Tensor)
    assert isinstance(fake, Tensor)
    distance = kernel_distance(real, fake, device=options.device)
    size = distance.subset_size
    variant = None if size == SUBSET_SIZE else f"subsets of {size:,} images"
    if size == len(real) == len(fake):  # every subset is the whole of both sets
        return CompanionValue(distance.mean, variant=variant)
    return CompanionValue(distance.mean, distance.std, "subsets", variant)


def _cmmd(real: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    assert isinstance(real, Tensor)
    assert isinstance(fake, Tensor)
    return CompanionValue(cmmd(real, fake, device=options.device))


def _inception_score(_: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    assert isinstance(fake, Tensor)
    chunk = options.inception_score_chunk
    if chunk is None:
        score = inception_score(fake, device=options.device)
        return CompanionValue(score.mean, score.std, "parts")
    score = inception_score(fake, split_size=chunk, seed=None, device=options.device)
    variant = f"{chunk:,} images per part, in order"
    if len(fake) <= chunk:
        return CompanionValue(score.mean, variant=variant)
    return CompanionValue(score.mean, score.std, "parts", variant)


def _vendi(_: Fitted, fake: Tensor | Gaussian, options: CompanionOptions) -> CompanionValue:
    assert isinstance(fake, Tensor)
    return CompanionValue(vendi_score(fake, device=options.device))


_FUNCTIONS: Mapping[str, Callable[[Fitted, Tensor | Gaussian, CompanionOptions], CompanionValue]] = {
    "fid": _frechet,
    "sfid": _frechet,
    "kid": _kernel,
    "fd_dinov2": _frechet,
    "cmmd": _cmmd,
    "fd": _frechet,
    "fd_infinity": _frechet_infinity,
    "kd": _kernel,
    "is": _inception_score,
    "vendi": _vendi,
}
_OF_MOMENTS = frozenset({"fid", "sfid", "fd_dinov2", "fd"})
