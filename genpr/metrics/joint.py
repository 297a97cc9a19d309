"""Who covers whom, for any way to call the images of two sets real and fake: what tests by relabeling look up.

The nearest neighbors of each image among all others, of both sets, do not depend on which is real. Given a labeling,
the ball of a real reaches to its k-th real in that list, and the fakes before it are those in the ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.real_manifold import PairProgress, choose_engine, tally
from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.index import Placed

_RARE = 1e-4  # share of the balls that may reach beyond a list

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class JointNeighbors:
    """The L nearest others of each of n images of two sets together.

    Attributes:
        index: (n, L) int32, nearest first.
        tied: (n, L) int32, the last place in the list that is as far as each; the place itself without ties.
        has_ties: Whether there are any.
    """

    index: NDArray[np.int32]
    tied: NDArray[np.int32]
    has_ties: bool

    @classmethod
    def of(
        cls, features: Tensor, length: int, *, device: torch.device, progress: PairProgress | None = None
    ) -> JointNeighbors:
        """Search once.

        Args:
            features: (n, d) of both sets, n at least 2.
            length: L, n - 1 at most.
            device: Where to compute.
            progress: Called with the pairs of rows done with and their number.
        """
        n = len(features)
        points = Placed.of(features.to(device), length)
        found = Neighborhood.of(
            points,
            [Ball(1)],
            keep=length,
            engine=choose_engine(device),
            advance=tally(n * (n - 1) // 2, progress),
        )
        sq = found.lists.sq.cpu().numpy()
        last = np.broadcast_to(np.arange(length, dtype=np.int32), sq.shape).copy()
        for place in range(length - 2, -1, -1):
            same = sq[:, place] == sq[:, place + 1]
            last[same, place] = last[same, place + 1]
        ties = bool((last != np.arange(length)).any())
        return cls(found.lists.index.cpu().numpy().astype(np.int32), last, ties)

    def uncovered(self, is_real: Flags, k: int) -> Flags:
        """Reals whose closed ball of k others holds no fake: (n,) bool, false for fakes.

        Those whose first k neighbors are all real, and what else is as far as the last of them.
        """
        flags = is_real.copy()
        for place in range(k):
            flags &= is_real[self.index[:, place]]
        if self.has_ties:
            rows = np.flatnonzero(flags)
            rows = rows[self.tied[rows, k - 1] > k - 1]
            within = np.arange(self.index.shape[1]) <= self.tied[rows, k - 1][:, None]
            flags[rows] = ~(within & ~is_real[self.index[rows]]).any(axis=1)
        return flags

    def outside(self, is_real: Flags, k: int) -> Flags:
        """Fakes in no real's closed ball of k others: (n,) bool, false for reals.

        A ball that reaches beyond the list holds all fakes in it, and those beyond count as in none.
        """
        flags = ~is_real
        rows = np.flatnonzero(is_real)
        left = np.full(len(rows), k)  # reals that the ball still has to reach
        limit = np.full(len(rows), -1)  # place in the list of the last that is as far as its k-th real
        for place in range(self.index.shape[1]):
            other = self.index[rows, place]
            real = is_real[other]
            flags[other[~real]] = False
            left -= real
            reached = left == 0
            limit[reached] = self.tied[rows[reached], place]
            going = (left > 0) | (limit > place)
            if not self.has_ties:
                going = ~reached
            rows, left, limit = rows[going], left[going], limit[going]
            if not len(rows):
                break
        return flags

    def nearest_of(self, is_real: Flags, k: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Reals that have k others in their lists, (r,), and these, (r, k)."""
        rows = np.flatnonzero(is_real)
        among = is_real[self.index[rows]]
        has_all = among.sum(axis=1) >= k
        order = np.argsort(~among[has_all], axis=1, kind="stable")[:, :k]
        rows = rows[has_all]
        return rows, np.take_along_axis(self.index[rows], order, axis=1)


def list_length(n_real: int, n_fake: int, k: int) -> int:
    """Least length of lists of which all but one in 10,000 hold k reals."""
    share, length = n_real / (n_real + n_fake), k
    while length < n_real + n_fake - 1 and _chance_of_fewer(k, length, share) > _RARE:
        length += 1
    return min(length, n_real + n_fake - 1)


def _chance_of_fewer(k: int, length: int, share: float) -> float:
    return sum(math.comb(length, i) * share**i * (1 - share) ** (length - i) for i in range(k))
