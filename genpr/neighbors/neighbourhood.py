"""Everything a set tells about itself in one search: radii, who lies in whose balls, and the nearest of every row."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.balls import Ball, sq_radii_of
from genpr.neighbors.choose import choose_engine
from genpr.neighbors.cross import Ties
from genpr.neighbors.directed import Directed, padded
from genpr.neighbors.engine import Engine, plain_arithmetic
from genpr.neighbors.frame import Placed
from genpr.neighbors.lists import NeighbourLists, near_sq_distances
from genpr.neighbors.radii import near_others
from genpr.neighbors.sweep import Tick, no_tick
from genpr.neighbors.workers import Workers

_LISTED = 2**15  # pairs per piece of work


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What a set of n rows tells about itself.

    Attributes:
        balls: Which balls were drawn.
        sq_radii: Their squared radii, (len(balls), n) float64, exact.
        in_degrees: In how many balls of other rows each row lies, were it not one of the rows itself: (len(balls), n)
            int64, exact. Without it, a ball that reached to it as the k-th reaches to the next one: an open ball contains
            it then as a closed one does.
        lists: The nearest others of each row; of length 0 if none were to be kept.
    """

    balls: tuple[Ball, ...]
    sq_radii: Tensor
    in_degrees: Tensor
    lists: NeighbourLists

    @classmethod
    def of(
        cls,
        points: Placed,
        balls: Sequence[Ball],
        *,
        ties: Ties = "closed",
        keep: int = 0,
        engine: Engine | None = None,
        tick: Tick = no_tick,
    ) -> Neighbourhood:
        """Search once.

        Args:
            points: n rows.
            balls: At least one, each of a k from 1 to n - 1.
            ties: Whether a row on the sphere is inside: "closed" yes, "strict" no.
            keep: Neighbours to list of each row; fewer if there are no more.
            engine: What multiplies; None chooses by device.
            tick: Told how many of the n (n - 1) / 2 pairs are done with, now and then.
        """
        engine = engine or choose_engine(points.device)
        features, keep = points.features, min(keep, len(points) - 1)
        ks = sorted({ball.k for ball in balls})
        if ties == "strict":
            ks = sorted({*ks, *(k + 1 for k in ks if k + 1 < len(points))})
        most = max(keep, *ks)
        with plain_arithmetic(points.device), Workers(points.device, engine.communicator()) as workers:
            near, copies = near_others(points, most, engine, workers, tick)
            settled = copies[:, 0] >= 0
            lists = _lists(features, near, copies[:, :keep], engine, workers)
            if keep > ks[-1]:
                near = near.within(near.smallest(near.sq_upper, ks[-1])[:, -1])
            near = near.decided(features, ks, workers)
            table = near.smallest(near.sq_lower, ks[-1])
            table[settled] = 0
            sq_radii = torch.stack([sq_radii_of(ball, table[:, ball.k - 1]) for ball in balls])
            without = sq_radii if ties == "closed" else _sq_radii_without_one(table, balls)
            in_degrees = near.in_degrees(features, without, ties, workers)
            if ties == "closed":
                in_degrees += _settled_copies(features, settled)
        return cls(tuple(balls), sq_radii, in_degrees, lists)

    def radii_of(self, balls: Sequence[Ball]) -> Tensor:
        """Squared radii of some of the balls, (len(balls), n) float64."""
        return self.sq_radii[[self.balls.index(ball) for ball in balls]]


def _sq_radii_without_one(table: Tensor, balls: Sequence[Ball]) -> Tensor:
    """Squared radii (len(balls), n) that balls have for a row inside them that is not one of the rows.

    Args:
        table: (n, k) squared distances to the nearest others, ascending, to one more than any ball reaches, if there is.
        balls: Which.
    """
    radii = []
    for ball in balls:
        own = table[:, ball.k - 1]
        has_next = ball.k < table.shape[1]
        longer = table[:, ball.k] if has_next else torch.full_like(own, torch.inf)
        radii.append(longer.clamp(max=float(sq_radii_of(ball, own).max())) if ball.clipped else longer)
    return torch.stack(radii)


def _lists(
    features: Tensor, near: Directed, copies: Tensor, engine: Engine, workers: Workers
) -> NeighbourLists:
    """Of `near`, as many as there are columns in `copies` (n, keep); rows that have these are settled with them."""
    keep = copies.shape[1]
    if not keep:
        return NeighbourLists(copies, copies.double())
    parts = list(zip(torch.split(near.row, _LISTED), torch.split(near.other, _LISTED), strict=True))
    found = workers.map_shared(lambda part: (near_sq_distances(features, features, *part, engine),), parts)
    sq = torch.cat([sq for (sq,) in found])
    places, is_settled = near.places(sq, keep), copies[:, :1] >= 0
    index = padded(near.other, -1)[places].where(~is_settled, copies)
    return NeighbourLists(index, padded(sq, torch.inf)[places].masked_fill(is_settled, 0))


def _settled_copies(features: Tensor, settled: Tensor) -> Tensor:
    """How many settled copies each row has beside itself, (n,) int64: all of them reach it with their empty balls."""
    counts = torch.zeros(len(features), dtype=torch.int64, device=features.device)
    if not settled.any():
        return counts
    rows = [hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest() for row in features.cpu().numpy()]
    number = Counter(row for row, is_settled in zip(rows, settled.tolist(), strict=True) if is_settled)
    counts += torch.tensor([number[row] for row in rows], device=counts.device)
    return counts - settled.long()
