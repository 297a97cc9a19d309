"""Standard errors and intervals of metrics of distributions, from the influence of every image.

A metric of two distributions changes by phi(x) / n to first order if the weight of a row x among n rows grows. Its variance is
the mean of phi^2 over n, summed over both sets (the infinitesimal jackknife: Efron 1982, "The Jackknife, the Bootstrap and
Other Resampling Plans"; Hampel 1974, "The Influence Curve and Its Role in Robust Estimation").

**Second order.** Where both distributions are nearly equal, phi nearly vanishes and terms of pairs of images dominate.
With the variance V1 of the first order and V2 of the second, the variance of the metric is V1 + V2, but the estimated phi
contain the noise of the second order, and the mean of their squares has the expectation V1 + 2 V2. So V2 is estimated and
subtracted, and the variance is never below it (Efron and Stein 1981, "The Jackknife Estimate of Variance").

**Score intervals.** A squared distance varies more the larger it is: an estimate that is too large by chance has an error that is too
large, so value +- error contains nearly every true value near equality, and too few at somewhat larger distances. As in the interval of
a proportion (Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference"), the variance is therefore taken at
each candidate T for the expectation of the metric: V(T) = max(V2, V + slope (T - value)), where V is the estimate of V1 + V2. The
interval is all T with (value - T)^2 <= q^2 V(T).

For sum_i l_i (z_i + m_i)^2 with normal z, the distance is D = sum_i l_i m_i^2, and V1 = 4 sum_i l_i^2 m_i^2 and V2 = 2 sum_i l_i^2. If
the distance grows in its own direction, the slope is V1 / D, which is at most 4 max l_i <= sqrt(8 V2). Near equality the estimate of this
quotient is noise. The mean square of the influences over the value with the pairs of a row with itself is stable there: the
expectations of both are 4 sum_i l_i^2 (m_i^2 + 1) and sum_i l_i (m_i^2 + 1). The slope is the mean of both quotients with the weights
D^2 and V2, or the second one alone where no estimate of D is known (MIND).

**Replicates.** Comparisons of two scores take replicates of halves. Those of a metric of distributions are linear: the value
plus the sum of 2 phi / n over the half, on the halves that metrics of neighbors use. Half of the difference of complementary
halves has n / (n - 1) times the variance of the first order (even n); it is scaled to the standard error. Models that were
scored on the same reals have replicates that move together as far as the reals have the same influence on both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from genpr.metrics.metric import MetricValue
from genpr.metrics.uncertainty import student_quantile
from genpr.neighbors.halves import FAKE_STREAM, REAL_STREAM, REPLICATES, Halves

MIN_EFFECTIVE = 12
"""Least `Influence.effective_number` for an interval. In benchmarks/bench_coverage.py it is 1 to 8 for Student's t with 4 degrees
of freedom, where 53 % of the intervals of MIND covered the true value, and 480 to 1,380 for Gaussians and clusters. Small sets without
heavy tails (60 to 100 images) have 16 to 40, and 12 to 25 if the distributions are equal, so that some have no interval. The
limit was chosen from these figures and not validated on others."""

_ROUNDING = 1e-12
"""A standard error below this part of the value is rounding."""


class SquaredDistance(NamedTuple):
    """Estimates of a squared distance between two distributions, which its interval needs."""

    total: float  # with the pairs of a row with itself, like a sum of squares
    unbiased: float | None  # None if its bias is not known


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """How much each image moves a metric."""

    real: Tensor | None  # (n,) float64, of mean 0; None where no reals vary
    fake: Tensor  # (m,) float64, of mean 0
    second_order: float = 0.0  # V2, the variance that pairs of images cause
    bias: float | None = None  # expectation less the value for infinitely many images; None if it is unknown
    squared: SquaredDistance | None = None  # None if the metric is not a squared distance

    @property
    def jackknife_variance(self) -> float:
        """The mean square of the influence over the number of images, summed over both sets: V1 + 2 V2."""
        return sum(float(phi.square().sum()) / len(phi) ** 2 for phi, _ in self._sides())

    @property
    def effective_number(self) -> float:
        """Images that carry the variance of the first order: (sum w)^2 / sum w^2 of w = phi^2 / n^2 over both sets."""
        weights = torch.cat([(phi / len(phi)).square().cpu() for phi, _ in self._sides()])
        if not weights.any():
            return math.inf
        weights /= weights.max()  # squares of weights may overflow
        return float(weights.sum()) ** 2 / float(weights.square().sum())

    @property
    def standard_error(self) -> float:
        """Root of V1 + V2."""
        return math.sqrt(max(self.jackknife_variance - self.second_order, self.second_order))

    def interval(self, value: float) -> tuple[float, float]:
        """The 95 % interval around a value of the metric."""
        quantile = student_quantile(REPLICATES)
        if self.squared is None:
            half = quantile * self.standard_error
            return value - half, value + half
        second = max(self.second_order, 0.0)
        least, shift = quantile * math.sqrt(second), quantile**2 * self._slope(self.squared, second) / 2
        ends = [value - least, value + least]
        square = shift**2 + quantile**2 * (self.jackknife_variance - second)
        if square > 0:  # the roots of (value - T)^2 = quantile^2 (V + slope (T - value))
            ends += [value + shift - math.sqrt(square), value + shift + math.sqrt(square)]
        return min(ends), max(ends)

    def _slope(self, squared: SquaredDistance, second: float) -> float:
        """How much the variance grows with the true value: near equality from the total, far from it from V1."""
        if not (squared.total > 0 and second > 0):
            return 0.0
        slope = self.jackknife_variance / squared.total
        if squared.unbiased is not None:
            first = self.jackknife_variance - 2 * second
            slope = (squared.unbiased * first + second * slope) / (squared.unbiased**2 + second)
        return min(max(slope, 0.0), math.sqrt(8 * second))

    def of_groups(self, real: Tensor | None, fake: Tensor | None) -> Influence:
        """The influence of groups of images in place of single ones; None for a set of independent images.

        `real` (n,) and `fake` (m,) number the groups. The group g of G moves the metric like one of G rows with
        phi_g = G / n * sum of its phi. Near equality, where the second order dominates, V1 + 2 V2 grows with the square of the
        number of images in a group if these are alike, half of it by sums of phi, and half because the estimated phi are the noise
        of as few groups. The bias of dependent images is unknown.
        """
        if real is None and fake is None:
            return self
        sums = [
            phi if phi is None or groups is None else _sums_of_groups(phi, groups)
            for phi, groups in ((self.real, real), (self.fake, fake))
        ]
        assert sums[1] is not None
        squared = None if self.squared is None else self.squared._replace(unbiased=None)
        grouped = replace(self, real=sums[0], fake=sums[1], bias=None, squared=squared)
        variance = self.jackknife_variance
        effect = max(1.0, grouped.jackknife_variance / variance) if variance > 0 else 1.0
        return replace(grouped, second_order=self.second_order * effect**2)

    def replicates(self, value: float, *, seed: int) -> Tensor:
        """The metric (REPLICATES,) of halves, linearized and scaled to the standard error."""
        error, plain = self.standard_error, math.sqrt(self.jackknife_variance)
        if not plain > 0:  # as of identical sets: no image has an influence, so any signs will do
            signs = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
            return value + error * signs.repeat(REPLICATES // 4)
        moves = torch.zeros(REPLICATES, dtype=torch.float64)
        for phi, stream in self._sides():
            halves = Halves.drawn(len(phi), seed=seed, stream=stream, device=phi.device)
            # Row by row: the last bits of a matrix product would depend on the number of threads.
            moves += (halves.members() * phi).sum(dim=1).cpu() * (2 / len(phi))
        return value + error / plain * moves

    def _sides(self) -> Iterator[tuple[Tensor, int]]:
        if self.real is not None:
            yield self.real, REAL_STREAM
        yield self.fake, FAKE_STREAM


def _sums_of_groups(phi: Tensor, groups: Tensor) -> Tensor:
    count = int(groups.max()) + 1
    sums = torch.zeros(count, dtype=torch.float64)
    return sums.index_add_(0, groups.cpu(), phi.cpu()) * (count / len(phi))


def with_interval(
    metric: MetricValue, influence: Influence | None, *, seed: int, lower: float | None = None
) -> MetricValue:
    """A value with its 95 % interval, cut at the `lower` bound of the metric, and its replicates.

    Unchanged where no influence is known, where no image has any (an interval of zero width is meaningless), and where fewer than
    `MIN_EFFECTIVE` images carry the variance: with heavy tails, the sample then lacks values that other draws contain.
    """
    if influence is None or not _ROUNDING * abs(metric.value) < influence.standard_error < math.inf:
        return metric
    if influence.effective_number < MIN_EFFECTIVE:
        return replace(metric, bias=influence.bias)
    replicates = influence.replicates(metric.value, seed=seed)
    low, high = influence.interval(metric.value)
    return replace(
        metric,
        interval=(low if lower is None else max(low, lower), high),
        replicates=tuple(replicates.tolist()),
        bias=influence.bias,
    )
