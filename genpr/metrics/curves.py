"""Precision-recall curves: the shares of two distributions that match each other.

A fake distribution Q has precision a at recall b with respect to P when shares a of Q and b of P are the same
distribution (Sajjadi et al. 2018, "Assessing Generative Models via Precision and Recall"). The best such pairs are a
curve over slopes l in [0, inf]:

    precision(l) = min over classifiers of  l P(called fake) + Q(called real),    recall(l) = precision(l) / l

(Simon, Webster & Rabin 2019, "Revisiting Precision and Recall Definition for Generative Model Evaluation"). Sykes, Simon
& Rabin (2024, "Unifying and Extending Precision Recall Metrics for Assessing Generative Models") take the classifiers
that compare two counts of neighbors. The knots of the curve are kept, so that the largest F-score along it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.real_manifold import Memberships, RealManifold, checked_pair
from genpr.neighbors.balls import Ball, Ties
from genpr.validation import Features, check_k, choose_device, entry_point

_ANGLES = 1001  # of the slopes in addition to the knots, as published
_MAX_PRODUCTS = 2**22

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A precision-recall curve, from recall alone to precision alone."""

    slopes: (
        Floats  # (p,) float64, ascending from 0 to inf: weight of a share of reals relative to one of fakes
    )
    precision: Floats  # (p,) float64, not decreasing
    recall: Floats  # (p,) float64, not increasing

    @property
    def max_precision(self) -> float:
        """Precision where recall has no weight: without a split, the share of fakes in the real manifold."""
        return float(self.precision[-1])

    @property
    def max_recall(self) -> float:
        """Recall where precision has no weight: without a split, the share of reals in the fake manifold."""
        return float(self.recall[0])

    def f_score(self, beta: float = 1.0) -> float:
        """The largest F-score along the curve; recall counts `beta` times as much as precision."""
        return float(f_scores(self.precision, self.recall, beta).max())


def f_scores(precision: ArrayLike, recall: ArrayLike, beta: float = 1.0) -> Floats:
    """F-scores of pairs of values, element by element; 0 where both are 0."""
    if not 0 < beta < np.inf:
        raise UsageError(f"beta must be positive, not {beta!r}", code="bad-beta")
    p, r = np.broadcast_arrays(np.asarray(precision, np.float64), np.asarray(recall, np.float64))
    below = beta**2 * p + r
    above = (1 + beta**2) * p * r
    scores: Floats = np.divide(above, below, out=np.zeros(p.shape), where=below > 0)
    return scores


@entry_point
def pr_curve(
    real: Features,
    fake: Features,
    *,
    k: int = 3,
    ties: Ties = "closed",
    device: str | torch.device = "auto",
) -> Curve:
    """The precision-recall curve of fake features against real ones, by classifiers that count k-NN balls.

    The classifiers compare the number of real balls that contain a point, its own left out, with that of fake balls, at every
    threshold that matters. The ends of the curve are improved precision and recall. About k balls contain a point in dense
    and in sparse regions, so the curve measures supports and hardly weights. Its best F-scores are `f8` and `f1_8`.

    Args:
        real: (n, d) features of real images, n > k.
        fake: (m, d) features of generated images by the same extractor, m > k.
        k: Neighbors that set a ball's radius; the point itself is not counted.
        ties: "closed" counts a point on the sphere as inside, "strict" does not.
        device: "auto" is the GPU that holds the input, else the best device available.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k or ties is impossible.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 400, 2))
        >>> curve = pr_curve(real, abs(fake), k=5)  # a quarter of the plane
        >>> curve.f_score(1 / 8) > 0.8, curve.f_score(8) < 0.5
        (True, True)
    """
    ball = Ball(check_k(k))
    checked_real, checked_fake = checked_pair(real, fake, k=k)
    side = RealManifold.fit(checked_real, balls=[ball], ties=ties, device=choose_device(real, device))
    return ball_curve(side.memberships(checked_fake, real_balls=[ball], fake_balls=[ball]), k)


def ball_curve(counts: Memberships, k: int) -> Curve:
    """The curve of counts of k-NN balls around reals and around fakes, which `counts` must contain."""
    ball = Ball(k)
    of_reals = Votes(counts.real_in_degrees[ball], counts.fake_balls_per_real[ball])
    of_fakes = Votes(counts.real_balls_per_fake[ball], counts.fake_in_degrees[ball])
    return classifier_curve(of_reals, of_fakes)


class Votes(NamedTuple):
    """Votes on some points, (p,) int64: for real, and for fake."""

    real: Tensor
    fake: Tensor


def classifier_curve(of_reals: Votes, of_fakes: Votes) -> Curve:
    """The curve of all classifiers that weigh votes for real against votes for fake (Sykes et al. 2024).

    For a weight g a point is called real when g (its real votes) > (its fake votes) if g < 1, and >= if g >= 1; in the
    limits when it has any real vote (g = inf) and when it has no fake vote (g = 0). Every weight that matters is
    tried, and both constant classifiers. The limits are unions of balls which hold their own centers, so the ends of the
    curve are improved precision and recall, as published, even where a finite weight does better.
    """
    real, fake = _ratios(of_reals), _ratios(of_fakes)
    # All weights between two adjacent ratios are equivalent.
    weights = np.unique(np.concatenate([real.ratios, fake.ratios, [1.0]]))
    weights = weights[np.isfinite(weights)]
    below, upto = weights[weights <= 1], weights[weights >= 1]
    called = [side.below(below) for side in (real, fake)], [side.upto(upto) for side in (real, fake)]
    lost = [1 - called[0][0], 1 - called[1][0], np.array([1.0, 0.0])]
    passed = [called[0][1], called[1][1], np.array([0.0, 1.0])]
    lost.append(np.array([0.0, real.with_fake_vote]))
    passed.append(np.array([fake.with_real_vote, 0.0]))
    ends = (fake.with_real_vote, real.with_fake_vote)
    return curve_of_errors(np.concatenate(lost), np.concatenate(passed), ends=ends)


class _Ratios(NamedTuple):
    """Fake votes over real votes of the points that have any, ascending; how many points; shares of all points."""

    ratios: Floats
    points: int
    without_votes: float
    with_real_vote: float
    with_fake_vote: float

    def below(self, weights: Floats) -> Floats:
        """Share called real for each weight where it takes more than equality: points without votes are not."""
        return np.searchsorted(self.ratios, weights, side="left") / float(self.points)

    def upto(self, weights: Floats) -> Floats:
        """Share called real for each weight where equality is enough: points without votes are, too."""
        return np.searchsorted(self.ratios, weights, side="right") / float(self.points) + self.without_votes


def _ratios(votes: Votes) -> _Ratios:
    real, fake = (count.cpu().numpy() for count in votes)
    some = (real > 0) | (fake > 0)
    with np.errstate(divide="ignore"):
        # Rounding keeps equal ratios equal and, for counts below 2^26, different ones different.
        ratios = np.sort(fake[some] / real[some])
    shares = (float(where.mean()) for where in (~some, real > 0, fake > 0))
    return _Ratios(ratios, len(real), *shares)


def curve_of_errors(lost: Floats, passed: Floats, *, ends: tuple[float, float] | None = None) -> Curve:
    """The curve of some classifiers, which includes those that call everything real or everything fake."""
    lost, passed = _lower_hull(lost, passed)
    knots = (passed[:-1] - passed[1:]) / (lost[1:] - lost[:-1])
    angles = np.linspace(0, np.pi / 2, _ANGLES + 2)[1:-1]
    slopes = np.unique(np.concatenate([np.tan(angles), knots[knots > 0]]))
    precision = np.empty(len(slopes))
    step = max(1, _MAX_PRODUCTS // len(lost))
    for start in range(0, len(slopes), step):
        chunk = slice(start, start + step)
        precision[chunk] = (slopes[chunk, None] * lost + passed).min(axis=1)
    last, first = ends or (passed[0], lost[-1])
    columns = (
        np.concatenate([[0.0], slopes, [np.inf]]),
        np.concatenate([[0.0], precision, [last]]),
        np.concatenate([[first], precision / slopes, [0.0]]),
    )
    for column in columns:
        column.flags.writeable = False
    return Curve(*columns)


def _lower_hull(lost: Floats, passed: Floats) -> tuple[Floats, Floats]:
    """The classifiers that are best at some slope, by ascending `lost` and descending `passed`."""
    hull: list[tuple[float, float]] = []
    order = np.lexsort((passed, lost))
    for point in zip(lost[order].tolist(), passed[order].tolist(), strict=True):
        if hull and point[1] >= hull[-1][1]:
            continue
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    points = np.array(hull)
    return points[:, 0], points[:, 1]


def _is_above(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether `middle` is on or above the line between its neighbors."""
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])
