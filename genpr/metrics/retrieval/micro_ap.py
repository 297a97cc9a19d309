"""Micro-average precision: all pairs of two sets in one ranking by cosine, some of them known to belong together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.retrieval.places import Counts, Numbers, Places
from genpr.metrics.retrieval.similar_pairs import BestPairs, best_pairs
from genpr.metrics.retrieval.similarities import FeaturePairs
from genpr.metrics.uncertainty import Interval, interval_of
from genpr.neighbors.sweep import Tick, no_tick


@dataclass(frozen=True, slots=True, eq=False)
class MicroAP:
    """Average precision of one ranking of all pairs, normalised by the number of true ones.

    Attributes:
        value: The number; where some true pairs are not ranked, the least that it can be.
        interval: 95 %, over left rows; None where those with a true pair are fewer than 10.
        chance: What a random order scores.
        n_true: True pairs.
        n_unranked: Those of a smaller cosine than all that were ranked: they count as never found.
        n_pairs: Pairs that there are.
        replicates: (100,) float64, values for halves of the left rows; None where there is no interval.
    """

    value: float
    interval: Interval | None
    chance: float
    n_true: int
    n_unranked: int
    n_pairs: int
    replicates: Tensor | None = field(repr=False, default=None)

    def __str__(self) -> str:
        between = f" ({self.interval.low:.4f} .. {self.interval.high:.4f})" if self.interval else ""
        beyond = f", {self.n_unranked:,} beyond those ranked" if self.n_unranked else ""
        return (
            f"micro-AP  {self.value:.4f}{between} of {self.n_true:,} true pairs among {self.n_pairs:,}{beyond}; "
            f"chance {self.chance:.2g}"
        )


def micro_ap(
    pairs: FeaturePairs, true_pairs: Counts, *, most: int, budget: int, seed: int = 0, tick: Tick = no_tick
) -> MicroAP:
    """Rank all pairs as far down as true ones go, or `most` of them.

    Pairs of equal cosine have no order: the value is the mean over all orders of them.

    Args:
        pairs: Left and right rows, compared by cosine.
        true_pairs: (t, 2) different rows of both, t at least 1.
        most: Pairs ranked, at most.
        budget: Bytes for a tile.
        seed: Of the halves for the interval.
        tick: Told how many pairs are done with, now and then.
    """
    left, right = torch.from_numpy(true_pairs).to(pairs.device).unbind(dim=1)
    own = pairs.exact(left, right).cpu()
    best = best_pairs(pairs, float(own.min()), most=most, budget=budget, tick=tick)
    ranked = _Ranked.of(best, true_pairs, len(pairs.left))
    value = ranked.average_precision(np.ones(len(pairs.left)))
    replicates, n_units = None, len(np.unique(true_pairs[:, 0]))
    if n_units >= LEAST_UNITS:
        replicates = halved(ranked.average_precisions, len(pairs.left), seed=seed)
        replicates = None if replicates.isnan().any() else replicates
    interval = None if replicates is None else interval_of(value, replicates, n=n_units, upper=None)
    n_pairs = len(pairs.left) * len(pairs.right)
    return MicroAP(
        value=value,
        interval=interval and Interval(interval.low, min(interval.high, 1.0)),
        chance=chance_of_ap(len(own), n_pairs),
        n_true=len(own),
        n_unranked=len(own) - len(ranked.true_level),
        n_pairs=n_pairs,
        replicates=replicates,
    )


def chance_of_ap(relevant: int, pool: int) -> float:
    """Average precision of a random order, on average: (H + (N - H) (R - 1) / (N - 1)) / N, H = 1 + 1/2 + ... + 1/N.

    Args:
        relevant: R, from 1.
        pool: N.
    """
    from scipy.special import digamma  # scipy.special takes a moment to import

    harmonic = float(digamma(pool + 1) + np.euler_gamma)
    return (harmonic + (pool - harmonic) * (relevant - 1) / max(pool - 1, 1)) / pool


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The pairs that are ranked, by level: those of one cosine.

    Attributes:
        left: (k,) int64, row of each pair, best first.
        level: (k,) int64, from 0.
        true_left: (t,) int64, row of each true pair, those that are not ranked too.
        true_level: (r,) int64, level of each true pair that is ranked.
        ranked_left: (r,) int64, its row.
    """

    left: Counts
    level: Counts
    true_left: Counts
    true_level: Counts
    ranked_left: Counts

    @classmethod
    def of(cls, best: BestPairs, true_pairs: Counts, n_left: int) -> _Ranked:
        cosine, left, right = (part.numpy() for part in best)
        level = np.concatenate([[0], np.cumsum(cosine[1:] != cosine[:-1])]) if len(cosine) else left
        is_true = np.isin(left + n_left * right, true_pairs[:, 0] + n_left * true_pairs[:, 1])
        return cls(left, level, true_pairs[:, 0], level[is_true], left[is_true])

    def average_precisions(self, weights: Tensor) -> Tensor:
        """Of halves (B, n) of the rows, (B,)."""
        return torch.from_numpy(np.array([self.average_precision(one) for one in weights.numpy()]))

    def average_precision(self, weight: Numbers) -> float:
        """Of the rows with a weight of 1 (n,), the others having 0; NaN without any true pair."""
        n_true = float(weight[self.true_left].sum())
        return self._precisions(weight) / n_true if n_true else math.nan

    def _precisions(self, weight: Numbers) -> float:
        level = self.true_level[weight[self.ranked_left] > 0]
        if not len(level):
            return 0.0
        tied = np.bincount(self.level, weight[self.left]).astype(np.int64)
        above = np.cumsum(tied) - tied
        query = np.zeros_like(level)
        places = Places.of(query, above[level], tied[level], np.ones(len(level)))
        return float(places.precisions(np.array([int(tied.sum())]))[0])
