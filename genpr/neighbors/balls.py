"""Which balls are drawn around the rows of a set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Ties = Literal["closed", "strict"]
"""Whether a point on the sphere is inside: "closed" yes, "strict" no."""


@dataclass(frozen=True, order=True, slots=True)
class Ball:
    """A ball around every row of a set, that reaches its k-th nearest other row.

    Attributes:
        k: Neighbours.
        clipped: Whether no ball is larger than the median one (Salvy et al. 2026).
    """

    k: int
    clipped: bool = False

    def __str__(self) -> str:
        return f"k = {self.k}{', clipped' if self.clipped else ''}"


def sq_radii_of(ball: Ball, kth_sq_distances: Tensor) -> Tensor:
    """Squared radii (n,) float64 of balls whose k-th neighbours are at `kth_sq_distances` (n,)."""
    if not ball.clipped:
        return kth_sq_distances
    return kth_sq_distances.clamp(max=_sq_median_radius(kth_sq_distances))


def _sq_median_radius(sq_radii: Tensor) -> float:
    """Square of the median radius: of an even number, of the mean of the two in the middle."""
    ordered, n = sq_radii.sort().values, len(sq_radii)
    low, high = float(ordered[(n - 1) // 2]), float(ordered[n // 2])
    if low == high:  # a root squared need not be the number again, and points on the sphere would fall out
        return low
    middle = (math.sqrt(low) + math.sqrt(high)) / 2  # torch's roots are an ulp off here and there
    return middle * middle
