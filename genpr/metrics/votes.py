"""What the neighbours of a point say about it: counts for "real" and counts for "fake", exactly.

References:
    Sykes, Simon and Rabin 2024, "Unifying and Extending Precision Recall Metrics for Assessing Generative Models".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from genpr.neighbors.choose import choose_engine
from genpr.neighbors.cross import Ties, cross_counts
from genpr.neighbors.engine import Engine
from genpr.neighbors.frame import Placed
from genpr.neighbors.nearest import nearest_between
from genpr.neighbors.plan import choose_frame
from genpr.neighbors.radii import kth_sq_distances, nearest_neighbours

Classifier = Literal["ipr", "knn", "coverage"]
Sets = tuple[Tensor, Tensor]
"""Reals and fakes, (n, d) and (m, d)."""

_REAL, _FAKE = 0, 1


class Votes(NamedTuple):
    """Votes on some points, (p,) int64: how much speaks for real, and how much for fake."""

    real: Tensor
    fake: Tensor


@dataclass(frozen=True, slots=True)
class Electorate:
    """Who votes on whom. Kinds are 0 for real and 1 for fake.

    Attributes:
        voters: Reals and fakes.
        judged: Reals and fakes, in the same frame; the same as the voters, or others.
        ties: Whether balls are closed.
        engine: What multiplies.
    """

    voters: tuple[Placed, Placed]
    judged: tuple[Placed, Placed]
    ties: Ties
    engine: Engine

    @classmethod
    def of(cls, voters: Sets, judged: Sets | None = None, *, k: int, ties: Ties = "closed") -> Electorate:
        """Of features (n, d); without `judged` the voters judge each other, and no point itself."""
        frame = choose_frame(voters[_REAL], k)
        placed = frame.place(voters[_REAL]), frame.place(voters[_FAKE])
        others = placed if judged is None else (frame.place(judged[_REAL]), frame.place(judged[_FAKE]))
        return cls(placed, others, ties, choose_engine(placed[_REAL].device))

    def nearest(self, judged: int, voters: int, k: int) -> Tensor:
        """Squared distances of each judged point to its k nearest voters, or all: (p, at most k)."""
        points, others = self.judged[judged], self.voters[voters]
        if points is others:
            return nearest_neighbours(points, min(k, len(points) - 1), engine=self.engine)[1]
        return nearest_between(points, others, min(k, len(others)), engine=self.engine)[1]

    def voters_within(self, judged: int, voters: int, sq_radii: Tensor) -> Tensor:
        """How many voters are within the radius of each judged point (p,), itself not counted: (p,) int64."""
        points, others = self.judged[judged], self.voters[voters]
        counts = cross_counts(
            points, others, real_sq_radii=sq_radii[None], ties=self.ties, engine=self.engine
        ).fakes_per_real_ball[0]
        return counts - self._itself(sq_radii) if points is others else counts

    def balls_around(self, judged: int, voters: int, sq_radii: Tensor) -> Tensor:
        """How many balls of voters, of radii (n,), hold each judged point, its own not counted: (p,) int64."""
        points, others = self.judged[judged], self.voters[voters]
        counts = cross_counts(
            others, points, real_sq_radii=sq_radii[None], ties=self.ties, engine=self.engine
        ).real_balls_per_fake[0]
        return counts - self._itself(sq_radii) if points is others else counts

    def _itself(self, sq_radii: Tensor) -> Tensor:
        """Whether each centre is in its own ball: not if that is open and of radius 0."""
        return (
            (sq_radii > 0).long() if self.ties == "strict" else torch.ones_like(sq_radii, dtype=torch.int64)
        )


def ball_votes(who: Electorate, k: int) -> tuple[Votes, Votes]:
    """How many k-NN balls of the real and of the fake voters hold each judged real and each judged fake."""
    of_real, of_fake = (kth_sq_distances(side, [k], engine=who.engine)[0] for side in who.voters)

    def votes(judged: int) -> Votes:
        return Votes(who.balls_around(judged, _REAL, of_real), who.balls_around(judged, _FAKE, of_fake))

    return votes(_REAL), votes(_FAKE)


def knn_votes(who: Electorate, k: int) -> tuple[Votes, Votes]:
    """How many real and how many fake voters are among the k nearest voters of each judged real and fake.

    Voters as far as the k-th are all among them, or none with strict ties.
    """

    def votes(judged: int) -> Votes:
        pooled = torch.cat([who.nearest(judged, voters, k) for voters in (_REAL, _FAKE)], dim=1)
        sq_radii = pooled.sort(dim=1).values[:, k - 1]
        return Votes(who.voters_within(judged, _REAL, sq_radii), who.voters_within(judged, _FAKE, sq_radii))

    return votes(_REAL), votes(_FAKE)


def coverage_votes(who: Electorate, k: int) -> tuple[Votes, Votes]:
    """How many real voters are within the k-th fake one of each judged point, and how many fake ones the k-th real."""

    def votes(judged: int) -> Votes:
        to_real, to_fake = (who.nearest(judged, voters, k)[:, k - 1] for voters in (_REAL, _FAKE))
        return Votes(who.voters_within(judged, _REAL, to_fake), who.voters_within(judged, _FAKE, to_real))

    return votes(_REAL), votes(_FAKE)


VOTES: Mapping[Classifier, Callable[[Electorate, int], tuple[Votes, Votes]]] = MappingProxyType(
    {"ipr": ball_votes, "knn": knn_votes, "coverage": coverage_votes}
)
"""Votes on the judged reals and on the judged fakes, by the name of the classifier."""


def halves(features: Tensor, random: np.random.Generator) -> Sets:
    """Two random halves of the rows, the first not larger, each in the order of the rows."""
    n = len(features)
    order = torch.from_numpy(random.permutation(n)).to(features.device)
    first, second = order[: n // 2].sort().values, order[n // 2 :].sort().values
    return features[first], features[second]
