"""Hubness: how unevenly neighbours are shared out, and whether one real speaks for many fakes.

In many dimensions a few rows (hubs) are among the nearest of very many others and most rows of none, which lowers
what precision and recall of a perfect generator are, and lets one odd real vouch for a large share of the fakes.

References:
    Radovanović et al. 2010, "Hubs in Space: Popular Nearest Neighbors in High-Dimensional Data".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Hubness:
    """Hubness of the k-NN graph of the reals.

    Attributes:
        orphan_rate: Share of reals that lie in no ball of another real.
        expected_orphan_rate: e^-k, what it is without hubness, on a sphere of many dimensions.
        skewness: Of the in-degrees; 0 where all are alike.
        largest_share: Largest share of the fakes that lie in the ball of one real.
        largest_row: Row of that real, the first of several.
    """

    orphan_rate: float
    expected_orphan_rate: float
    skewness: float
    largest_share: float
    largest_row: int


def hubness(real_in_degrees: Tensor, fakes_per_real_ball: Tensor, *, k: int, n_fake: int) -> Hubness:
    """Hubness from counts that are known once the metrics are.

    Args:
        real_in_degrees: (n,) in how many balls of other reals each real lies.
        fakes_per_real_ball: (n,) how many fakes each real ball contains.
        k: Of these balls.
        n_fake: Number of fakes, m.
    """
    degrees = real_in_degrees.double()
    moved = degrees - degrees.mean()
    variance = float(moved.square().mean())
    third = float(moved.pow(3).mean())
    largest = int(fakes_per_real_ball.max())
    return Hubness(
        orphan_rate=int((real_in_degrees == 0).sum()) / len(real_in_degrees),
        expected_orphan_rate=math.exp(-k),
        skewness=third / variance**1.5 if variance > 0 else 0.0,
        largest_share=largest / n_fake,
        largest_row=int((fakes_per_real_ball == largest).nonzero()[0, 0]),
    )
