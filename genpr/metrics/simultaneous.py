"""Which of many scores are the best: 95 % bounds that hold for all of them at once.

**Errors.** Let e_sj be half the difference of the metric j between the two halves of split s, as in `uncertainty`. The
error of the difference of scores i and j has the variance s_ij^2 = mean over s of (e_si - e_sj)^2; errors of differences
that share a score, or all the reals, are correlated as the e are. Where scores were made on other reals or other halves,
their e stand in rows of their own, and the variances add up, as they do in `uncertainty.difference`.

**The largest of many.** Sums of the rows of e with random normal weights are normal with just these variances and
correlations: the multiplier bootstrap (Chernozhukov, Chetverikov & Kato 2013, "Gaussian approximations and multiplier
bootstrap for maxima of sums of high-dimensional random vectors"). Standard errors are estimates too, so the largest ratio
of each draw is divided by the root of a chi-squared number over its degrees of freedom, one for all pairs: they share
their reals and their splits. The ratio of one pair is then exactly Student's t.

**Who may be the best.** A score is out if another one is higher by more than c standard errors of their difference
(multiple comparisons with the best: Hsu 1981, "Simultaneous Confidence Intervals for All Distances from the Best"). Here
c is the 95 % quantile of the largest ratio over all pairs of a rival and a score that is still in; once some are out, c is
found anew for the rest, until nobody leaves (step-down: Romano & Wolf 2005, "Exact and Approximate Stepdown Methods for
Multiple Hypothesis Testing"). Before a true best would leave first, all true bests are still in, and c is at least the
quantile of the errors that concern them. So with 95 % no true best is out; and of equal generators, none is.

**Intervals.** Those of the differences to the winner take the quantile over all pairs, since the winner is not known
beforehand; a score may be out whose interval still holds 0. For two scores all of this is `uncertainty.difference`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from genpr.errors import UsageError
from genpr.metrics.uncertainty import (
    Interval,
    Resampled,
    degrees_of_freedom,
    student_quantile,
    unseen_share,
)

_LEVEL = 0.95
_DRAWS = 5000
_BYTES = 2**19  # of the largest array of one chunk of draws: what a cache of a processor holds
_SAME = 1e-10  # of two variances: a smaller variance of a difference is rounding
_DIGITS = 4  # of quantiles, so that the order in which a machine adds does not show

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AgainstBest:
    """Scores of one metric, compared with the highest of them."""

    winner: int  # place of the highest; of equal ones the first
    contenders: tuple[bool, ...]  # which may be the best: with 95 %, every true best is among them
    intervals: tuple[Interval, ...]  # of each score minus the winner's, all at once 95 %
    quantile: float  # half width of these intervals, in standard errors


def against_best(scores: Sequence[Resampled], *, seed: int = 0) -> AgainstBest:
    """Compare scores with the best of them, where more is better."""
    errors = _Errors(scores)

    def out(at: float) -> Flags:
        found: Flags = np.any(errors.leads > errors.half_widths(at), axis=0)
        return found

    quantile = student_quantile(2 * errors.splits)
    if len(scores) > 2:
        largest = _largest_ratios([errors], seed)
        quantile = max(
            quantile, _upper_quantile(largest)
        )  # of two scores it is Student's, and of more no less
        contenders = _step_down(largest, out, quantile)
    else:
        contenders = ~out(quantile)
    winner = int(np.argmax(errors.values))
    lower, half = -errors.leads[winner], errors.half_widths(quantile)[winner]
    half[winner] = 0.0  # nothing differs from itself
    intervals = tuple(
        Interval(low, high)
        for low, high in zip((lower - half).tolist(), (lower + half).tolist(), strict=True)
    )
    return AgainstBest(winner, tuple(contenders.tolist()), intervals, quantile)


def on_front(first: Sequence[Resampled], second: Sequence[Resampled], *, seed: int = 0) -> tuple[bool, ...]:
    """Which scores may be on the true Pareto front of two metrics: with 95 %, all that are on it.

    One is out if another is higher in both metrics by more than c standard errors, where c is the quantile of the largest
    error over both.
    """
    if len(first) != len(second):
        text = f"a front needs both metrics of each, not {len(first)} and {len(second)}"
        raise UsageError(text, code="bad-option")
    both = [_Errors(first), _Errors(second)]
    largest = _largest_ratios(both, seed)

    def out(at: float) -> Flags:
        one, other = (errors.leads > errors.half_widths(at) for errors in both)
        found: Flags = np.any(one & other, axis=0)
        return found

    return tuple(_step_down(largest, out, _upper_quantile(largest)).tolist())


class _Errors:
    """Scores of one metric, and how far their differences may be off."""

    def __init__(self, scores: Sequence[Resampled]) -> None:
        _check(scores)
        self.values = np.array([score.value for score in scores], dtype=np.float64)
        self.leads: Floats = self.values[:, None] - self.values
        self.halved, self.splits = _split_differences(scores)
        squares = np.stack([np.square(self.halved - column[:, None]).sum(axis=0) for column in self.halved.T])
        self.scale: Floats = np.sqrt(squares / self.splits)
        own = np.square(self.halved).sum(axis=0)
        # What differs by rounding alone has no error.
        self._norms: Floats = np.sqrt(np.where(squares > _SAME * (own[:, None] + own), squares, np.inf))
        # As in `difference`, but for as many scores as there are.
        share = np.array([unseen_share(score.n, tail=(1 - _LEVEL) / max(len(scores), 2)) for score in scores])
        size = np.maximum(1.0, np.abs(self.values))
        self.least: Floats = np.maximum(share[:, None], share) * np.maximum(size[:, None], size)

    def half_widths(self, quantile: float) -> Floats:
        """(J, J)."""
        return np.maximum(quantile * self.scale, self.least)

    def largest_ratios(self, sums: Floats) -> Floats:
        """Largest error of any score over each one, in standard errors: (draws, J), from 0, of errors (draws, J)."""
        ratios = sums[:, :, None] - sums[:, None, :]
        ratios /= self._norms
        found: Floats = ratios.max(axis=1)
        return found


def _check(scores: Sequence[Resampled]) -> None:
    if not scores:
        raise UsageError("needed scores to compare, found none", code="bad-option")
    if len({score.k for score in scores}) > 1:
        found = ", ".join(sorted({str(score.k) for score in scores}))
        raise UsageError(f"scores with k = {found} are of different metrics", code="bad-option")
    shapes = {tuple(score.replicates.shape) for score in scores}
    shape = next(iter(shapes))
    if len(shapes) > 1 or len(shape) != 1 or shape[0] < 2 or shape[0] % 2:
        raise UsageError(f"replicates come in equally many pairs, not in shapes {shapes}", code="bad-option")
    if not all(np.isfinite([score.value, *score.replicates]).all() for score in scores):
        raise UsageError("scores and replicates must be finite numbers", code="bad-option")


def _split_differences(scores: Sequence[Resampled]) -> tuple[Floats, int]:
    """(rows, J), and the number of splits S; rows are S times the number of groups that share halves."""
    keys = [_halves_of(score, place) for place, score in enumerate(scores)]
    blocks = list(dict.fromkeys(keys))
    splits = len(scores[0].replicates) // 2
    halved = np.zeros((len(blocks) * splits, len(scores)))
    for place, (score, key) in enumerate(zip(scores, keys, strict=True)):
        start = blocks.index(key) * splits
        replicates = np.asarray(score.replicates, dtype=np.float64)
        halved[start : start + splits, place] = (replicates[::2] - replicates[1::2]) / 2
    return halved, splits


def _halves_of(score: Resampled, place: int) -> Hashable:
    """Equal for scores of which `uncertainty.are_paired` holds."""
    if score.real_identity is None:
        return place
    return score.real_identity, score.seed, score.n_real


def _largest_ratios(metrics: Sequence[_Errors], seed: int) -> Floats:
    """(draws, J): the largest ratio over rivals and metrics. All metrics meet the same random weights."""
    halved = np.concatenate([each.halved for each in metrics], axis=1)
    rows, width = metrics[0].halved.shape
    freedom = degrees_of_freedom(2 * metrics[0].splits)
    rng, found = np.random.default_rng(seed), list[Floats]()
    chunk = max(_BYTES // (8 * max(width**2, rows)), 1)
    for start in range(0, _DRAWS, chunk):
        count = min(chunk, _DRAWS - start)
        parts = np.split(rng.standard_normal((count, rows)) @ halved, len(metrics), axis=1)
        ratios = [each.largest_ratios(part) for each, part in zip(metrics, parts, strict=True)]
        scatter = np.sqrt(rng.chisquare(freedom, count) / freedom)
        found.append(np.maximum.reduce(ratios) / scatter[:, None])
    return np.concatenate(found)


def _step_down(largest: Floats, out: Callable[[float], Flags], quantile: float) -> Flags:
    """Who is left once nobody is out by the quantile (first the one given) of all who are left."""
    left: Flags = ~out(quantile)
    while True:
        found = left & ~out(_upper_quantile(largest[:, left]))
        if np.array_equal(found, left):
            return left
        left = found


def _upper_quantile(largest: Floats) -> float:
    return round(float(np.quantile(largest.max(axis=1), _LEVEL, method="higher")), _DIGITS)
