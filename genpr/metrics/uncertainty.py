"""95 % intervals for metrics of nearest neighbors, and tests of whether two scores differ.

The bootstrap cannot be used: copies of a row in a resample are neighbors at distance zero, which moves every metric
by far more than its error. Halves drawn without replacement have no copies (Politis & Romano 1994, "Large Sample
Confidence Regions Based on Subsamples under Minimal Assumptions").

**Standard error.** Let A be the metric of a random half of the reals and a random half of the fakes, and A' that of the
rows left over. A and A' share no image, so the mean of ((A - A') / 2)^2 over all data is Var(A) / 2, whatever the
distribution. With a variance that falls like 1 / n this is the variance of the metric of the whole sets, and the mean
over splits of one data set estimates it. The variance of A over halves is too large: with parts of variance a_c / n that
depend on c images together (Hoeffding 1948) its expectation is the sum of a_c (2 - 2^(1 - c)) / n, that of the
complementary halves the sum of a_c / n.

**Interval.** It is centered on the value of the whole sets, since halves are another size and have another mean. The
quantile is Student's: each split adds a square of mean zero, and with infinitely many splits the error would still be that
of these data, which varies by some 10 %, as if there were 50 of them. An interval is never narrower than the exact
binomial one (Clopper & Pearson 1934) for as many independent images.

**The best of many.** Let e_sj be half the difference of the metric j between the two halves of split s. The error of the
difference of scores i and j has the variance mean over s of (e_si - e_sj)^2. Scores of other reals or other halves have
separate rows of e. Sums of the rows of e with random normal weights have these variances and correlations: the
multiplier bootstrap (Chernozhukov, Chetverikov & Kato 2013, "Gaussian approximations and multiplier bootstrap for maxima of
sums of high-dimensional random vectors"). The largest ratio of each draw is divided by the root of a chi-squared number
over its degrees of freedom, so that the ratio of one pair is exactly Student's t.

A score is out if another one is higher by more than c standard errors of their difference (Hsu 1981, "Simultaneous
Confidence Intervals for All Distances from the Best"). Here c is the 95 % quantile of the largest ratio over all pairs of
a rival and a score that is still in; once some are out, c is computed again for the rest, until none is excluded (step-down:
Romano & Wolf 2005, "Exact and Approximate Stepdown Methods for Multiple Hypothesis Testing"). So with 95 % no true best is
out. Intervals of the differences to the winner take the quantile over all pairs. For two scores this is `difference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genpr.errors import UsageError
from genpr.metrics.metric import MetricValue

if TYPE_CHECKING:
    from torch import Tensor

MIN_UNITS = 10
"""Units, such as images or prompts, without which `halved` has too few."""

_LEVEL = 0.95
_UNIT_STREAM = 2  # different from those of reals and fakes
_MAX_WEIGHTS = 2**22  # of halves that are held at once
_DRAWS = 5000
_BYTES = 2**19  # of the largest array of one block of draws: what a cache of a processor holds
_SAME = 1e-10  # of two variances: a smaller variance of a difference is rounding
_DIGITS = 4  # of quantiles, so that the order in which a machine adds does not show

# Degrees of freedom, 1 / (2 cv^2), of a standard error that varies by cv = 10 % between data.
_OF_THE_DATA = 50
_QUANTILES = {100: 2.0595385527532972}  # of the usual replicates: scipy.special takes 0.2 s to import
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]


class Interval(NamedTuple):
    """A 95 % interval; `value in interval` says whether it contains a value."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


def standard_error(replicates: Tensor | NDArray[np.float64]) -> float:
    """Standard error of the metric of whole sets, from its values (B,) for their halves, complementary ones in pairs."""
    halved = (replicates[::2] - replicates[1::2]) / 2
    return math.sqrt(float((halved * halved).mean()))


def halved(statistic: Callable[[Tensor], Tensor], n: int, *, seed: int = 0) -> Tensor:
    """A statistic of 100 halves of n units, at least 10: (100, ...) float64, complementary ones adjacent.

    It turns weights (B, n) float64, 1 where a unit is in the half and 0 elsewhere, into (B, ...) values.
    """
    import torch

    from genpr.neighbors.halves import Halves

    if n < MIN_UNITS:
        raise UsageError(f"halves need at least {MIN_UNITS} units, not {n}", code="too-few-units")
    halves = Halves.drawn(n, seed=seed, stream=_UNIT_STREAM, device=torch.device("cpu"))
    blocks = torch.split(halves.members(), max(1, _MAX_WEIGHTS // n))
    return torch.cat([statistic(block.double()).double() for block in blocks])


def halved_means(totals: NDArray[Any], counts: NDArray[Any], *, seed: int) -> Tensor:
    """Means (100, c) over halves of n units, of whose values `totals` (n, c) are the sums and `counts` (n, c) the numbers."""
    from torch import from_numpy

    both, width = from_numpy(np.concatenate([totals, counts], axis=1)), totals.shape[1]

    def means(weights: Tensor) -> Tensor:
        sums = weights @ both
        return sums[:, :width] / sums[:, width:]

    return halved(means, len(totals), seed=seed)


def lower_part(a: Tensor, b: Tensor) -> Tensor:
    """Replicates (B,) of the smaller of two metrics: those of the one whose interval reaches lower.

    The smaller one of each half would vary less than that of the whole sets: intervals of symmetric recall covered the true
    value in 89 % of a simulation, those of the one that is lower on average in 95 %.
    """
    ends = [float(each.mean()) - student_quantile(len(each)) * standard_error(each) for each in (a, b)]
    return a if ends[0] <= ends[1] else b


def interval_of(
    value: float,
    replicates: Tensor | NDArray[np.float64] | None,
    *,
    n: int | None,
    lower: float = 0.0,
    upper: float | None = 1.0,
    is_share: bool = True,
) -> Interval | None:
    """The 95 % interval of a metric from `lower` to `upper`; None without replicates, or if a half has no value.

    It is never narrower than the exact interval of a share of n images, or of a mean over them, and so never of zero width. None for
    n leaves this out.
    """
    if replicates is None or not all(map(math.isfinite, replicates.tolist())):
        return None
    half = student_quantile(len(replicates)) * standard_error(replicates)
    low, high = value - half, value + half
    if n is not None and is_share and upper is not None:
        # Clopper and Pearson's interval; a value between two counts is not rounded.
        from scipy.special import betaincinv

        tail, hits = (1 - _LEVEL) / 2, min(max(value / upper, 0.0), 1.0) * n
        low = min(low, upper * float(betaincinv(hits, n - hits + 1, tail)) if hits > 0 else 0.0)
        high = max(high, upper * (float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0))
    elif n is not None:
        # A kind of image that none of n was may still have a share of 1 - .025^(1/n), the exact binomial bound. If such
        # images are worth nothing, or twice the mean (1 for usual images) and at least 1, this is what they change.
        share = unseen_share(n)
        low, high = min(low, value - share * value), max(high, value + share * max(value, 1.0))
    return Interval(max(low, lower), high if upper is None else min(high, upper))


def with_interval(
    metric: MetricValue,
    replicates: Tensor | NDArray[np.float64] | None,
    *,
    n: int | None,
    lower: float = 0.0,
    upper: float | None = 1.0,
    is_share: bool = True,
) -> MetricValue:
    """A value with its interval by `interval_of` and the replicates that give it, if there are any."""
    interval = interval_of(metric.value, replicates, n=n, lower=lower, upper=upper, is_share=is_share)
    if interval is None or replicates is None:
        return metric
    return replace(metric, interval=interval, replicates=tuple(replicates.tolist()))


def degrees_of_freedom(replicates: int) -> float:
    """Degrees of freedom of a standard error from so many replicates; see **Interval** above."""
    return 1 / (2 / replicates + 1 / _OF_THE_DATA)


def student_quantile(replicates: int) -> float:
    """Half width of a 95 % interval in standard errors that come from so many replicates."""
    if replicates in _QUANTILES:
        return _QUANTILES[replicates]
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    return float(stdtrit(degrees_of_freedom(replicates), (1 + _LEVEL) / 2))


def effective_size(sizes: Floats) -> int:
    """Images whose plain mean varies as much as one over classes of (classes,) sizes (Kish 1965, "Survey Sampling")."""
    sizes = sizes[sizes > 0]
    return max(1, int(len(sizes) ** 2 / (1 / sizes).sum()))


def unseen_share(n: int, *, tail: float = (1 - _LEVEL) / 2) -> float:
    """The largest share of a kind of image of which n images hold none with a probability of `tail`."""
    return -math.expm1(math.log(tail) / n)


@dataclass(frozen=True, slots=True)
class Resampled:
    """A score of one metric, with the inputs of a comparison."""

    value: float  # of the whole sets
    replicates: Tensor | NDArray[np.float64]  # (B,) float64, of halves
    n: int | None  # images that the metric is a share of, or a mean over; None for distances
    seed: int  # of the halves
    n_real: int  # number of reals
    real_identity: str | None  # hash of the reals; None if unknown


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one score is than another."""

    value: float  # the first minus the second
    interval: Interval  # 95 %, of the difference
    # "paired" where both were scored on the same reals and the same halves of them
    pairing: Literal["paired", "unpaired"]
    verdict: Literal["distinguishable", "not distinguishable"]


def difference(a: Resampled, b: Resampled) -> Difference:
    """Compare two scores of one metric."""
    # Whether replicate b of both is of the same reals.
    is_paired = len(a.replicates) == len(b.replicates) and _halves_of(a, 0) == _halves_of(b, 1)
    if is_paired:
        error, splits = standard_error(a.replicates - b.replicates), len(a.replicates)
    else:
        error = math.hypot(standard_error(a.replicates), standard_error(b.replicates))
        splits = min(len(a.replicates), len(b.replicates))
    value = a.value - b.value
    # As in `interval_of`: images in neither sample may still make the scores differ.
    least = 0.0
    if a.n is not None and b.n is not None:
        least = unseen_share(min(a.n, b.n)) * max(1.0, abs(a.value), abs(b.value))
    half = max(student_quantile(splits) * error, least)
    interval = Interval(value - half, value + half)
    return Difference(
        value,
        interval,
        "paired" if is_paired else "unpaired",
        "not distinguishable" if 0.0 in interval else "distinguishable",
    )


@dataclass(frozen=True, slots=True)
class AgainstBest:
    """Scores of one metric, compared with the highest of them."""

    winner: int  # index of the highest, the first of several
    contenders: tuple[bool, ...]  # which may be the best: with 95 %, every true best is among them
    intervals: tuple[Interval, ...]  # of each score minus the winner's, all at once 95 %
    quantile: float  # half width of these intervals, in standard errors


def against_best(scores: Sequence[Resampled]) -> AgainstBest:
    """Compare scores with the best of them, where more is better."""
    errors = _Errors(scores)

    def out(at: float) -> Flags:
        is_ahead: Flags = np.any(errors.leads > errors.half_widths(at), axis=0)
        return is_ahead

    quantile = student_quantile(2 * errors.splits)
    if len(scores) > 2:
        largest = _largest_ratios([errors])
        quantile = max(quantile, _upper_quantile(largest))  # never below that of two scores
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


def on_front(first: Sequence[Resampled], second: Sequence[Resampled]) -> tuple[bool, ...]:
    """Which scores may be on the true Pareto front of two metrics: with 95 %, all that are on it.

    One is out if another is higher in both metrics by more than c standard errors, where c is the quantile of the largest
    error over both.
    """
    both = [_Errors(first), _Errors(second)]
    largest = _largest_ratios(both)

    def out(at: float) -> Flags:
        one, other = (errors.leads > errors.half_widths(at) for errors in both)
        is_both: Flags = np.any(one & other, axis=0)
        return is_both

    return tuple(_step_down(largest, out, _upper_quantile(largest)).tolist())


class _Errors:
    """Scores of one metric, and the errors of their differences."""

    def __init__(self, scores: Sequence[Resampled]) -> None:
        self.values = np.array([score.value for score in scores], dtype=np.float64)
        self.leads: Floats = self.values[:, None] - self.values
        self.halved, self.splits = _split_differences(scores)
        squares = np.stack([np.square(self.halved - column[:, None]).sum(axis=0) for column in self.halved.T])
        self.scale: Floats = np.sqrt(squares / self.splits)
        own = np.square(self.halved).sum(axis=0)
        # A difference within rounding has no error.
        self._norms: Floats = np.sqrt(np.where(squares > _SAME * (own[:, None] + own), squares, np.inf))
        # As in `difference`, but for as many scores as there are.
        tail = (1 - _LEVEL) / max(len(scores), 2)
        share = np.array([0.0 if score.n is None else unseen_share(score.n, tail=tail) for score in scores])
        size = np.maximum(1.0, np.abs(self.values))
        self.least: Floats = np.maximum(share[:, None], share) * np.maximum(size[:, None], size)

    def half_widths(self, quantile: float) -> Floats:
        """Half widths of the intervals of all differences, (J, J)."""
        return np.maximum(quantile * self.scale, self.least)

    def largest_ratios(self, sums: Floats) -> Floats:
        """Largest error of any score over each one, in standard errors: (draws, J), from 0, of errors (draws, J)."""
        ratios = sums[:, :, None] - sums[:, None, :]
        ratios /= self._norms
        largest: Floats = ratios.max(axis=1)
        return largest


def _split_differences(scores: Sequence[Resampled]) -> tuple[Floats, int]:
    """(rows, J), and the number of splits S; rows are S times the number of groups that share halves."""
    if len({len(score.replicates) for score in scores}) != 1:
        raise UsageError("a comparison needs scores with equally many replicates", code="bad-option")
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
    """Equal for scores of the same halves of the same reals."""
    if score.real_identity is None:
        return place
    return score.real_identity, score.seed, score.n_real


def _largest_ratios(metrics: Sequence[_Errors]) -> Floats:
    """(draws, J): the largest ratio over rivals and metrics. All metrics use the same random weights."""
    halved = np.concatenate([each.halved for each in metrics], axis=1)
    rows, width = metrics[0].halved.shape
    freedom = degrees_of_freedom(2 * metrics[0].splits)
    rng, largest = np.random.default_rng(0), list[Floats]()
    length = max(_BYTES // (8 * max(width**2, rows)), 1)
    for start in range(0, _DRAWS, length):
        count = min(length, _DRAWS - start)
        sums = np.split(rng.standard_normal((count, rows)) @ halved, len(metrics), axis=1)
        ratios = [each.largest_ratios(of_metric) for each, of_metric in zip(metrics, sums, strict=True)]
        scatter = np.sqrt(rng.chisquare(freedom, count) / freedom)
        largest.append(np.maximum.reduce(ratios) / scatter[:, None])
    return np.concatenate(largest)


def _step_down(largest: Floats, out: Callable[[float], Flags], quantile: float) -> Flags:
    """Scores that remain once none is excluded by the quantile of those that remain; `quantile` is the first."""
    left: Flags = ~out(quantile)
    while True:
        kept = left & ~out(_upper_quantile(largest[:, left]))
        if np.array_equal(kept, left):
            return left
        left = kept


def _upper_quantile(largest: Floats) -> float:
    return round(float(np.quantile(largest.max(axis=1), _LEVEL, method="higher")), _DIGITS)
