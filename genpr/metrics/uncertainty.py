"""95 % intervals for metrics of nearest neighbors, and whether two scores can be told apart.

The bootstrap cannot be used: copies of a row in a resample are neighbors at distance zero, which moves every metric
by far more than its error. Halves drawn without replacement have no copies (Politis & Romano 1994, "Large Sample
Confidence Regions Based on Subsamples under Minimal Assumptions").

**Standard error.** Let A be the metric of a random half of the reals and a random half of the fakes, and A' that of the
rows left over. A and A' share no image, so they are independent, and the mean of ((A - A') / 2)^2 over all data is
Var(A) / 2, whatever the distribution. With a variance that falls like 1 / n, as that of metrics of k nearest neighbors
does at fixed k, this is the variance of the metric of the whole sets. The mean over splits of one data set estimates it.
The usual estimate, the variance of A over halves, is too large: with parts of variance a_c / n that depend on c images
together (Hoeffding 1948) its expectation is the sum of a_c (2 - 2^(1 - c)) / n, that of the complementary halves the sum
of a_c / n. In simulations the factor is 1.1 to 1.7 (see `benchmarks/bench_intervals.py`).

**Interval.** It is centered on the value of the whole sets, since halves are another size and have another mean. The
quantile is Student's: each split adds a square of mean known to be zero; and were there infinitely many splits, the error
would still be that of these data, which varies by some 10 % between draws of hundreds or thousands of images, as if there
were 50 of them. Near 0 and 1, where splits may see no difference at all, an interval is never narrower than the exact
binomial one (Clopper & Pearson 1934) for as many independent images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from genpr.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

_LEVEL = 0.95
# Degrees of freedom, 1 / (2 cv^2), of a standard error that varies by cv = 10 % between data.
_OF_THE_DATA = 50
Pairing = Literal["paired", "unpaired"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def standard_error(replicates: Tensor | NDArray[np.float64]) -> float:
    """Standard error of the metric of whole sets, from its values (B,) for their halves, complementary ones in pairs."""
    if replicates.ndim != 1 or len(replicates) < 2 or len(replicates) % 2:
        raise UsageError(
            f"replicates come in pairs, not in a shape {tuple(replicates.shape)}", code="bad-option"
        )
    halved = (replicates[::2] - replicates[1::2]) / 2
    return math.sqrt(float((halved * halved).mean()))


def lower_part(a: Tensor, b: Tensor) -> Tensor:
    """Replicates (B,) of the smaller of two metrics: those of the one whose interval reaches lower.

    The smaller one of each half would vary less than that of the whole sets, where the two are near each other in halves
    only: intervals of symmetric recall held the truth in 89 % of a simulation (d = 64, shift 3), those of the one that is
    lower on average in 95 %. Where one varies far more, it is that one which makes the smaller one vary.
    """
    ends = [float(part.mean()) - student_quantile(len(part)) * standard_error(part) for part in (a, b)]
    return a if ends[0] <= ends[1] else b


def interval_of(
    value: float,
    replicates: Tensor | NDArray[np.float64],
    *,
    n: int,
    upper: float | None = 1.0,
) -> Interval:
    """A 95 % interval for a metric from 0 to `upper` that is a share of n images, or a mean over them; never of zero width."""
    if n < 1:
        raise UsageError(f"an interval needs at least one image, not {n}", code="bad-option")
    half = student_quantile(len(replicates)) * standard_error(replicates)
    exact = _unseen(value, n) if upper is None else _binomial(value, n, upper)
    low, high = min(value - half, exact.low), max(value + half, exact.high)
    return Interval(max(low, 0.0), high if upper is None else min(high, upper))


def degrees_of_freedom(replicates: int) -> float:
    """How well a standard error from so many replicates is known: see the quantile above."""
    return 1 / (2 / replicates + 1 / _OF_THE_DATA)


def student_quantile(replicates: int) -> float:
    """Half width of a 95 % interval in standard errors that come from so many replicates."""
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    return float(stdtrit(degrees_of_freedom(replicates), (1 + _LEVEL) / 2))


def _binomial(value: float, n: int, upper: float) -> Interval:
    """Clopper and Pearson's interval; a value between two counts counts as it is."""
    from scipy.special import betaincinv

    tail = (1 - _LEVEL) / 2
    hits = min(max(value / upper, 0.0), 1.0) * n
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return Interval(low * upper, high * upper)


def _unseen(value: float, n: int) -> Interval:
    """For a mean without upper bound, that is 1 for usual images.

    A kind of image that none of n was may still have a share of 1 - .025^(1/n), the exact binomial bound. If such images
    are worth nothing, or twice the mean and at least 1, this is what they change.
    """
    share = unseen_share(n)
    return Interval(value - share * value, value + share * max(value, 1.0))


def unseen_share(n: int, *, tail: float = (1 - _LEVEL) / 2) -> float:
    """The largest share of a kind of image that none of n is, but for a probability of `tail`."""
    return -math.expm1(math.log(tail) / n)


@dataclass(frozen=True, slots=True)
class Resampled:
    """A metric with all that a comparison of two scores needs."""

    value: float  # of the whole sets
    replicates: Tensor | NDArray[np.float64]  # (B,) float64, of halves
    n: int  # images that the metric is a share of, or a mean over
    seed: int  # of the halves
    n_real: int  # number of reals
    k: int | None  # neighbors; None where none are counted
    real_identity: str | None  # hash of what the reals are; None if it is not known


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one score is than another."""

    value: float  # the first minus the second
    interval: Interval  # 95 %, of the difference
    pairing: Pairing  # "paired" where both were scored on the same reals and the same halves of them
    verdict: Literal["distinguishable", "not distinguishable"]


def difference(a: Resampled, b: Resampled) -> Difference:
    """Compare two scores of one metric."""
    if a.k != b.k:
        raise UsageError(f"scores with k = {a.k} and k = {b.k} are of different metrics", code="bad-option")
    if are_paired(a, b):
        error, splits = standard_error(a.replicates - b.replicates), len(a.replicates)
        pairing: Pairing = "paired"
    else:
        error = math.hypot(standard_error(a.replicates), standard_error(b.replicates))
        splits, pairing = min(len(a.replicates), len(b.replicates)), "unpaired"
    value = a.value - b.value
    # As in `_unseen`: what neither score has seen may still tell them apart.
    least = unseen_share(min(a.n, b.n)) * max(1.0, abs(a.value), abs(b.value))
    half = max(student_quantile(splits) * error, least)
    interval = Interval(value - half, value + half)
    return Difference(
        value, interval, pairing, "not distinguishable" if 0.0 in interval else "distinguishable"
    )


def are_paired(a: Resampled, b: Resampled) -> bool:
    """Whether replicate b of both is of the same reals."""
    same_halves = (a.seed, a.n_real, len(a.replicates)) == (b.seed, b.n_real, len(b.replicates))
    return same_halves and a.real_identity is not None and a.real_identity == b.real_identity
