"""Whether two pictures are one: re-encoded, resized, recoloured, mirrored or shifted a little.

Features tell which pictures are worth comparing; near each other in features lie copies, but also two pictures of plain
sky. Copies agree in detail, too: in what is left of a small picture when its own blur is taken away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_SIDE = 32  # pixels of the compared pictures
_SHIFT = 2  # pixels of these that a copy may be moved by
LEAST_DETAIL, _LEAST_WHOLE = 0.6, 0.8
"""Pairs of CIFAR-10 that agree so far are pairs to the eye."""

Pixels = NDArray[np.uint8]
Grey = NDArray[np.float64]


@dataclass(frozen=True, slots=True, order=True)
class Likeness:
    """How far two pictures agree, at the shift at which they agree best.

    Attributes:
        detail: Correlation of the fine structure of their brightness, -1 to 1; 0 if either has none.
        whole: Correlation of brightness and colours.
        is_mirrored: Whether one of them had to be mirrored.
    """

    detail: float
    whole: float
    is_mirrored: bool

    @property
    def agreement(self) -> float:
        """The smaller of both."""
        return min(self.detail, self.whole)

    @property
    def is_same(self) -> bool:
        """Whether they may be one picture, to the eye."""
        return self.detail >= LEAST_DETAIL and self.whole >= _LEAST_WHOLE


def likeness(one: Pixels, other: Pixels) -> Likeness:
    """How far two pictures agree.

    Args:
        one: (h, w, 3) uint8.
        other: Likewise, of any size.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> one, other = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
        >>> likeness(one, other).is_same, likeness(one, one[:, ::-1] // 2).is_same
        (False, True)
    """
    a, b = _small(one), _small(other)
    return max(
        _best(a, b, is_mirrored=False), _best(a, b[:, ::-1], is_mirrored=True), key=lambda each: each.detail
    )


def _best(a: Grey, b: Grey, *, is_mirrored: bool) -> Likeness:
    """Over all shifts, without the margin that a shift leaves open; no shift wins ties."""
    details = _detail(a), _detail(b)
    middle = _cut(0, 0)
    ours = details[0][middle]
    shifts = sorted(
        ((dy, dx) for dy in range(-_SHIFT, _SHIFT + 1) for dx in range(-_SHIFT, _SHIFT + 1)),
        key=lambda shift: abs(shift[0]) + abs(shift[1]),
    )
    best = max(shifts, key=lambda shift: _correlation(ours, details[1][_cut(*shift)]))
    return Likeness(
        _correlation(ours, details[1][_cut(*best)]), _correlation(a[middle], b[_cut(*best)]), is_mirrored
    )


def _cut(dy: int, dx: int) -> tuple[slice, slice]:
    return (
        slice(_SHIFT + dy, _SIDE - _SHIFT + dy),
        slice(_SHIFT + dx, _SIDE - _SHIFT + dx),
    )


def _small(pixels: Pixels) -> Grey:
    image = Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return np.asarray(image, dtype=np.float64)


def _detail(small: Grey) -> Grey:
    """Brightness (h, w) without its mean over 3 x 3 pixels."""
    grey: Grey = small.mean(axis=2)
    padded = np.pad(grey, 1, mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    blurred: Grey = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9
    detail: Grey = grey - blurred
    return detail


def _correlation(a: Grey, b: Grey) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt(np.square(a).sum() * np.square(b).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0
