"""Witnessed fidelity and diversity of random halves: what their intervals rest on.

Their calibration, their local dimensions and their blocks leave no share to be counted bit by bit, so every half is
judged as a whole set is. That takes time, hence there are fewer halves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genpr.memory import part_of
from genpr.metrics.uncertainty import lower_part
from genpr.metrics.witnessed import BALL_K, Witnessed, cut_and_uncut
from genpr.neighbors.halves import Halves, unpacked
from genpr.neighbors.sweep import Tick, no_tick

HALVES = 20
LEAST = 2 * (BALL_K + 1)
"""Images that a set needs for its halves to have 20 neighbours each."""
_REAL_STREAM, _FAKE_STREAM = 0, 1


def witnessed_of_halves(real: Tensor, fake: Tensor, seed: int, *, tick: Tick = no_tick) -> dict[str, Tensor]:
    """`witnessed`, not cut at 1, of the halves that other metrics begin their replicates with.

    Args:
        real: (n, d) float32, n >= `LEAST`.
        fake: (m, d) float32, m >= `LEAST`.
        seed: Of the halves and of blocks.
        tick: Told of the pairs that are done with, `pairs_of` each half.

    Returns:
        By name, (20,) float64; 2 s and 2 s + 1 are of complementary halves. NaN where a half has no value.
    """
    halves = (_rows(real, seed, _REAL_STREAM), _rows(fake, seed, _FAKE_STREAM))
    found = [
        cut_and_uncut(part_of(real, i), part_of(fake, j), seed, tick)[1] for i, j in zip(*halves, strict=True)
    ]
    table = torch.tensor(found, dtype=torch.float64)
    values = {name: table[:, at] for at, name in enumerate(Witnessed._fields)}
    return values | {"diversity": lower_part(values["support"], values["coverage"])}


def _rows(points: Tensor, seed: int, stream: int) -> list[Tensor]:
    halves = Halves.drawn(len(points), seed=seed, stream=stream, count=HALVES, device=points.device)
    return [each.nonzero()[:, 0] for each in unpacked(halves.member).T[:HALVES]]
