"""Two halved sets as owners of balls: what is asked about them, and which halves' balls hold what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from genpr.neighbors.balls import Ball
from genpr.neighbors.bounds import bounds_of_differences
from genpr.neighbors.cross import Ties
from genpr.neighbors.engine import Engine
from genpr.neighbors.frame import Placed
from genpr.neighbors.halves import Halves
from genpr.neighbors.lists import NeighbourLists
from genpr.neighbors.replicate_balls import ReplicateBalls
from genpr.neighbors.workers import Workers


@dataclass(frozen=True, slots=True)
class Asked:
    """What to count in every replicate, that is in a half of the reals and a half of the fakes.

    Attributes:
        balls: Whose.
        ball: Which.
        count: "owners": how many balls hold at least t rows. "others": how many rows lie in at least t balls. "pairs": how
            many pairs of a ball and a row in it there are.
        most: Count for t = 1 to `most`; 1 for pairs.
        ties: Whether a row on the sphere is inside: "closed" yes, "strict" no.
        rows: Which rows the balls are asked for: those of the other set, or, "own", the other rows of their own. Of own
            rows at the very radius of a ball, those beyond the listed neighbours are not counted.
    """

    balls: Literal["real", "fake"]
    ball: Ball
    count: Literal["owners", "others", "pairs"]
    most: int = 1
    ties: Ties = "closed"
    rows: Literal["other", "own"] = "other"


@dataclass(frozen=True, slots=True)
class ResampledSet:
    """A set of n rows, its neighbour lists, and its halves."""

    points: Placed
    lists: NeighbourLists
    halves: Halves


@dataclass(frozen=True, slots=True)
class Side:
    """One set as the owner of balls.

    Attributes:
        points: The set.
        member: Its halves, (n, w).
        others: Halves of the set whose rows its balls may hold, (m, w).
        asked: What is asked about its balls and those rows.
        balls: These, perhaps among others; None if nothing is.
        most: How far the largest of them reaches, (n,) float64.
    """

    points: Placed
    member: Halves
    others: Halves
    asked: tuple[Asked, ...]
    balls: ReplicateBalls | None
    most: Tensor

    @classmethod
    def of(
        cls,
        name: str,
        this: ResampledSet,
        other: ResampledSet,
        asked: Sequence[Asked],
        engine: Engine,
        workers: Workers,
    ) -> Side:
        """What is `asked` about the balls of `this` set, called `name`, that may hold rows of the `other`."""
        mine = tuple(dict.fromkeys(each for each in asked if each.balls == name))
        kinds = sorted({each.ball for each in mine})
        balls = None
        if kinds:
            asks_own = any(each.rows == "own" for each in mine)
            balls = ReplicateBalls.of(
                this.points, this.lists, this.halves, kinds, engine, workers, pairs=asks_own
            )
        nothing = torch.full((len(this.points),), -torch.inf, dtype=torch.float64, device=this.points.device)
        return cls(this.points, this.halves, other.halves, mine, balls, nothing)

    def towards(self, rows: Literal["other", "own"]) -> Side:
        """With only what is asked about the rows of the other set, or about its own."""
        asked = tuple(each for each in self.asked if each.rows == rows)
        if self.balls is None or not asked:
            return replace(self, asked=asked, balls=None)
        most = torch.stack([self.balls.reaches[each.ball].most for each in asked]).amax(dim=0)
        return replace(self, asked=asked, others=self.member if rows == "own" else self.others, most=most)

    def kinds(self) -> list[tuple[Ball, Ties]]:
        """Of balls, each with the rule for its sphere."""
        return list(dict.fromkeys((each.ball, each.ties) for each in self.asked))


def proven_reach(side: Side) -> Tensor:
    """Within it, (n,) float64, lies by the definition whatever is in reach as `near_sq_distances` tell."""
    upper = bounds_of_differences(side.most, side.points.features.shape[1])[1]
    return upper.masked_fill(side.most == -torch.inf, -torch.inf)


class Found:
    """Pairs that may be in balls of one kind.

    Args:
        side: The owner of the balls.
        ball: Their kind.
        ties: The rule for their spheres.
        owner: (p,) rows of the side.
        other: (p,) rows of the other set.
        near: (p,) float64, distances, or upper bounds where all balls of the row hold what is there.
    """

    def __init__(
        self, side: Side, ball: Ball, ties: Ties, owner: Tensor, other: Tensor, near: Tensor
    ) -> None:
        assert side.balls is not None
        self.side, self.owner, self.other = side, owner, other
        self._balls, self._ball, self._strict = side.balls, ball, ties == "strict"
        self._reach, self._near = side.balls.reaches[ball], near
        self._place = side.balls.start.index_select(0, owner)
        at = (near >= self._reach.least.index_select(0, owner)).nonzero()[:, 0]
        self._place[at] = side.balls.entries(owner[at], near[at], strict=self._strict)
        # A pair in all balls is as if it had no distance.
        self._near = torch.full_like(near, -torch.inf)
        self._near[at] = near[at]

    def bits(self, at: Tensor) -> Tensor:
        """The halves in which the ball of the owner holds what is at the other's distance, for some pairs (q,)."""
        bits = self._balls.bits[self._ball.k].index_select(0, self._place[at])
        if len(self._reach.sq_medians):
            rank = torch.searchsorted(self._reach.sq_medians, self._near[at], right=self._strict)
            bits &= self._reach.within.index_select(0, rank)
        return bits
