"""Metrics of k nearest neighbors, each as one object: value, null, interval rule, required balls and source.

Ball metrics share one search within each set and one between them. Pairwise metrics need a separate search. A null
is the expected value for a perfect generator at these numbers of images. Importing this module does not import torch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from genpr.metrics.metric import (
    BallMetric,
    HalfSampling,
    HalfSizes,
    MetricValue,
    NeighborMetric,
    Null,
    PairwiseMetric,
)
from genpr.metrics.null import balls_hit, calibrated_clipped_coverage, nn_accuracy_null
from genpr.metrics.uncertainty import lower_part
from genpr.neighbors.balls import BallKind, CountRequest

if TYPE_CHECKING:
    from torch import Tensor

    from genpr.neighbors.counts import Memberships, Neighborhood
    from genpr.neighbors.engine import Advance
    from genpr.validation import Ties

_MAX_UNCLIPPED_COVERAGE = 4  # times the number of fakes; only replicates exceed 1

_KYNKAANNIEMI = "Kynkäänniemi et al. 2019, arXiv:1904.06991"
_NAEEM = "Naeem et al. 2020, arXiv:2002.09797"
_SALVY = "Salvy et al. 2026, arXiv:2507.01761"
_KHAYATKHOEI = "Khayatkhoei and AbdAlmageed 2023, arXiv:2306.09618"

NEIGHBOR_METRICS: list[NeighborMetric] = []
"""All neighbor metrics, in display order."""


def ball_metric(
    meaning: str, *, over: Literal["real", "fake", "both"], **fields: object
) -> Callable[[Callable[[Memberships, int], float]], BallMetric]:
    """Register a function of memberships and k as the metric of its name; `fields` are those of `BallMetric`."""

    def register(function: Callable[[Memberships, int], float]) -> BallMetric:
        known = {"name": function.__name__, "value": function, **fields}
        metric = BallMetric(meaning=meaning, over=over, **known)  # type: ignore[arg-type]
        NEIGHBOR_METRICS.append(metric)
        return metric

    return register


def _share(counts: Tensor, at_least: int = 1) -> float:
    return int((counts >= at_least).sum()) / len(counts)


_clipped_ball = partial(BallKind, clipped=True)


def _nearest_ball(_k: int) -> BallKind:
    return BallKind(1)


# Nulls --------------------------------------------------------------------------------------------------------


def _precision_null(counts: Memberships, k: int) -> float | None:
    """Share of reals in the ball of another real: a perfect fake is one more draw, up to an error of 1 / n."""
    degrees = counts.real_in_degrees.get(BallKind(k))
    return None if degrees is None else _share(degrees)


def _recall_null(counts: Memberships, k: int) -> float | None:
    """The same share among as many reals as there are fakes, on average over subsets of the reals."""
    return counts.leave_one_out.get(BallKind(k))


def _real_balls_hit(counts: Memberships, k: int) -> float:
    """Share of real balls that hold a fake."""
    return balls_hit(counts.n_real, counts.n_fake, k)


def _fake_balls_hit(counts: Memberships, k: int) -> float:
    """Share of fake balls that hold a real."""
    return balls_hit(counts.n_fake, counts.n_real, k)


def _smaller_null(*nulls: Null) -> Null:
    def null(counts: Memberships, k: int) -> float | None:
        values = [each(counts, k) for each in nulls]
        return None if None in values else min(each for each in values if each is not None)

    return null


# Counts in halves of both sets --------------------------------------------------------------------------------


def _mean_in_halves(
    balls: Literal["real", "fake"],
    count: Literal["owners", "others", "pairs"],
    *,
    is_calibrated: bool = False,
) -> HalfSampling:
    """Share of `balls` with a row ("owners") or of other rows in balls ("others"); or pairs per row over k.

    If it is calibrated, the share is divided by that of reals of the same half in the ball of another of them.
    """

    def requests(k: int, ties: Ties) -> tuple[CountRequest, ...]:
        requested = CountRequest(balls, BallKind(k), count, ties=ties)
        leave_one_out = CountRequest("real", BallKind(k), "others", rows="own")
        return (requested, leave_one_out) if is_calibrated else (requested,)

    def value(k: int, sizes: HalfSizes, counts: Sequence[Tensor]) -> Tensor:
        over_reals = (balls == "real") == (count == "owners")
        mean = counts[0][0].double() / (sizes.real if over_reals else sizes.fake)
        if is_calibrated:
            mean = mean / (counts[1][0].double() / sizes.real)
        return mean / k if count == "pairs" else mean

    return HalfSampling(requests, value)


def _smaller_in_halves(a: HalfSampling, b: HalfSampling) -> HalfSampling:
    """The share that is lower on average; the minimum of each replicate would be biased."""

    def requests(k: int, ties: Ties) -> tuple[CountRequest, ...]:
        return (*a.requests(k, ties), *b.requests(k, ties))

    def value(k: int, sizes: HalfSizes, counts: Sequence[Tensor]) -> Tensor:
        return lower_part(a.value(k, sizes, counts[:1]), b.value(k, sizes, counts[1:]))

    return HalfSampling(requests, value)


def _clipped_density_counts(k: int, ties: Ties) -> tuple[CountRequest, ...]:
    ball = BallKind(k, clipped=True)
    # With the row itself left out, open balls that ended at it contain it, as closed balls do.
    of_fakes = CountRequest("real", ball, "others", k, ties)
    return of_fakes, replace(of_fakes, ties="closed", rows="own")


def _unclipped_density(_k: int, sizes: HalfSizes, counts: Sequence[Tensor]) -> Tensor:
    of_fakes = counts[0].sum(dim=0).double() / sizes.fake
    of_reals = counts[1].sum(dim=0).double() / sizes.real
    return (of_fakes / of_reals).where(of_reals > 0, 0.0)


def _unclipped_coverage(k: int, sizes: HalfSizes, counts: Sequence[Tensor]) -> Tensor:
    from torch import from_numpy

    raw = (counts[0].sum(dim=0).double() / sizes.real / k).cpu().numpy()
    share = calibrated_clipped_coverage(raw, sizes.real, sizes.fake, k, most=_MAX_UNCLIPPED_COVERAGE)
    return from_numpy(share)


_PRECISION_HALVES, _RECALL_HALVES = _mean_in_halves("real", "others"), _mean_in_halves("fake", "others")
_COVERAGE_HALVES = _mean_in_halves("real", "owners")
_COMPLEMENT_PRECISION_HALVES = _mean_in_halves("fake", "owners")


# Ball metrics -------------------------------------------------------------------------------------------------


@ball_metric(
    "share of fakes close to some real image (fidelity)",
    reference=_KYNKAANNIEMI,
    is_default=True,
    is_per_image=True,
    k=3,
    over="fake",
    real_ball=BallKind,
    null=_precision_null,
    null_source="leave-one-out",
    halves=_PRECISION_HALVES,
)
def precision(counts: Memberships, k: int) -> float:
    """Fraction of fakes that lie in at least one real ball."""
    return _share(counts.real_balls_per_fake[BallKind(k)])


@ball_metric(
    "share of reals close to some fake image (diversity)",
    reference=_KYNKAANNIEMI,
    is_default=True,
    k=3,
    over="real",
    fake_ball=BallKind,
    null=_recall_null,
    null_source="leave-one-out",
    null_ball=BallKind,
    halves=_RECALL_HALVES,
)
def recall(counts: Memberships, k: int) -> float:
    """Fraction of reals that lie in at least one fake ball."""
    return _share(counts.fake_balls_per_real[BallKind(k)])


def _over_null(value: float, null: float | None) -> float:
    return value / null if null else math.nan


_calibrated = partial(
    ball_metric,
    reference="this package; Kynkäänniemi et al. 2019 (precision and recall)",
    is_default=True,
    k=3,
    upper=None,
    real_ball=BallKind,
    null_source="leave-one-out",
)


@_calibrated(
    "precision / that of a perfect generator (fidelity)",
    over="fake",
    calibrates="precision",
    halves=_mean_in_halves("real", "others", is_calibrated=True),
)
def calibrated_precision(counts: Memberships, k: int) -> float:
    """Precision over its null."""
    return _over_null(precision.value(counts, k), _precision_null(counts, k))


@_calibrated(
    "recall / that of a perfect generator (diversity)",
    over="real",
    fake_ball=BallKind,
    null_ball=BallKind,
    calibrates="recall",
    halves=_mean_in_halves("fake", "others", is_calibrated=True),
)
def calibrated_recall(counts: Memberships, k: int) -> float:
    """Recall over its null."""
    return _over_null(recall.value(counts, k), _recall_null(counts, k))


NEIGHBOR_METRICS.sort(key=lambda metric: metric not in (calibrated_precision, calibrated_recall))


@ball_metric(
    "reals around each fake, over k; may pass 1 (fidelity)",
    reference=_NAEEM,
    is_default=True,
    is_per_image=True,
    over="fake",
    upper=None,
    real_ball=BallKind,
    halves=_mean_in_halves("real", "pairs"),
    most_with_interval=2.0,  # at 4.6 and 5.1, with hubs, 89 % and 83 % covered the true value (benchmarks/bench_coverage.py)
)
def density(counts: Memberships, k: int) -> float:
    """Mean number of real balls that contain a fake, in units of k."""
    return int(counts.real_balls_per_fake[BallKind(k)].sum()) / (k * counts.n_fake)


@ball_metric(
    "share of reals with a nearby fake (diversity)",
    reference=_NAEEM,
    is_default=True,
    is_per_image=True,
    over="real",
    real_ball=BallKind,
    null=_real_balls_hit,
    halves=_COVERAGE_HALVES,
)
def coverage(counts: Memberships, k: int) -> float:
    """Fraction of real balls that contain at least one fake."""
    return _share(counts.fakes_per_real_ball[BallKind(k)])


@ball_metric(
    "density without outliers' large balls (fidelity)",
    reference=_SALVY,
    over="fake",
    real_ball=_clipped_ball,
    halves=HalfSampling(_clipped_density_counts, _unclipped_density),
)
def clipped_density(counts: Memberships, k: int) -> float:
    """Density with radii clipped at their median and each fake counted at most once, over that of the reals.

    The reals are evaluated on the balls of the other reals. At most 1; 0 if no real lies in the ball of another.
    """
    ball = BallKind(k, clipped=True)
    of_fakes = int(counts.real_balls_per_fake[ball].clamp(max=k).sum()) * counts.n_real
    of_reals = int(counts.real_in_degrees[ball].clamp(max=k).sum()) * counts.n_fake
    return min(1.0, of_fakes / of_reals) if of_reals else 0.0


@ball_metric(
    "share of good fakes that would give this coverage",
    reference=_SALVY,
    over="real",
    real_ball=BallKind,
    halves=HalfSampling(
        lambda k, ties: (CountRequest("real", BallKind(k), "owners", k, ties),), _unclipped_coverage
    ),
)
def clipped_coverage(counts: Memberships, k: int) -> float:
    """Fraction of good fakes that would give the same mean count in the real balls, each clipped at k."""
    raw = int(counts.fakes_per_real_ball[BallKind(k)].clamp(max=k).sum()) / (k * counts.n_real)
    return float(calibrated_clipped_coverage([raw], counts.n_real, counts.n_fake, k)[0])


@ball_metric(
    "smaller of precision and its complement (fidelity)",
    reference=_KHAYATKHOEI,
    over="fake",
    real_ball=BallKind,
    fake_ball=BallKind,
    null=_smaller_null(_precision_null, _fake_balls_hit),
    null_source="leave-one-out",
    halves=_smaller_in_halves(_PRECISION_HALVES, _COMPLEMENT_PRECISION_HALVES),
)
def symmetric_precision(counts: Memberships, k: int) -> float:
    """The smaller of precision and complement precision."""
    return min(precision.value(counts, k), _share(counts.reals_per_fake_ball[BallKind(k)]))


@ball_metric(
    "smaller of recall and coverage (diversity)",
    reference=_KHAYATKHOEI,
    over="real",
    real_ball=BallKind,
    fake_ball=BallKind,
    null=_smaller_null(_recall_null, _real_balls_hit),
    null_source="leave-one-out",
    null_ball=BallKind,
    halves=_smaller_in_halves(_RECALL_HALVES, _COVERAGE_HALVES),
)
def symmetric_recall(counts: Memberships, k: int) -> float:
    """The smaller of recall and coverage."""
    return min(recall.value(counts, k), coverage.value(counts, k))


@ball_metric(
    "share of fakes with a nearby real (fidelity)",
    reference=_KHAYATKHOEI,
    over="fake",
    fake_ball=BallKind,
    null=_fake_balls_hit,
    halves=_COMPLEMENT_PRECISION_HALVES,
)
def complement_precision(counts: Memberships, k: int) -> float:
    """Fraction of fake balls that contain at least one real."""
    return _share(counts.reals_per_fake_ball[BallKind(k)])


# Witnessed diversity ------------------------------------------------------------------------------------------

_WITNESSES = 5  # fake balls around a real that supports it
_COVERING = 4  # fakes in the ball of a real that cover it


def _witnessed_counts(k: int, ties: Ties) -> tuple[CountRequest, ...]:
    clipped = _clipped_ball(k)
    return (
        CountRequest("fake", clipped, "others", _WITNESSES, ties),
        CountRequest("fake", clipped, "others", _WITNESSES, rows="own"),
        CountRequest("real", BallKind(k), "owners", _COVERING, ties),
    )


def _unclipped_witnessed(k: int, sizes: HalfSizes, counts: Sequence[Tensor]) -> Tensor:
    of_reals, of_fakes, covered = (count[-1].double() for count in counts)
    support = (of_reals / sizes.real) / (of_fakes / sizes.fake)
    return lower_part(support, covered / sizes.real / balls_hit(*sizes, k, at_least=_COVERING))


@ball_metric(
    "experimental: smaller of support and coverage",
    reference="this package",
    over="real",
    k=20,
    k_is_fixed=True,
    real_ball=BallKind,
    fake_ball=_clipped_ball,
    null_source="leave-one-out",
    halves=HalfSampling(_witnessed_counts, _unclipped_witnessed),
)
def witnessed_diversity(counts: Memberships, k: int) -> float:
    """The smaller of support and coverage, each at most 1; NaN if one of them is not defined.

    Support is the fraction of reals in at least 5 clipped balls of the fakes, over that fraction of the fakes. Coverage is the
    fraction of real balls that contain at least 4 fakes, over its expectation for a perfect generator.
    """
    clipped = _clipped_ball(k)
    own = _share(counts.fake_in_degrees[clipped], _WITNESSES)
    support = _over_null(_share(counts.fake_balls_per_real[clipped], _WITNESSES), own)
    covered = _share(counts.fakes_per_real_ball[BallKind(k)], _COVERING)
    coverage = _over_null(covered, balls_hit(counts.n_real, counts.n_fake, k, at_least=_COVERING))
    return math.nan if math.isnan(support + coverage) else min(1.0, support, coverage)


# Realism, rarity, authenticity --------------------------------------------------------------------------------


def _find_realism(
    real: Neighborhood, fake: Neighborhood, _counts: Memberships, k: int, advance: Advance
) -> MetricValue | None:
    """Median realism of the fakes."""
    from genpr.metrics.realism import realism_of

    values = realism_of(real.points, real.sq_radii_of_kind(BallKind(k)), fake.points, advance=advance)
    middle = float(values.quantile(0.5))
    return MetricValue(middle, k) if middle < math.inf else None


def _find_rarity(
    real: Neighborhood, _fake: Neighborhood, counts: Memberships, k: int, _advance: Advance
) -> MetricValue | None:
    """Mean percentile, among all real radii, of the smallest real ball around each fake in at least one ball."""
    from genpr.metrics.realism import rarity as rarity_of
    from genpr.neighbors.distance import square_roots

    assert counts.smallest_real_ball is not None
    radii = map(square_roots, (counts.smallest_real_ball, real.sq_radii_of_kind(BallKind(k))))
    percentile = rarity_of(*radii).percentile
    mean = percentile[percentile.isfinite()].mean()
    return MetricValue(float(mean), k) if mean.isfinite() else None


def _find_authenticity(
    real: Neighborhood, fake: Neighborhood, _counts: Memberships, k: int, advance: Advance
) -> MetricValue:
    """Share of fakes that are farther from their nearest real than that real is from another real."""
    from genpr.metrics.realism import authentic
    from genpr.neighbors.nearest import nearest_between

    index, sq = nearest_between(fake.points, real.points, 1, advance=advance)
    share = authentic(index[:, 0], sq[:, 0], real.sq_radii_of_kind(BallKind(1))).double().mean()
    of_reals = (real.lists.sq[:, 0] > real.lists.leave_one_out_sq_distances()).double().mean()
    return MetricValue(float(share), k, null=float(of_reals), null_source="leave-one-out")


realism = PairwiseMetric(
    name="realism",
    meaning="median over fakes of a real radius over distance",
    reference=_KYNKAANNIEMI,
    k=3,
    upper=None,
    is_per_image=True,
    find=_find_realism,
    pairs=operator.mul,
    ball=BallKind,
)
rarity = PairwiseMetric(
    name="rarity",
    meaning="mean percentile of fakes' smallest real balls",
    reference="Han et al. 2022, arXiv:2206.08549",
    better="at null",
    k=3,
    upper=None,
    is_per_image=True,
    find=_find_rarity,
    ball=BallKind,
    smallest=True,
)
authenticity = PairwiseMetric(
    name="authenticity",
    meaning="share of fakes that copy no real (memorization)",
    reference="Alaa et al. 2022, arXiv:2102.08921",
    better="at null",
    k=1,
    k_is_fixed=True,
    is_per_image=True,
    find=_find_authenticity,
    pairs=operator.mul,
    ball=_nearest_ball,
    keep=2,
)
NEIGHBOR_METRICS += [realism, rarity, authenticity]


# Two-sample test ----------------------------------------------------------------------------------------------


def _nn_accuracy_halves(_k: int, sizes: HalfSizes, counts: Sequence[Tensor]) -> Tensor:
    wrong = counts[0][0] + counts[1][0]
    return 1 - wrong.double() / (sizes.real + sizes.fake)


@ball_metric(
    "share of images nearest to one of their own set",
    reference="Schilling 1986; Xu et al. 2018, arXiv:1806.07755",
    better="at null",
    k=1,
    k_is_fixed=True,
    over="both",
    real_ball=_nearest_ball,
    fake_ball=_nearest_ball,
    null=lambda counts, _k: nn_accuracy_null(counts.n_real, counts.n_fake),
    halves=HalfSampling(
        lambda _k, ties: (
            CountRequest("real", BallKind(1), "owners", ties=ties),
            CountRequest("fake", BallKind(1), "owners", ties=ties),
        ),
        _nn_accuracy_halves,
    ),
)
def nn_accuracy(counts: Memberships, _k: int) -> float:
    """Fraction of all images whose nearest other image is in the same set; ties are decided as for all balls."""
    nearest = BallKind(1)
    tables = (counts.fakes_per_real_ball[nearest], counts.reals_per_fake_ball[nearest])
    return sum(int((table == 0).sum()) for table in tables) / (counts.n_real + counts.n_fake)
