"""The metrics that follow from ball memberships: which balls each needs, its value, and what a perfect generator scores.

Every value is an integer count followed by one or two divisions. They share one search within each set and one between
them.

References:
    Kynkäänniemi et al. 2019, "Improved Precision and Recall Metric for Assessing Generative Models" (precision, recall).
    Naeem et al. 2020, "Reliable Fidelity and Diversity Metrics for Generative Models" (density, coverage).
    Khayatkhoei & AbdAlmageed 2023, "Emergent Asymmetry of Precision and Recall for Measuring Fidelity and Diversity of
        Generative Models in High Dimensions" (complement and symmetric precision and recall).
    Cheema & Urner 2023, "Precision Recall Cover: A Method For Assessing Generative Models" (covers).
    Salvy, Talbot & Thirion 2026, "Enhanced Generative Model Evaluation with Clipped Density and Coverage".
    Schilling 1986, "Multivariate Two-Sample Tests Based on Nearest Neighbors" (accuracy of the nearest neighbour).
    Sykes, Simon & Rabin 2024, "Unifying and Extending Precision Recall Metrics for Assessing Generative Models" (curves).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from genpr.errors import UsageError, some
from genpr.metrics.features import check_k
from genpr.metrics.frontier import Curve
from genpr.metrics.manifold.curves import classifier_curve
from genpr.metrics.manifold.membership import Memberships
from genpr.metrics.manifold.null import balls_hit, calibrated_clipped_coverage, cover_null, nn_accuracy_null
from genpr.metrics.manifold.null_geometry import share_reached
from genpr.metrics.manifold.votes import Votes
from genpr.neighbours.balls import Ball

COVER_RATIO = 3
"""Of the k' of a cover to its k, as Cheema & Urner 2023 use it."""


@dataclass(frozen=True, slots=True)
class CountedMetric:
    """One metric of memberships.

    Attributes:
        value: Its value for a k.
        null: What a perfect generator scores, by the same memberships; None where they do not tell.
        source: Where the null comes from: "closed form" or "leave-one-out".
        over: Images that it is a share of, or a mean over.
        real_balls: The balls around reals that it looks at, for a k.
        fake_balls: Those around fakes.
    """

    value: Callable[[Memberships, int], float]
    null: Callable[[Memberships, int], float | None]
    source: str
    over: Literal["real", "fake", "both"]
    real_balls: Callable[[int], tuple[Ball, ...]]
    fake_balls: Callable[[int], tuple[Ball, ...]]


def needed_balls(ks: Mapping[str, int]) -> tuple[list[Ball], list[Ball]]:
    """The balls around reals and those around fakes that the metrics in `ks` look at, each once, ascending.

    Raises:
        UsageError: A metric is unknown ("unknown-metric") or a k impossible ("bad-k").
    """
    unknown = sorted(set(ks) - set(COUNTED))
    if unknown:
        known = ", ".join(COUNTED)
        raise UsageError(f"unknown metrics: {some(unknown)}; known: {known}", code="unknown-metric")
    checked = {name: check_k(k) for name, k in ks.items()}
    real = {ball for name, k in checked.items() for ball in COUNTED[name].real_balls(k)}
    fake = {ball for name, k in checked.items() for ball in COUNTED[name].fake_balls(k)}
    return sorted(real), sorted(fake)


def value_of(name: str, memberships: Memberships, k: int) -> float:
    """The metric `name`."""
    return COUNTED[name].value(memberships, k)


def precision(found: Memberships, k: int) -> float:
    """Share of fakes that lie in at least one real ball."""
    return _share(found.real_balls_per_fake[Ball(k)])


def recall(found: Memberships, k: int) -> float:
    """Share of reals that lie in at least one fake ball."""
    return _share(found.fake_balls_per_real[Ball(k)])


def density(found: Memberships, k: int) -> float:
    """Real balls around a fake, on average, in units of k."""
    return _sum(found.real_balls_per_fake[Ball(k)]) / (k * found.n_fake)


def coverage(found: Memberships, k: int) -> float:
    """Share of real balls that contain at least one fake."""
    return _share(found.fakes_per_real_ball[Ball(k)])


def complement_precision(found: Memberships, k: int) -> float:
    """Share of fake balls that contain at least one real."""
    return _share(found.reals_per_fake_ball[Ball(k)])


def precision_cover(found: Memberships, k: int) -> float:
    """Share of fakes whose ball of `COVER_RATIO` k neighbours contains at least k reals."""
    return _share(found.reals_per_fake_ball[Ball(COVER_RATIO * k)], k)


def recall_cover(found: Memberships, k: int) -> float:
    """Share of reals whose ball of `COVER_RATIO` k neighbours contains at least k fakes."""
    return _share(found.fakes_per_real_ball[Ball(COVER_RATIO * k)], k)


def clipped_density(found: Memberships, k: int) -> float:
    """Density with no ball larger than the median one and no fake counted more than once, over that of the reals.

    The reals are judged by the balls of the others. At most 1; 0 where not even the reals lie in each other's balls.
    """
    ball = Ball(k, clipped=True)
    of_fakes = _sum(found.real_balls_per_fake[ball].clamp(max=k)) * found.n_real
    of_reals = _sum(found.real_in_degrees[ball].clamp(max=k)) * found.n_fake
    return min(1.0, of_fakes / of_reals) if of_reals else 0.0


def clipped_coverage(found: Memberships, k: int) -> float:
    """Share of good fakes that would fill the real balls, each to at most k, as these fakes do."""
    raw = _sum(found.fakes_per_real_ball[Ball(k)].clamp(max=k)) / (k * found.n_real)
    return calibrated_clipped_coverage(raw, found.n_real, found.n_fake, k)


def nn_accuracy(found: Memberships, _k: int) -> float:
    """Share of all images whose nearest other image is of their own set; a tie goes as with all balls."""
    own = Ball(1)
    right = [
        len(table[own]) - _sum(table[own] > 0)
        for table in (found.fakes_per_real_ball, found.reals_per_fake_ball)
    ]
    return sum(right) / (found.n_real + found.n_fake)


def ball_curve(found: Memberships, k: int) -> Curve:
    """The precision-recall curve of all classifiers that weigh the real balls around an image against the fake ones."""
    ball = Ball(k)
    of_reals = Votes(found.real_in_degrees[ball], found.fake_balls_per_real[ball])
    of_fakes = Votes(found.real_balls_per_fake[ball], found.fake_in_degrees[ball])
    return classifier_curve(of_reals, of_fakes, leave_one_out=True)


def _share(counts: Tensor, at_least: int = 1) -> float:
    return _sum(counts >= at_least) / len(counts)


def _sum(counts: Tensor) -> int:
    return int(counts.sum(dtype=torch.int64))


def _real_k(k: int) -> tuple[Ball, ...]:
    return (Ball(k),)


def _none(_k: int) -> tuple[Ball, ...]:
    return ()


def _wide(k: int) -> tuple[Ball, ...]:
    return (Ball(COVER_RATIO * k),)


def _clipped(k: int) -> tuple[Ball, ...]:
    return (Ball(k, clipped=True),)


def _nearest(_k: int) -> tuple[Ball, ...]:
    return (Ball(1),)


def _precision_null(found: Memberships, k: int) -> float | None:
    """Share of reals that others reach: a perfect fake is one more draw beside them, up to 1 / n."""
    degrees = found.real_in_degrees.get(Ball(k))
    return None if degrees is None else share_reached(degrees.cpu().numpy())


def _least(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else min(first, second)


def _one(_found: Memberships, _k: int) -> float:
    return 1.0


def _coverage_null(found: Memberships, k: int) -> float:
    return balls_hit(found.n_real, found.n_fake, k)


def _complement_null(found: Memberships, k: int) -> float:
    return balls_hit(found.n_fake, found.n_real, k)


def _unknown(_found: Memberships, _k: int) -> None:
    """No null is known but that of two halves of the reals."""


def _of_a_part(_found: Memberships, _k: int) -> None:
    """It takes balls among as many reals as there are fakes, which `NeighbourMetrics` finds."""


_COVERAGE = CountedMetric(coverage, _coverage_null, "closed form", "real", _real_k, _none)

COUNTED: Mapping[str, CountedMetric] = MappingProxyType(
    {
        "precision": CountedMetric(precision, _precision_null, "leave-one-out", "fake", _real_k, _none),
        "recall": CountedMetric(recall, _of_a_part, "leave-one-out", "real", _none, _real_k),
        "density": CountedMetric(density, _one, "closed form", "fake", _real_k, _none),
        "coverage": _COVERAGE,
        "clipped_density": CountedMetric(clipped_density, _one, "closed form", "fake", _clipped, _none),
        "clipped_coverage": CountedMetric(clipped_coverage, _one, "closed form", "real", _real_k, _none),
        "symmetric_precision": CountedMetric(
            lambda found, k: min(precision(found, k), complement_precision(found, k)),
            lambda found, k: _least(_precision_null(found, k), _complement_null(found, k)),
            "leave-one-out",
            "fake",
            _real_k,
            _real_k,
        ),
        "symmetric_recall": CountedMetric(
            lambda found, k: min(recall(found, k), coverage(found, k)),
            _of_a_part,
            "leave-one-out",
            "real",
            _real_k,
            _real_k,
        ),
        "complement_precision": CountedMetric(
            complement_precision, _complement_null, "closed form", "fake", _none, _real_k
        ),
        "complement_recall": _COVERAGE,
        "precision_cover": CountedMetric(
            precision_cover,
            lambda found, k: cover_null(found.n_fake, found.n_real, k, COVER_RATIO * k),
            "closed form",
            "fake",
            _none,
            _wide,
        ),
        "recall_cover": CountedMetric(
            recall_cover,
            lambda found, k: cover_null(found.n_real, found.n_fake, k, COVER_RATIO * k),
            "closed form",
            "real",
            _wide,
            _none,
        ),
        "nn_accuracy": CountedMetric(
            nn_accuracy,
            lambda found, _k: nn_accuracy_null(found.n_real, found.n_fake),
            "closed form",
            "both",
            _nearest,
            _nearest,
        ),
        "f8": CountedMetric(
            lambda found, k: ball_curve(found, k).f8, _unknown, "real halves", "real", _real_k, _real_k
        ),
        "f1_8": CountedMetric(
            lambda found, k: ball_curve(found, k).f1_8, _unknown, "real halves", "fake", _real_k, _real_k
        ),
    }
)
"""By name, in display order."""
