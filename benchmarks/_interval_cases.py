"""Gaussian sets whose metrics are known by simulation, and how often intervals hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.neighbor_metrics import Replicates
from genpr.metrics.null import calibrated_clipped_coverage
from genpr.metrics.uncertainty import Interval, interval_of
from genpr.neighbors.halves import REPLICATES
from genpr.neighbors.index import Frame, IndexedPoints
from genpr.neighbors.nearest import NeighborLists
from genpr.neighbors.search import scan_pairs

KS = {
    "precision": 3,
    "recall": 3,
    "density": 5,
    "coverage": 5,
    "complement_precision": 5,
    "symmetric_precision": 3,
    "symmetric_recall": 3,
    "precision_cover": 3,
    "recall_cover": 3,
    "clipped_density": 5,
    "clipped_coverage": 5,
    "nn_accuracy": 1,
}
METRICS = tuple(KS)
BOOTSTRAPPED = ("precision", "recall", "density", "coverage")
_LISTED = 64
_MOST_K = 9
_VALUES, _RUNS = 0, 1  # independent draws for true values and for intervals


@dataclass(frozen=True, slots=True)
class IntervalCase:
    """n standard normal reals in d dimensions, and as many fakes that are moved by `shift`."""

    d: int
    n: int
    shift: float

    def __str__(self) -> str:
        return f"d = {self.d}, n = {self.n:,}, " + (f"shift {self.shift:g}" if self.shift else "null")

    def draw(self, purpose: int, number: int) -> tuple[Tensor, Tensor]:
        """Reals and fakes, (n, d) float32."""
        seed = [self.d, self.n, round(100 * self.shift), purpose, number]
        real, fake = np.random.default_rng(seed).standard_normal((2, self.n, self.d), dtype=np.float32)
        fake[:, 0] += self.shift
        return torch.from_numpy(real), torch.from_numpy(fake)


CASES = tuple(
    IntervalCase(d, n, shift)
    for n in (400, 2000)
    for d, moved in ((2, 1.5), (16, 2.0), (64, 3.0))
    for shift in (0.0, moved)
)


class Distances:
    """All distances of two sets at once, (n, n) each: fine for thousands of rows."""

    def __init__(self, real: Tensor, fake: Tensor) -> None:
        self._points = real, fake
        self.real, self.fake, self.cross = (
            torch.cdist(a, b).square_() for a, b in ((real, real), (fake, fake), (real, fake))
        )
        for own in (self.real, self.fake):
            own.fill_diagonal_(torch.inf)

    def values(self) -> dict[str, float]:
        """The metrics of the whole sets by the plain definition."""
        return values_of(self.real, self.fake, self.cross)

    def sides(self) -> Iterator[tuple[IndexedPoints, NeighborLists]]:
        """Data that replicates are computed from, for both sets."""
        frame = Frame.around(self._points[0])
        for points, own in zip(self._points, (self.real, self.fake), strict=True):
            near = own.topk(_LISTED, largest=False)
            yield frame.place(points), NeighborLists(near.indices, near.values.double())

    def resampled(self, i: Tensor, j: Tensor) -> dict[str, float]:
        """The metrics of rows `i` of the reals and `j` of the fakes, repetitions included."""
        real, fake = self.real[i][:, i], self.fake[j][:, j]
        for own, rows in ((real, i), (fake, j)):
            own[rows[:, None] == rows] = 0  # copies of a row are at no distance from it
            own.fill_diagonal_(torch.inf)
        return values_of(real, fake, self.cross[i][:, j])


def values_of(real: Tensor, fake: Tensor, cross: Tensor) -> dict[str, float]:
    """All metrics from squared distances, those within a set with an infinite diagonal."""
    of_real, of_fake = (own.topk(_MOST_K, largest=False).values for own in (real, fake))

    def in_real(k: int) -> Tensor:
        return cross <= of_real[:, k - 1, None]

    def in_fake(k: int) -> Tensor:
        return cross <= of_fake[:, k - 1]

    few_real, few_fake, real_5, fake_5 = in_real(3), in_fake(3), in_real(5), in_fake(5)
    sizes = len(real), len(fake)
    sq_clipped = of_real[:, 4].sqrt().clamp(max=of_real[:, 4].sqrt().quantile(0.5)).square()
    of_fakes = (cross <= sq_clipped[:, None]).sum(dim=0).clamp(max=5).double().mean()
    of_reals = (real <= sq_clipped[:, None]).sum(dim=0).clamp(max=5).double().mean()
    filled = float(real_5.sum(dim=1).clamp(max=5).double().mean()) / 5
    precision, recall = _share(few_real.any(dim=0)), _share(few_fake.any(dim=1))
    wrong = (cross < of_real[:, :1]).any(dim=1).sum() + (cross < of_fake[:, 0]).any(dim=0).sum()
    return {
        "precision": precision,
        "recall": recall,
        "density": float(real_5.sum()) / (5 * cross.shape[1]),
        "coverage": _share(real_5.any(dim=1)),
        "complement_precision": _share(fake_5.any(dim=0)),
        "symmetric_precision": min(precision, _share(few_fake.any(dim=0))),
        "symmetric_recall": min(recall, _share(few_real.any(dim=1))),
        "precision_cover": _share(in_fake(9).sum(dim=0) >= 3),
        "recall_cover": _share(in_real(9).sum(dim=1) >= 3),
        "clipped_density": min(1.0, float(of_fakes / of_reals)),
        "clipped_coverage": float(calibrated_clipped_coverage([filled], *sizes, 5)[0]),
        "nn_accuracy": 1 - float(wrong) / sum(sizes),
    }


def _share(hit: Tensor) -> float:
    return float(hit.double().mean())


@dataclass(frozen=True, slots=True)
class Run:
    """One draw: the metrics of the whole sets, (len(METRICS),), and of their halves, (len(METRICS), B)."""

    values: NDArray[np.float64]
    replicates: NDArray[np.float64]


def run_once(case: IntervalCase, number: int) -> Run:
    """Draw, and compute what intervals are made of."""
    distances = Distances(*case.draw(_RUNS, number))
    values = distances.values()
    real, fake = distances.sides()
    halves = Replicates(real, fake, KS, seed=number, replicates=REPLICATES)
    scan_pairs(real[0], fake[0], [halves.counter])
    replicates = halves.values()
    return Run(
        np.array([values[name] for name in METRICS]),
        np.stack([replicates[name].numpy() for name in METRICS]),
    )


def true_values(case: IntervalCase, draws: int) -> NDArray[np.float64]:
    """Metrics of independent draws of the same sizes, (draws, len(METRICS))."""
    found = (Distances(*case.draw(_VALUES, number)).values() for number in range(draws))
    return np.array([[values[name] for name in METRICS] for values in found])


def interval_for(case: IntervalCase, metric: str, value: float, replicates: NDArray[np.float64]) -> Interval:
    """The interval of genpr."""
    n = 2 * case.n if metric == "nn_accuracy" else case.n
    upper = None if metric == "density" else 1.0
    interval = interval_of(value, torch.from_numpy(replicates), n=n, upper=upper)
    assert interval is not None  # all replicates are finite
    return interval


def bootstrap(case: IntervalCase, number: int, resamples: int) -> NDArray[np.float64]:
    """Metrics of resamples with replacement, as is naively done: (resamples, 4)."""
    distances = Distances(*case.draw(_RUNS, number))
    rng = np.random.default_rng(number)
    found = []
    for _ in range(resamples):
        i, j = torch.from_numpy(rng.integers(0, case.n, (2, case.n)))
        values = distances.resampled(i, j)
        found.append([values[name] for name in BOOTSTRAPPED])
    return np.array(found)
