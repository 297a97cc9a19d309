"""Exact k-th neighbour distances and ball memberships: bounds propose, the definition decides.

Filter and verify. An engine proposes pairs with bounds on their distance; pairs that the bounds leave open are
computed by the definition (`verify`). So no result depends on the engine, its tiles, the device, or the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from genpr.neighbours.bounds import Placed, tight_bounds
from genpr.neighbours.choose import choose_engine
from genpr.neighbours.engine import Engine, Nearest, Pairs, plain_arithmetic
from genpr.neighbours.verify import sq_distances_at

Ties = Literal["closed", "strict"]

# Candidates per row beyond k. Rows whose list does not prove itself complete cost a pass over all columns.
_MARGIN = 8
_UNCERTIFIED_ROWS = 2048  # per pass: they are copied


def kth_sq_distances(points: Placed, ks: Sequence[int], *, engine: Engine | None = None) -> Tensor:
    """Squared distance from each row to its k-th nearest other row, exactly.

    A row is never its own neighbour; copies of it are.

    Args:
        points: n rows.
        ks: Each from 1 to n - 1.
        engine: What proposes candidates; None chooses by device.

    Returns:
        (len(ks), n) float64.
    """
    if not ks:
        return torch.empty(0, len(points), dtype=torch.float64, device=points.device)
    engine = engine or choose_engine(points.device)
    with plain_arithmetic(points.device):
        near = engine.nearest(points, min(max(ks) + _MARGIN, len(points) - 1))
        kth = _kth_listed(points, near, ks)
        uncertified = _uncertified(near, kth.amax(dim=1))
        for start in range(0, len(uncertified), _UNCERTIFIED_ROWS):
            rows = uncertified[start : start + _UNCERTIFIED_ROWS]
            kth[rows] = _kth_within(points, rows, kth[rows].amax(dim=1), ks, engine)
    return kth.T.contiguous()


def _kth_listed(points: Placed, near: Nearest, ks: Sequence[int]) -> Tensor:
    """Squared distance to the k-th nearest listed row, (n, len(ks)) float64.

    It lies between the k-th smallest lower and the k-th smallest upper bound. A row whose own bounds are both
    on one side of this gap needs no verification: its lower bound, in its place, leaves the k-th value the same.
    """
    sq = near.sq_lower.clone()
    sq_upper = near.sq_upper.sort(dim=1).values
    is_open = torch.zeros_like(near.index, dtype=torch.bool)
    for k in ks:
        lowest, highest = near.sq_lower[:, k - 1, None], sq_upper[:, k - 1, None]
        is_open |= (near.sq_lower <= highest) & (near.sq_upper >= lowest)
    is_open &= near.sq_lower < near.sq_upper  # copies of the frame's centre are known to coincide
    rows, position = is_open.nonzero().unbind(dim=1)
    sq[rows, position] = sq_distances_at(points.features, points.features, rows, near.index[rows, position])
    return sq.sort(dim=1).values[:, [k - 1 for k in ks]]


def _uncertified(near: Nearest, kth: Tensor) -> Tensor:
    """Rows (u,) for which an unlisted row could be nearer than the k-th listed one, at `kth` (n,)."""
    n, count = near.index.shape
    if count == n - 1:
        return torch.empty(0, dtype=torch.int64, device=kth.device)
    unlisted = near.sq_lower[:, -1].clamp(min=0)  # so k copies of a row settle it
    return (unlisted < kth).nonzero()[:, 0]


def _kth_within(points: Placed, rows: Tensor, sq_reach: Tensor, ks: Sequence[int], engine: Engine) -> Tensor:
    """Squared distance from `rows` (u,) to their k-th nearest, (u, len(ks)), by a pass over all columns.

    Args:
        points: The whole set.
        rows: (u,) int64.
        sq_reach: (u,) float64, within which each of them has max(ks) neighbours.
        ks: As in `kth_sq_distances`.
        engine: What proposes pairs.
    """
    x = points.features
    smallest = torch.full((len(rows), max(ks)), torch.inf, dtype=torch.float64, device=x.device)
    smallest_upper = smallest.clone()
    for found in engine.close_pairs(points.select(rows), points, sq_reach, None):
        pairs = found.select((found.sq_lower <= sq_reach[found.i]) & (found.j != rows[found.i]))
        if bounds := tight_bounds(x, x, rows[pairs.i], pairs.j):
            pairs = Pairs(pairs.i, pairs.j, *bounds)
        _keep_smallest(smallest_upper, pairs.i, pairs.sq_upper)
        sq_reach = torch.minimum(sq_reach, smallest_upper[:, -1])
        pairs = pairs.select(pairs.sq_lower <= sq_reach[pairs.i])
        _keep_smallest(smallest, pairs.i, sq_distances_at(x, x, rows[pairs.i], pairs.j))
    return smallest[:, [k - 1 for k in ks]]


def _keep_smallest(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Merge `values` (p,) into the ascending rows of `table` (n, k) that `rows` (p,) names, in place."""
    k = table.shape[1]
    smaller = values < table[rows, -1]
    rows, values = rows[smaller], values[smaller]
    touched = torch.unique(rows)
    rows = torch.cat([rows, touched.repeat_interleave(k)])
    values = torch.cat([values, table[touched].flatten()])
    order = values.argsort()
    order = order[rows[order].argsort(stable=True)]
    first = torch.searchsorted(rows[order], touched)
    table[touched] = values[order][first[:, None] + torch.arange(k, device=table.device)]


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
) -> CrossCounts:
    """Count who lies in whose balls, for all sets of radii in one pass over real x fake.

    Args:
        real: n rows.
        fake: m rows, placed in the same frame.
        real_sq_radii: (a, n) float64; None counts nothing for them.
        fake_sq_radii: (b, m) float64; None counts nothing for them.
        ties: Whether a point on the sphere is inside: "closed" yes, "strict" no.
        engine: What proposes pairs; None chooses by device.
    """
    n, m = len(real), len(fake)
    engine = engine or choose_engine(real.device)
    in_real = _no_radii(n, real.device) if real_sq_radii is None else real_sq_radii
    in_fake = _no_radii(m, real.device) if fake_sq_radii is None else fake_sq_radii
    a, b = len(in_real), len(in_fake)
    per_row, per_column = _zeros(a + b, n, real.device), _zeros(a + b, m, real.device)
    with plain_arithmetic(real.device):
        for pairs in engine.close_pairs(real, fake, _largest(in_real), _largest(in_fake)):
            sq_radii = torch.cat([in_real[:, pairs.i], in_fake[:, pairs.j]])
            for row, column, inside in zip(
                per_row, per_column, _inside(real, fake, pairs, sq_radii, ties), strict=True
            ):
                row += pairs.i[inside].bincount(minlength=n)
                column += pairs.j[inside].bincount(minlength=m)
    return CrossCounts(per_column[:a], per_row[:a], per_row[a:], per_column[a:])


def _inside(real: Placed, fake: Placed, pairs: Pairs, sq_radii: Tensor, ties: Ties) -> Tensor:
    """Which pairs (p,) are within which radii (r, p): (r, p) bool.

    The engine's bounds settle most pairs, tighter bounds most of the rest, the definition what is left.
    """
    within = torch.le if ties == "closed" else torch.lt
    inside = within(pairs.sq_upper, sq_radii)
    is_open = (within(pairs.sq_lower, sq_radii) & ~inside).any(dim=0)
    for bounds_at in _TIGHTER:
        left = is_open.nonzero()[:, 0]
        bounds = bounds_at(real.features, fake.features, pairs.i[left], pairs.j[left])
        if bounds is not None:
            sq_lower, sq_upper = bounds
            inside[:, left] = within(sq_upper, sq_radii[:, left])
            is_open[left] = (within(sq_lower, sq_radii[:, left]) & ~inside[:, left]).any(dim=0)
    return inside


def _exact_bounds(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    sq = sq_distances_at(x, y, i, j)
    return sq, sq


_TIGHTER: tuple[Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor] | None], ...] = (
    tight_bounds,
    _exact_bounds,
)


def _no_radii(n: int, device: torch.device) -> Tensor:
    return torch.empty(0, n, dtype=torch.float64, device=device)


def _zeros(rows: int, n: int, device: torch.device) -> Tensor:
    return torch.zeros(rows, n, dtype=torch.int64, device=device)


def _largest(sq_radii: Tensor) -> Tensor | None:
    return sq_radii.amax(dim=0) if len(sq_radii) else None
