"""All metrics of neighbours for one pair of sets: values, nulls, and the replicates that intervals rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpr.memory import fits
from genpr.metrics.counted import COUNTED, needed_balls
from genpr.metrics.features import Features
from genpr.metrics.null_geometry import share_reached
from genpr.metrics.progress import PairProgress
from genpr.metrics.real_side import FakeSide, RealSide
from genpr.metrics.replicate_values import RESAMPLED, replicate_values
from genpr.metrics.scans import needed_scans
from genpr.neighbours.balls import Ball
from genpr.neighbours.cross import Ties
from genpr.neighbours.lists import NeighbourLists
from genpr.neighbours.neighbourhood import Neighbourhood

_SHORT, _LONG, _SHORT_ENOUGH = 32, 64, 5
"""Neighbours listed of each image: among 32, at least 5 are in a random half in all but 1 of 100,000 cases."""
_BYTES_PER_LISTED = 160  # while neighbours are searched
_BESIDE = 2  # neighbours that tell near copies from images that are alike
_ALWAYS_THERE = 2**26  # bytes, whatever the limit


@dataclass(frozen=True, slots=True)
class NeighbourValue:
    """A metric of one pair of sets.

    Attributes:
        value: None where it is undefined.
        null: What a perfect generator scores; None where only halves of the reals can tell.
        source: Where the null comes from.
        replicates: (B,) values for halves of both sets; None where no interval is known.
        n: Images that it is a share of, or a mean over.
    """

    value: float | None
    null: float | None
    source: str
    replicates: Tensor | None = None
    n: int = 0


class NeighbourMetrics:
    """A real set, fitted for certain metrics.

    Args:
        features: (n, d) of the reals.
        ks: k by metric.
        ties: "closed" or "strict".
        intervals: Whether to prepare for replicates.
        seed: Of the replicates, and of a subset of the reals where there are fewer fakes.
        device: Where to compute.
        progress: Called with the pairs of rows done with and their number.
    """

    def __init__(
        self,
        features: Features,
        *,
        ks: Mapping[str, int],
        ties: Ties,
        intervals: bool,
        seed: int,
        device: torch.device,
        progress: PairProgress | None = None,
    ) -> None:
        self._ks = ks
        self._counted = {name: k for name, k in ks.items() if name in COUNTED}
        self._scans = needed_scans(ks)
        self._seed = seed
        self._real_balls, self._fake_balls = needed_balls(self._counted)
        extra = {ball for names, scan in self._scans.items() for ball in scan.balls(self._k_of(names))}
        self._real_balls = sorted({*self._real_balls, *extra})
        self._resampled = (
            {name: k for name, k in self._counted.items() if name in RESAMPLED} if intervals else {}
        )
        self._keep = self._listed(len(features))
        nulls = {Ball(k) for name, k in self._counted.items() if name in _RECALLS and k < len(features)}
        self.side = RealSide.fit(
            features,
            balls={*self._real_balls, *nulls},
            ties=ties,
            keep=max(self._keep, _BESIDE, *(scan.keep for scan in self._scans.values())),
            device=device,
            progress=progress,
        )
        self._smaller: dict[tuple[int, int], float] = {}

    def score(
        self, fake: Features, progress: PairProgress | None = None
    ) -> tuple[dict[str, NeighbourValue], FakeSide]:
        """Every metric of (m, d) fake features, and the counts behind them."""
        smallest = [scan.balls(self._k_of(names))[0] for names, scan in self._scans.items() if scan.smallest]
        keep = self._keep if self._fake_balls and self._listed(len(fake)) else 0
        side = self.side.count(
            fake,
            real_balls=self._real_balls,
            fake_balls=self._fake_balls,
            smallest_of=smallest[0] if smallest else None,
            keep=keep,
            progress=progress,
        )
        values = {name: self._of_counts(name, side, k) for name, k in self._counted.items()}
        for name, replicates in self._replicates(side).items():
            values[name] = replace(values[name], replicates=replicates)
        for names, scan in self._scans.items():
            found = scan.find(self.side, side, self._k_of(names))
            values |= {
                name: NeighbourValue(found[name].value, found[name].null, found[name].source)
                for name in names
                if name in self._ks
            }
        return {name: values[name] for name in self._ks}, side

    def _k_of(self, names: tuple[str, ...]) -> int:
        return next(self._ks[name] for name in names if name in self._ks)

    def _listed(self, n: int) -> int:
        """Neighbours to list of each of n images; 0 where intervals are not asked for, or memory is short."""
        if not self._resampled:
            return 0
        keep = _SHORT if _largest_k(self._resampled) <= _SHORT_ENOUGH else _LONG
        needed = n * keep * _BYTES_PER_LISTED
        return keep if needed <= _ALWAYS_THERE or fits(needed) else 0

    def _of_counts(self, name: str, side: FakeSide, k: int) -> NeighbourValue:
        metric, found = COUNTED[name], side.memberships
        null = metric.null(found, k)
        if name in _RECALLS:
            null = self._null_at(found.n_fake, k)
            if name == "symmetric_recall" and null is not None:
                null = min(null, COUNTED["coverage"].null(found, k) or 0.0)
        n = {"real": found.n_real, "fake": found.n_fake, "both": found.n_real + found.n_fake}[metric.over]
        return NeighbourValue(metric.value(found, k), null, metric.source, n=n)

    def _null_at(self, m: int, k: int) -> float | None:
        """Share of m reals that lie in the ball of another: of a random part of them, or of all if m are more.

        None where the reals are too few.
        """
        side = self.side
        if Ball(k) not in side.balls or m <= k:
            return None
        if m >= len(side.points):
            assert side.in_degrees is not None
            return share_reached(side.in_degrees[side.balls.index(Ball(k))].cpu().numpy())
        if (m, k) not in self._smaller:
            generator = torch.Generator().manual_seed(self._seed)
            rows = torch.randperm(len(side.points), generator=generator)[:m].sort().values
            part = side.points.frame.place(side.points.features[rows.to(side.points.device)])
            own = Neighbourhood.of(part, [Ball(k)], ties=side.ties, engine=side.engine)
            self._smaller[m, k] = share_reached(own.in_degrees[0].cpu().numpy())
        return self._smaller[m, k]

    def _replicates(self, fake: FakeSide) -> dict[str, Tensor]:
        """Of every metric whose balls exist in halves of these sets."""
        real = self.side
        half = min(len(real.points), len(fake.points)) // 2
        ks = {name: k for name, k in self._resampled.items() if _largest_k({name: k}) < half}
        of_reals = real.lists or NeighbourLists.none(real.points.features)
        of_fakes = fake.own.lists if fake.own else NeighbourLists.none(fake.points.features)
        is_short = self._real_balls and of_reals.length < min(self._keep, 2 * half - 1)
        if not ks or not self._keep or is_short or (fake.own and not of_fakes.length):
            return {}
        return replicate_values(
            (real.points, of_reals),
            (fake.points, of_fakes),
            ks,
            ties=real.ties,
            seed=self._seed,
            engine=real.engine,
        )


def least_images(ks: Mapping[str, int]) -> tuple[int, int]:
    """Reals and fakes without which one of these metrics is not defined."""
    counted = {name: k for name, k in ks.items() if name in COUNTED}
    real, fake = ({ball.k for ball in balls} for balls in needed_balls(counted))
    for names, scan in needed_scans(ks).items():
        k = next(ks[name] for name in names if name in ks)
        real |= {scan.least_real(k)}
        fake |= {scan.least_fake(k)}
    return max(real, default=0) + 1, max(fake, default=0) + 1


_RECALLS = frozenset({"recall", "symmetric_recall"})


def _largest_k(ks: Mapping[str, int]) -> int:
    """Of the balls that these metrics look at."""
    return max(ball.k for balls in needed_balls(ks) for ball in balls)
