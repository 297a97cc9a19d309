"""Precision-recall curves: how much of each set has to be given up to call the rest alike.

A fake distribution Q has precision a at recall b with respect to P when shares a of Q and b of P are the same
distribution (Sajjadi et al. 2018). The best such pairs are a curve over slopes l in [0, inf]:

    precision(l) = min over classifiers of  l P(called fake) + Q(called real),    recall(l) = precision(l) / l

(Simon et al. 2019). At l = 1 both are 1 minus the total variation distance. A histogram gives the best classifiers
themselves; of samples, Sykes et al. (2024) take those that compare two counts of neighbors, and their thresholds.

At each slope precision is a minimum of finitely many straight lines, known by its knots. They are kept, and because
precision and F-scores are monotone between them and areas have a closed form there, the largest F-score along the curve
and the area under it are exact and not those of a grid.

References:
    Sajjadi et al. 2018, "Assessing Generative Models via Precision and Recall".
    Simon, Webster and Rabin 2019, "Revisiting Precision and Recall Definition for Generative Model Evaluation".
    Sykes, Simon and Rabin 2024, "Unifying and Extending Precision Recall Metrics for Assessing Generative Models".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from genpr.errors import FeatureError, UsageError
from genpr.metrics.real_manifold import choose_engine
from genpr.neighbors.balls import Ties
from genpr.neighbors.counts import cross_counts
from genpr.neighbors.engine import Engine
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import kth_sq_distances, nearest_between, nearest_neighbors
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_k,
    check_same_width,
    check_ties,
    choose_device,
)

_ANGLES = 1001  # of the slopes shown beside the knots, as published
_MOST_PRODUCTS = 2**22
_REAL, _FAKE = 0, 1

Floats = NDArray[np.float64]
Classifier = Literal["ipr", "knn", "coverage"]
Sets = tuple[Tensor, Tensor]
"""Reals and fakes, (n, d) and (m, d)."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A precision-recall curve, from recall alone to precision alone.

    Attributes:
        slopes: (p,) float64, ascending from 0 to inf: what a share of reals is worth in shares of fakes.
        precision: (p,) float64, not decreasing.
        recall: (p,) float64, not increasing.
    """

    slopes: Floats
    precision: Floats
    recall: Floats

    @property
    def max_precision(self) -> float:
        """Precision where recall does not count: without a split, the share of fakes in the real manifold."""
        return float(self.precision[-1])

    @property
    def max_recall(self) -> float:
        """Recall where precision does not count: without a split, the share of reals in the fake manifold."""
        return float(self.recall[0])

    @property
    def f8(self) -> float:
        """The largest F-score in which recall counts 8 times as much: a number for diversity."""
        return self.f_score(8.0)

    @property
    def f1_8(self) -> float:
        """The largest F-score in which precision counts 8 times as much: a number for fidelity."""
        return self.f_score(1 / 8)

    def f_score(self, beta: float = 1.0) -> float:
        """The largest F-score along the curve; recall counts `beta` times as much as precision.

        Raises:
            UsageError: `beta` is not positive ("bad-beta").
        """
        return float(f_scores(self.precision, self.recall, beta).max())

    def area(self) -> float:
        """Area under precision over recall, 1 for equal distributions: exact between the knots.

        There precision is A + B l and recall B + A / l; the integral over recall is A^2 (1/l - 1/l') + A B log(l'/l).
        """
        left, right = self.slopes[1:-2], self.slopes[2:-1]
        at_left, at_right = self.precision[1:-2], self.precision[2:-1]
        b = (at_right - at_left) / (right - left)
        a = at_left - b * left
        inner = a**2 * (1 / left - 1 / right) + a * b * np.log(right / left)
        # Before the first positive slope recall is constant, after the last finite one precision is.
        return float(inner.sum() + self.precision[-2] * self.recall[-2])


def f_scores(precision: ArrayLike, recall: ArrayLike, beta: float = 1.0) -> Floats:
    """F-scores of pairs of values, element by element; 0 where both are 0.

    Raises:
        UsageError: `beta` is not positive ("bad-beta").
    """
    if not 0 < beta < np.inf:
        raise UsageError(f"beta must be positive, not {beta!r}", code="bad-beta")
    p, r = np.broadcast_arrays(np.asarray(precision, np.float64), np.asarray(recall, np.float64))
    below = beta**2 * p + r
    above = (1 + beta**2) * p * r
    scores: Floats = np.divide(above, below, out=np.zeros(p.shape), where=below > 0)
    return scores


def prd_curve(real_histogram: ArrayLike, fake_histogram: ArrayLike) -> Curve:
    """The curve of two histograms over the same bins, exactly (Sajjadi et al. 2018).

    Args:
        real_histogram: (b,) numbers or shares of reals in each bin; they are divided by their sum.
        fake_histogram: (b,) the same for the fakes.

    Raises:
        FeatureError: These are not such histograms ("not-a-histogram").

    Example:
        >>> curve = prd_curve([1, 1], [2, 0])  # one of two modes is dropped
        >>> curve.max_precision, curve.max_recall
        (1.0, 0.5)
    """
    real, fake = _shares(real_histogram, "real_histogram"), _shares(fake_histogram, "fake_histogram")
    if len(real) != len(fake):
        raise FeatureError(
            f"real_histogram has {len(real)} bins but fake_histogram {len(fake)}; they must be the same bins",
            code="not-a-histogram",
        )
    real, fake = real[(real > 0) | (fake > 0)], fake[(real > 0) | (fake > 0)]
    with np.errstate(divide="ignore"):
        order = np.argsort(fake / real)  # the bins that look most real come first
    # Called real: the first bins, from none to all. Sums from either end, so that "nothing" is 0 and not nearly 0.
    lost = np.append(np.cumsum(real[order][::-1])[::-1], 0.0)
    passed = np.append(0.0, np.cumsum(fake[order]))
    return curve_of_errors(np.minimum(lost, 1.0), np.minimum(passed, 1.0))


def _shares(histogram: ArrayLike, name: str) -> Floats:
    values = np.asarray(histogram)
    is_one = values.ndim == 1 and values.dtype.kind in "iuf" and len(values) > 0
    if not is_one or not (np.isfinite(values) & (values >= 0)).all() or values.sum() == 0:
        raise FeatureError(
            f"{name} must be a number or share of images per bin, none negative and not all 0, but came as "
            f"{values.dtype} of shape {values.shape}",
            code="not-a-histogram",
        )
    shares: Floats = values / values.sum(dtype=np.float64)
    return shares


def pr_curve(
    real: Features,
    fake: Features,
    *,
    k: int,
    classifier: Classifier = "ipr",
    split: bool = True,
    seed: int = 0,
    ties: Ties = "closed",
    device: str | torch.device = "auto",
) -> Curve:
    """The precision-recall curve of fake features against real ones, by classifiers that count neighbors.

    The classifiers and their votes on a point:
        "ipr": the real k-NN balls that hold it against the fake ones. Unsplit, it ends in improved precision and
            recall. Around k balls hold a point wherever its set is, dense or thin: it sees supports, hardly weights.
        "knn": the reals against the fakes among its k nearest of both sets; k near the square root of n.
        "coverage": the reals nearer than its k-th fake against the fakes nearer than its k-th real. Unsplit,
            it ends in complement precision and coverage.

    Every membership is decided exactly. The searches are the curve's own. On 2,000 + 2,000 rows "ipr" cost 0.4 times
    what manifold metrics did, 0.8 times without a split; "knn" and "coverage" with k = 40 cost 1.5 times, and almost 5
    times without a split.

    Args:
        real: (n, d) features of real images.
        fake: (m, d) features of generated images by the same extractor.
        k: Neighbors, the point itself not counted.
        classifier: See above.
        split: Let one random half of each set vote on the other, which makes the estimate consistent (Sykes et al.
            2024); balls then come from half as many images. Without, all other points vote on each point.
        seed: Of the halves.
        ties: "closed" counts a point on the sphere as inside, "strict" does not.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.

    Raises:
        FeatureError: The features are malformed, not finite, too few, or differ in width.
        UsageError: k, classifier, seed or ties is impossible.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 400, 2))
        >>> curve = pr_curve(real, abs(fake), k=20, classifier="knn")  # a quarter of the plane
        >>> curve.f1_8 > 0.8, curve.f8 < 0.4
        (True, True)
    """
    k = check_k(k)
    check_ties(ties)
    check_count(seed, "seed", least=0)
    if not isinstance(classifier, str) or classifier not in CLASSIFIERS:
        names = ", ".join(repr(name) for name in CLASSIFIERS)
        raise UsageError(f"classifier must be one of {names}, not {classifier!r}", code="bad-option")
    x, y = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(x, y)
    _check_enough(x, "real", k, split)
    _check_enough(y, "fake", k, split)
    where = choose_device(real, device)
    x, y = x.to(where), y.to(where)
    if split:
        random = np.random.default_rng(seed)
        (x_train, x_query), (y_train, y_query) = random_halves(x, random), random_halves(y, random)
        neighbors = NeighborVotes.of((x_train, y_train), (x_query, y_query), k=k, ties=ties)
    else:
        neighbors = NeighborVotes.of((x, y), k=k, ties=ties)
    return classifier_curve(*CLASSIFIERS[classifier](neighbors, k), leave_one_out=not split)


def _check_enough(features: torch.Tensor, name: str, k: int, split: bool) -> None:
    least = 2 * (k + 1) if split else k + 1
    if len(features) < least:
        why = f"k + 1 = {k + 1} rows in each half" if split else f"k + 1 = {k + 1} rows"
        raise FeatureError(f"{name} needs at least {why}, found {len(features)} rows", code="too-few")


def random_halves(features: Tensor, random: np.random.Generator) -> Sets:
    """Two random halves of the rows, the first not larger, each in the order of the rows."""
    n = len(features)
    order = torch.from_numpy(random.permutation(n)).to(features.device)
    first, second = order[: n // 2].sort().values, order[n // 2 :].sort().values
    return features[first], features[second]


class Votes(NamedTuple):
    """Votes on some points, (p,) int64: for real, and for fake."""

    real: Tensor
    fake: Tensor


@dataclass(frozen=True, slots=True)
class NeighborVotes:
    """Training points and the query points that they vote on; kinds are 0 for real and 1 for fake.

    Attributes:
        training: Reals and fakes.
        queries: Reals and fakes, in the same frame; the training points themselves, or others.
        ties: Whether balls are closed.
        engine: Computes matrix products.
    """

    training: tuple[Placed, Placed]
    queries: tuple[Placed, Placed]
    ties: Ties
    engine: Engine

    @classmethod
    def of(
        cls, training: Sets, queries: Sets | None = None, *, k: int, ties: Ties = "closed"
    ) -> NeighborVotes:
        """Of features (n, d); without `queries` the training points vote on each other, and none on itself."""
        reals = Placed.of(training[_REAL], k)
        placed = reals, reals.beside(training[_FAKE])
        others = placed if queries is None else (reals.beside(queries[_REAL]), reals.beside(queries[_FAKE]))
        return cls(placed, others, ties, choose_engine(placed[_REAL].device))

    def nearest(self, queries: int, training: int, k: int) -> Tensor:
        """Squared distances of each query to its k nearest training points, or all: (p, at most k)."""
        points, others = self.queries[queries], self.training[training]
        if points is others:
            return nearest_neighbors(points, min(k, len(points) - 1), engine=self.engine)[1]
        return nearest_between(points, others, min(k, len(others)), engine=self.engine)[1]

    def count_within(self, queries: int, training: int, sq_radii: Tensor) -> Tensor:
        """How many training points are within the radius of each query (p,), itself not counted: (p,) int64."""
        points, others = self.queries[queries], self.training[training]
        counts = cross_counts(
            points, others, real_sq_radii=sq_radii[None], ties=self.ties, engine=self.engine
        ).fakes_per_real_ball[0]
        return counts - self._itself(sq_radii) if points is others else counts

    def balls_around(self, queries: int, training: int, sq_radii: Tensor) -> Tensor:
        """How many balls of training points, of radii (n,), contain each query, its own not counted: (p,) int64."""
        points, others = self.queries[queries], self.training[training]
        counts = cross_counts(
            others, points, real_sq_radii=sq_radii[None], ties=self.ties, engine=self.engine
        ).real_balls_per_fake[0]
        return counts - self._itself(sq_radii) if points is others else counts

    def _itself(self, sq_radii: Tensor) -> Tensor:
        """Whether each center is in its own ball: not if that is open and of radius 0."""
        return (
            (sq_radii > 0).long() if self.ties == "strict" else torch.ones_like(sq_radii, dtype=torch.int64)
        )


def ball_votes(neighbors: NeighborVotes, k: int) -> tuple[Votes, Votes]:
    """How many k-NN balls of real and of fake training points contain each real and each fake query."""
    of_real, of_fake = (
        kth_sq_distances(side, [k], engine=neighbors.engine)[0] for side in neighbors.training
    )

    def votes(queries: int) -> Votes:
        return Votes(
            neighbors.balls_around(queries, _REAL, of_real), neighbors.balls_around(queries, _FAKE, of_fake)
        )

    return votes(_REAL), votes(_FAKE)


def knn_votes(neighbors: NeighborVotes, k: int) -> tuple[Votes, Votes]:
    """How many real and how many fake points are among the k nearest training points of each real and fake query.

    Training points as far as the k-th are all among them, or none with strict ties.
    """

    def votes(queries: int) -> Votes:
        pooled = torch.cat([neighbors.nearest(queries, training, k) for training in (_REAL, _FAKE)], dim=1)
        sq_radii = pooled.sort(dim=1).values[:, k - 1]
        return Votes(
            neighbors.count_within(queries, _REAL, sq_radii), neighbors.count_within(queries, _FAKE, sq_radii)
        )

    return votes(_REAL), votes(_FAKE)


def coverage_votes(neighbors: NeighborVotes, k: int) -> tuple[Votes, Votes]:
    """How many real training points are within the k-th fake one of each query, and how many fake ones the k-th real."""

    def votes(queries: int) -> Votes:
        to_real, to_fake = (neighbors.nearest(queries, training, k)[:, k - 1] for training in (_REAL, _FAKE))
        return Votes(
            neighbors.count_within(queries, _REAL, to_fake), neighbors.count_within(queries, _FAKE, to_real)
        )

    return votes(_REAL), votes(_FAKE)


CLASSIFIERS: Mapping[Classifier, Callable[[NeighborVotes, int], tuple[Votes, Votes]]] = MappingProxyType(
    {"ipr": ball_votes, "knn": knn_votes, "coverage": coverage_votes}
)
"""Votes on the real and on the fake queries, by the name of the classifier."""


def classifier_curve(of_reals: Votes, of_fakes: Votes, *, leave_one_out: bool) -> Curve:
    """The curve of all classifiers that weigh votes for real against votes for fake (Sykes et al. 2024).

    For a weight g a point is called real when g (its real votes) > (its fake votes) if g < 1, and >= if g >= 1, so that
    what has no votes at all goes to the set that counts less; in the limits when it has any real vote (g = inf) and
    when it has no fake vote (g = 0). Every weight that makes a difference is tried, at every slope, as are the two
    classifiers that call everything the same: none of either set is favored by a grid.

    Args:
        of_reals: Votes on n reals, (n,) integer counts each.
        of_fakes: Votes on m fakes.
        leave_one_out: Whether the points themselves bear the balls, their own left out of their votes. The limits are
            then unions of balls which hold their own centers: that of the real balls loses no real, that of the fake
            balls no fake. The ends of the curve are theirs, as published, even where a finite weight does better:
            shares in the manifold of the other set, improved precision and recall where votes are balls. Otherwise, on
            points held out, the ends are what the votes say; precision reaches 1 where no ball holds some reals,
            because only "everything is real" loses none.

    Raises:
        FeatureError: These are not such counts ("not-votes").
    """
    real, fake = _ratios(of_reals, "reals"), _ratios(of_fakes, "fakes")
    # Between two ratios that occur, no weight makes a difference.
    weights = np.unique(np.concatenate([real.ratios, fake.ratios, [1.0]]))
    weights = weights[np.isfinite(weights)]
    below, upto = weights[weights <= 1], weights[weights >= 1]
    called = [side.below(below) for side in (real, fake)], [side.upto(upto) for side in (real, fake)]
    lost = [1 - called[0][0], 1 - called[1][0], np.array([1.0, 0.0])]
    passed = [called[0][1], called[1][1], np.array([0.0, 1.0])]
    lost.append(np.array([0.0 if leave_one_out else real.without_real_vote, real.with_fake_vote]))
    passed.append(np.array([fake.with_real_vote, 0.0 if leave_one_out else fake.without_fake_vote]))
    ends = (fake.with_real_vote, real.with_fake_vote) if leave_one_out else None
    return curve_of_errors(np.concatenate(lost), np.concatenate(passed), ends=ends)


class _Ratios(NamedTuple):
    """Fake votes over real votes of the points that have any, ascending; how many points; shares of all points."""

    ratios: Floats
    points: int
    without_votes: float
    with_real_vote: float
    without_real_vote: float
    with_fake_vote: float
    without_fake_vote: float

    def below(self, weights: Floats) -> Floats:
        """Share called real for each weight where it takes more than equality: points without votes are not."""
        return np.searchsorted(self.ratios, weights, side="left") / float(self.points)

    def upto(self, weights: Floats) -> Floats:
        """Share called real for each weight where equality is enough: points without votes are, too."""
        return np.searchsorted(self.ratios, weights, side="right") / float(self.points) + self.without_votes


def _ratios(votes: Votes, name: str) -> _Ratios:
    real, fake = (np.asarray(torch.as_tensor(count).cpu()) for count in votes)
    if (
        real.ndim != 1
        or real.shape != fake.shape
        or len(real) == 0
        or real.dtype.kind + fake.dtype.kind != "ii"
    ):
        raise FeatureError(
            f"votes on {name} must be two integer counts per point, but came as {real.dtype} of shape {real.shape} "
            f"and {fake.dtype} of shape {fake.shape}",
            code="not-votes",
        )
    if min(real.min(), fake.min()) < 0:
        raise FeatureError(f"votes on {name} are negative", code="not-votes")
    some = (real > 0) | (fake > 0)
    with np.errstate(divide="ignore"):
        # Rounded, equal ratios stay equal, and different ones of counts below 2^26 different.
        ratios = np.sort(fake[some] / real[some])
    shares = (float(where.mean()) for where in (~some, real > 0, real == 0, fake > 0, fake == 0))
    return _Ratios(ratios, len(real), *shares)


def curve_of_errors(lost: Floats, passed: Floats, *, ends: tuple[float, float] | None = None) -> Curve:
    """The curve of some classifiers, which includes those that call everything real or everything fake.

    Args:
        lost: (c,) share of reals that each calls fake.
        passed: (c,) share of fakes that each calls real.
        ends: Precision at slope inf and recall at slope 0, where these are not what the classifiers achieve there.
    """
    lost, passed = _lower_hull(lost, passed)
    knots = (passed[:-1] - passed[1:]) / (lost[1:] - lost[:-1])
    angles = np.linspace(0, np.pi / 2, _ANGLES + 2)[1:-1]
    slopes = np.unique(np.concatenate([np.tan(angles), knots[knots > 0]]))
    precision = np.empty(len(slopes))
    step = max(1, _MOST_PRODUCTS // len(lost))
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
