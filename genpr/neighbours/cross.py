"""Ball memberships between two sets, exactly: bounds propose, the definition decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from genpr.neighbours.choose import choose_engine
from genpr.neighbours.closest import bounds_of_pairs
from genpr.neighbours.engine import Engine, plain_arithmetic
from genpr.neighbours.frame import Placed
from genpr.neighbours.sweep import Pairs, Tick, no_tick, sweep_between
from genpr.neighbours.verify import sq_distances_at
from genpr.neighbours.workers import Workers

Ties = Literal["closed", "strict"]


@dataclass(frozen=True, slots=True)
class CrossCounts:
    """Ball memberships between two sets, for a sets of radii of the reals and b of the fakes; all int64.

    Attributes:
        real_balls_per_fake: (a, m) how many real balls contain each fake.
        fakes_per_real_ball: (a, n) how many fakes each real ball contains.
        fake_balls_per_real: (b, n) how many fake balls contain each real.
        reals_per_fake_ball: (b, m) how many reals each fake ball contains.
    """

    real_balls_per_fake: Tensor
    fakes_per_real_ball: Tensor
    fake_balls_per_real: Tensor
    reals_per_fake_ball: Tensor


def cross_counts(
    real: Placed,
    fake: Placed,
    *,
    real_sq_radii: Tensor | None = None,
    fake_sq_radii: Tensor | None = None,
    ties: Ties = "closed",
    engine: Engine | None = None,
    tick: Tick = no_tick,
) -> CrossCounts:
    """Count who lies in whose balls, for all sets of radii in one pass over real x fake.

    Args:
        real: n rows.
        fake: m rows, placed in the same frame.
        real_sq_radii: (a, n) float64; None counts nothing for them.
        fake_sq_radii: (b, m) float64; None counts nothing for them.
        ties: Whether a point on the sphere is inside: "closed" yes, "strict" no.
        engine: What proposes pairs; None chooses by device.
        tick: Told how many of the n m pairs are done with, now and then.
    """
    n, m = len(real), len(fake)
    engine = engine or choose_engine(real.device)
    in_real = _no_radii(n, real.device) if real_sq_radii is None else real_sq_radii
    in_fake = _no_radii(m, real.device) if fake_sq_radii is None else fake_sq_radii
    a, b = len(in_real), len(in_fake)
    per_row, per_column = _zeros(a + b, n, real.device), _zeros(a + b, m, real.device)

    def look(pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
        sq_radii = torch.cat([in_real[:, pairs.i], in_fake[:, pairs.j]])
        inside = _inside(real, fake, pairs, sq_radii, ties, engine)
        return [(pairs.i[within], pairs.j[within]) for within in inside]

    with plain_arithmetic(real.device), Workers(real.device) as workers:
        reaches = _largest(in_real), _largest(in_fake)
        for looked in sweep_between(real, fake, *reaches, engine, workers, look, tick):
            for row, column, (i, j) in zip(per_row, per_column, looked, strict=True):
                row += i.bincount(minlength=n)
                column += j.bincount(minlength=m)
    return CrossCounts(per_column[:a], per_row[:a], per_row[a:], per_column[a:])


def _inside(real: Placed, fake: Placed, pairs: Pairs, sq_radii: Tensor, ties: Ties, engine: Engine) -> Tensor:
    """Which pairs (p,) are within which radii (r, p): (r, p) bool.

    The bounds of the frame settle some pairs, tighter bounds most of the rest, the definition what is left.
    """
    within = torch.le if ties == "closed" else torch.lt
    x, y = real.features, fake.features
    inside = within(pairs.sq_upper, sq_radii)
    is_open = (within(pairs.sq_lower, sq_radii) & ~inside).any(dim=0)
    for exactly in (False, True):
        left = is_open.nonzero()[:, 0]
        i, j = pairs.i[left], pairs.j[left]
        if exactly:
            sq_lower = sq_upper = sq_distances_at(x, y, i, j)
        else:
            sq_lower, sq_upper = bounds_of_pairs(x, y, i, j, engine)
        inside[:, left] = within(sq_upper, sq_radii[:, left])
        is_open[left] = (within(sq_lower, sq_radii[:, left]) & ~inside[:, left]).any(dim=0)
    return inside


def _no_radii(n: int, device: torch.device) -> Tensor:
    return torch.empty(0, n, dtype=torch.float64, device=device)


def _zeros(rows: int, n: int, device: torch.device) -> Tensor:
    return torch.zeros(rows, n, dtype=torch.int64, device=device)


def _largest(sq_radii: Tensor) -> Tensor:
    """How far each row reaches, (n,); -inf without radii."""
    nothing = torch.full((1, sq_radii.shape[1]), -torch.inf, dtype=torch.float64, device=sq_radii.device)
    return torch.cat([nothing, sq_radii]).amax(dim=0)
