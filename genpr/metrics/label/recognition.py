"""Which class an image looks like, by labelled images: a vote of its nearest neighbours, exactly.

Neighbours are in the order of their distance, and of equally far ones those of the first class come first. The first k
of this order vote, one vote each; of classes with equally many votes, that of the neighbour who comes first wins. So the
nearest class wins, then the order of the classes, and the result does not depend on the order of the images.

A list holds as many neighbours as k voters need of random halves, for intervals. Only where more than that are equally far,
copies for instance, those of lower index are in it.

References:
    Cover and Hart 1967, "Nearest neighbor pattern classification".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.engine import Engine
from genpr.neighbors.frame import Placed
from genpr.neighbors.halves import others_for
from genpr.neighbors.nearest import nearest_between
from genpr.neighbors.sweep import Tick, no_tick

NOBODY = -1
"""Where nobody votes."""

_ROWS, _PAIRS = 2**16, 2**28  # of lists looked at together, and of voters of one list compared


@dataclass(frozen=True, slots=True)
class Voters:
    """The nearest labelled images of some others, in the order in which they vote.

    Attributes:
        index: (m, L) int64, which images.
        labels: (m, L) int64, their classes, NOBODY after the last one.
    """

    index: Tensor
    labels: Tensor

    @classmethod
    def of(
        cls,
        queries: Placed,
        points: Placed,
        labels: Tensor,
        k: int,
        *,
        places: Tensor | None = None,
        engine: Engine | None = None,
        tick: Tick = no_tick,
    ) -> Voters:
        """Find them.

        Args:
            queries: m rows.
            points: n rows in the same frame.
            labels: (n,) int64, the classes of the points, from 0.
            k: Voters that will be asked for.
            places: (m,) int64, which point each query is, negative for none of them; None if no query is a point. None votes
                on itself; its copies do.
            engine: As in `nearest_between`.
            tick: As in `nearest_between`.
        """
        n = len(points)
        length = min(others_for(k) + (places is not None), n)
        index, sq = nearest_between(queries, points, length, engine=engine, tick=tick)
        if places is not None:
            index, sq = _without_themselves(index, sq, places)
        classes = labels[index]
        by_class = classes.argsort(dim=1, stable=True)
        order = by_class.gather(1, sq.gather(1, by_class).argsort(dim=1, stable=True))
        return cls(index.gather(1, order), classes.gather(1, order))

    def elected(self, k: int, *, rows: Tensor | None = None, may_vote: Tensor | None = None) -> Tensor:
        """The class that the first `k` of them elect, NOBODY where there is none: (m,) or (r,) int64.

        Args:
            k: Voters of each; fewer vote where a list has no more.
            rows: (r,) int64, of whom; None for all.
            may_vote: (n,) bool, which points may vote; None for all.
        """
        rows = torch.arange(len(self.index), device=self.index.device) if rows is None else rows
        parts = [
            self._elected(k, part, may_vote) for part in torch.split(rows, max(1, min(_ROWS, _PAIRS // k**2)))
        ]
        return torch.cat(parts) if parts else rows

    def without(self, left_out: Tensor) -> Voters:
        """Lists without the voters that (m, L) bool `left_out` names; the others keep their order."""
        order = left_out.long().argsort(dim=1, stable=True)
        labels = self.labels.masked_fill(left_out, NOBODY)
        return Voters(self.index.gather(1, order), labels.gather(1, order))

    def _elected(self, k: int, rows: Tensor, may_vote: Tensor | None) -> Tensor:
        labels = self.labels[rows]
        if may_vote is None:
            return plurality(labels[:, :k])
        votes = may_vote[self.index[rows]]
        place = votes.cumsum(dim=1) - 1
        # Whoever does not vote goes to a place behind the last one, which is cut off.
        place = place.where(votes & (place < k), torch.full_like(place, k))
        first = labels.new_full((len(rows), k + 1), NOBODY).scatter_(1, place, labels)
        return plurality(first[:, :k])


def _without_themselves(index: Tensor, sq: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Lists (m, L) without the query itself, or without their last one if it is not among them: (m, L - 1)."""
    dropped = index == places[:, None]
    dropped[:, -1] |= ~dropped.any(dim=1)
    shape = len(index), index.shape[1] - 1
    return index[~dropped].view(shape), sq[~dropped].view(shape)


def plurality(votes: Tensor) -> Tensor:
    """The class with most of the votes (r, k), of equal ones the one that comes first; NOBODY where there are none: (r,)."""
    if not votes.shape[1]:
        return votes.new_full((len(votes),), NOBODY)
    k = votes.shape[1]
    counts = (votes[:, :, None] == votes[:, None, :]).sum(dim=2) * (votes != NOBODY)
    order = counts * k - torch.arange(k, device=votes.device)  # all different where any is not 0
    winner = order.argmax(dim=1)
    return votes.gather(1, winner[:, None])[:, 0]
