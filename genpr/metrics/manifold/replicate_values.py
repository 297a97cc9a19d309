"""Metrics of random halves of both sets: what their spread says about the whole sets is in `uncertainty`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.features import check_count, check_k
from genpr.metrics.manifold.counted import COVER_RATIO
from genpr.metrics.manifold.null import calibrated_clipped_coverage
from genpr.metrics.uncertainty import lower_part
from genpr.neighbours.balls import Ball
from genpr.neighbours.cross import Ties
from genpr.neighbours.engine import Engine
from genpr.neighbours.frame import Placed
from genpr.neighbours.halves import Halves
from genpr.neighbours.lists import NeighbourLists
from genpr.neighbours.replicate_sides import Asked, ResampledSet
from genpr.neighbours.replicates import ReplicateCounter

REPLICATES = 100
_REAL_STREAM, _FAKE_STREAM = 0, 1
_MOST = 4  # clipped coverage that is not cut at 1: at most so many times the fakes there are


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Rows of a half of the reals and of a half of the fakes."""

    real: int
    fake: int


@dataclass(frozen=True, slots=True)
class _Metric:
    """How a metric follows from counts.

    Attributes:
        asked: What to count, for a k and a rule for ties.
        value: The metric from these counts, each (most, B) int64: (B,) float64.
    """

    asked: Callable[[int, Ties], tuple[Asked, ...]]
    value: Callable[[int, _Sizes, Sequence[Tensor]], Tensor]


class Replicates:
    """Metrics of random halves of the reals against random halves of the fakes, counted as pairs are found.

    Halves are drawn without replacement and come in complementary pairs: replicates 2 s and 2 s + 1 share no image.
    Those of the reals depend on the seed and n alone, those of the fakes on the seed and m: two sets of fakes scored on
    the same reals meet the same halves of these, and if both are of one size, fakes of the same place in their sets
    fall into the same halves. Where such fakes share a latent, the difference of the two scores gains from it; where
    they are unrelated, it does no harm, since what they then have in common is zero on average.

    Args:
        real: n reals and their neighbour lists, best as long as `others_for` says.
        fake: m fakes, placed in the frame of the reals, and theirs.
        ks: k by metric, any of `RESAMPLED`; ignored for "nn_accuracy".
        ties: Whether a point on a sphere is inside.
        seed: From 0.
        replicates: B, even.
        engine: What proposes pairs; None chooses by device.

    Attributes:
        counter: To be shown the pairs between the two sets.

    Raises:
        UsageError: A metric is unknown ("unknown-metric"), a k impossible ("bad-k") or too large for a half of either
            set ("too-few-for-halves"), or replicates or seed impossible ("bad-option").
    """

    def __init__(
        self,
        real: tuple[Placed, NeighbourLists],
        fake: tuple[Placed, NeighbourLists],
        ks: Mapping[str, int],
        *,
        ties: Ties = "closed",
        seed: int = 0,
        replicates: int = REPLICATES,
        engine: Engine | None = None,
    ) -> None:
        self._metrics = {name: (_metric(name), check_k(k)) for name, k in ks.items()}
        check_count(replicates, "replicates", least=2)
        check_count(seed, "seed", least=0)
        if replicates % 2:
            raise UsageError(f"replicates come in pairs: an even number, not {replicates}", code="bad-option")
        self._asked = {name: metric.asked(k, ties) for name, (metric, k) in self._metrics.items()}
        everything = list(dict.fromkeys(each for some in self._asked.values() for each in some))
        halved_real = _halved(*real, seed, _REAL_STREAM, replicates)
        halved_fake = _halved(*fake, seed, _FAKE_STREAM, replicates)
        self._sizes = _Sizes(halved_real.halves.size, halved_fake.halves.size)
        _check_sizes(everything, self._sizes)
        self.counter = ReplicateCounter(halved_real, halved_fake, everything, engine=engine)

    def values(self) -> dict[str, Tensor]:
        """By metric, (B,) float64. For the minimum of two metrics, the one that is lower on average over all halves."""
        counts = self.counter.counts()
        return {
            name: metric.value(k, self._sizes, [counts[each] for each in self._asked[name]])
            for name, (metric, k) in self._metrics.items()
        }


def _halved(points: Placed, lists: NeighbourLists, seed: int, stream: int, count: int) -> ResampledSet:
    halves = Halves.drawn(len(points), seed=seed, stream=stream, count=count, device=points.device)
    return ResampledSet(points, lists, halves)


def _metric(name: str) -> _Metric:
    if name not in RESAMPLED:
        raise UsageError(f"no interval for {name!r}; known: {', '.join(RESAMPLED)}", code="unknown-metric")
    return RESAMPLED[name]


def _check_sizes(asked: Sequence[Asked], sizes: _Sizes) -> None:
    for each in asked:
        size = sizes.real if each.balls == "real" else sizes.fake
        if size <= each.ball.k:
            raise UsageError(
                f"halves of {size} {each.balls} images have no {each.ball.k} neighbours each; intervals need at least "
                f"{2 * each.ball.k + 2} images, or a smaller k",
                code="too-few-for-halves",
            )


def _of_reals(sizes: _Sizes, count: Tensor) -> Tensor:
    return count.double() / sizes.real


def _of_fakes(sizes: _Sizes, count: Tensor) -> Tensor:
    return count.double() / sizes.fake


def _precision(k: int, ties: Ties) -> Asked:
    return Asked("real", Ball(k), "others", ties=ties)


def _recall(k: int, ties: Ties) -> Asked:
    return Asked("fake", Ball(k), "others", ties=ties)


def _coverage(k: int, ties: Ties) -> Asked:
    return Asked("real", Ball(k), "owners", ties=ties)


def _complement_precision(k: int, ties: Ties) -> Asked:
    return Asked("fake", Ball(k), "owners", ties=ties)


def _clipped_density(k: int, ties: Ties) -> tuple[Asked, ...]:
    ball = Ball(k, clipped=True)
    # Without the row that is judged, open balls that reached to it hold it as closed ones do.
    return (
        Asked("real", ball, "others", k, ties),
        Asked("real", ball, "others", k, "closed", "own"),
    )


def _uncut_clipped_density(_k: int, sizes: _Sizes, counts: Sequence[Tensor]) -> Tensor:
    of_fakes, of_reals = _of_fakes(sizes, counts[0].sum(dim=0)), _of_reals(sizes, counts[1].sum(dim=0))
    return torch.where(of_reals > 0, of_fakes / of_reals, 0.0)


def _uncut_clipped_coverage(k: int, sizes: _Sizes, counts: Sequence[Tensor]) -> Tensor:
    raw = (_of_reals(sizes, counts[0].sum(dim=0)) / k).cpu().numpy()
    share = calibrated_clipped_coverage(raw, sizes.real, sizes.fake, k, most=_MOST)
    return torch.from_numpy(share)


def _nearest(_k: int, ties: Ties) -> tuple[Asked, ...]:
    return Asked("real", Ball(1), "owners", ties=ties), Asked("fake", Ball(1), "owners", ties=ties)


def _nn_accuracy(_k: int, sizes: _Sizes, counts: Sequence[Tensor]) -> Tensor:
    wrong = counts[0][0] + counts[1][0]
    return 1 - wrong.double() / (sizes.real + sizes.fake)


_COVERAGE = _Metric(lambda k, ties: (_coverage(k, ties),), lambda _, sizes, c: _of_reals(sizes, c[0][0]))

RESAMPLED: Mapping[str, _Metric] = {
    "precision": _Metric(
        lambda k, ties: (_precision(k, ties),), lambda _, sizes, c: _of_fakes(sizes, c[0][0])
    ),
    "recall": _Metric(lambda k, ties: (_recall(k, ties),), lambda _, sizes, c: _of_reals(sizes, c[0][0])),
    "density": _Metric(
        lambda k, ties: (Asked("real", Ball(k), "pairs", ties=ties),),
        lambda k, sizes, c: _of_fakes(sizes, c[0][0]) / k,
    ),
    "coverage": _COVERAGE,
    "complement_precision": _Metric(
        lambda k, ties: (_complement_precision(k, ties),), lambda _, sizes, c: _of_fakes(sizes, c[0][0])
    ),
    "complement_recall": _COVERAGE,
    "symmetric_precision": _Metric(
        lambda k, ties: (_precision(k, ties), _complement_precision(k, ties)),
        lambda _, sizes, c: lower_part(*(_of_fakes(sizes, each[0]) for each in c)),
    ),
    "symmetric_recall": _Metric(
        lambda k, ties: (_recall(k, ties), _coverage(k, ties)),
        lambda _, sizes, c: lower_part(*(_of_reals(sizes, each[0]) for each in c)),
    ),
    "precision_cover": _Metric(
        lambda k, ties: (Asked("fake", Ball(COVER_RATIO * k), "owners", k, ties),),
        lambda _, sizes, c: _of_fakes(sizes, c[0][-1]),
    ),
    "recall_cover": _Metric(
        lambda k, ties: (Asked("real", Ball(COVER_RATIO * k), "owners", k, ties),),
        lambda _, sizes, c: _of_reals(sizes, c[0][-1]),
    ),
    "clipped_density": _Metric(_clipped_density, _uncut_clipped_density),
    "clipped_coverage": _Metric(
        lambda k, ties: (Asked("real", Ball(k), "owners", k, ties),), _uncut_clipped_coverage
    ),
    "nn_accuracy": _Metric(_nearest, _nn_accuracy),
}
"""What replicates are computed for: each a share of rows, but for density; and for the clipped metrics what they would
be if they were not cut at 1, since halves that are all cut at 1 would show no scatter."""
