"""All metrics of neighbours for one pair of sets: values, nulls, and the replicates that intervals rest on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from genpr.memory import fits, part_of
from genpr.metrics.features import Features, check_features
from genpr.metrics.manifold.counted import COUNTED, needed_balls
from genpr.metrics.manifold.null_geometry import share_reached
from genpr.metrics.manifold.real_side import FakeSide, PlacedFakes, RealSide, pairs_of
from genpr.metrics.manifold.replicate_values import RESAMPLED, Replicates
from genpr.metrics.manifold.scans import Halved, Scan, ScanOptions, needed_scans
from genpr.metrics.progress import PairProgress, tally
from genpr.neighbours.balls import Ball
from genpr.neighbours.cross import Ties
from genpr.neighbours.halves import others_for
from genpr.neighbours.lists import NeighbourLists
from genpr.neighbours.neighbourhood import Neighbourhood
from genpr.ranks.team import current_team

_BYTES_PER_LISTED = 160  # while neighbours are searched
_BESIDE = 2  # neighbours that tell near copies from images that are alike
_ALWAYS_THERE = 2**26  # bytes, whatever the limit

Lack = Literal["images", "memory"]
"""What an interval needs more of: images in each half, or memory for the neighbours of each image."""


@dataclass(frozen=True, slots=True)
class NeighbourValue:
    """A metric of one pair of sets.

    Attributes:
        value: None where it is undefined.
        null: What a perfect generator scores; None where only halves of the reals can tell.
        source: Where the null comes from.
        replicates: (B,) values for halves of both sets; None where no interval is known.
        n: Images that it is a share of, or a mean over.
        lack: Why there are no replicates although an interval is known and was asked for.
    """

    value: float | None
    null: float | None
    source: str
    replicates: Tensor | None = None
    n: int = 0
    lack: Lack | None = None


class NeighbourMetrics:
    """A real set, fitted for certain metrics.

    Args:
        features: (n, d) of the reals.
        ks: k by metric.
        ties: "closed" or "strict".
        intervals: Whether to prepare for replicates.
        seed: Of the replicates, of a subset of the reals where there are fewer fakes, and of what scans draw.
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
        self._intervals = intervals
        self._device = device
        self._listed_real, self._listed_fake = needed_balls(self._resampled)
        self._keep = self._listed(len(features), self._listed_real)
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
        checked, fake_balls = check_features(fake, "fake"), self._fake_balls
        m = len(checked)
        keep = self._listed(m, self._listed_fake)
        lacks = self._lacks(m, keep)
        in_count = pairs_of(len(self.side.points), m, fake_balls)
        tick = tally(in_count + sum(self._pairs(scan, m) for scan in self._scans.values()), progress)
        fakes = self.side.place(checked, fake_balls, keep=keep, tick=tick)
        replicates = self._replicates(fakes, [name for name in self._resampled if name not in lacks])
        side = self.side.count(
            fakes,
            self._real_balls,
            smallest_of=smallest[0] if smallest else None,
            beside=[replicates.counter] if replicates else [],
            tick=tick,
        )
        values = {name: self._of_counts(name, side, k) for name, k in self._counted.items()}
        values |= {name: replace(values[name], lack=lack) for name, lack in lacks.items()}
        for name, found in (replicates.values() if replicates else {}).items():
            values[name] = replace(values[name], replicates=found)
        for names, scan in self._scans.items():
            values |= self._scanned(scan, side, ScanOptions(self._k_of(names), self._seed, tick))
        return {name: values[name] for name in self._ks}, side

    def _halved(self, scan: Scan, m: int) -> Halved | None:
        """How to find a scan for halves, if that is wanted and possible."""
        halved = scan.halved if self._intervals else None
        return halved if halved is not None and min(len(self.side.points), m) >= halved.least else None

    def _pairs(self, scan: Scan, m: int) -> int:
        """That a scan looks at with m fakes, and with their halves."""
        n, halved = len(self.side.points), self._halved(scan, m)
        return scan.pairs(n, m) + (halved.count * scan.pairs(n // 2, m // 2) if halved else 0)

    def _scanned(self, scan: Scan, side: FakeSide, options: ScanOptions) -> dict[str, NeighbourValue]:
        """What is asked for of one scan."""
        n, m = len(self.side.points), len(side.points)
        found, halved = scan.find(self.side, side, options), self._halved(scan, m)
        halves = halved.find(self.side, side, options) if halved else {}
        known = {name: values for name, values in halves.items() if values.isfinite().all()}
        lack: Lack | None = "images" if self._intervals and scan.halved and not halved else None
        return {
            name: NeighbourValue(
                each.value, each.null, each.source, known.get(name), m if each.over == "fake" else n, lack
            )
            for name, each in found.items()
            if name in self._ks
        }

    def _k_of(self, names: tuple[str, ...]) -> int:
        return next(self._ks[name] for name in names if name in self._ks)

    def _listed(self, n: int, balls: Collection[Ball]) -> int:
        """Neighbours to list of each of n images for replicates of their balls; 0 where memory is short."""
        if not balls:
            return 0
        keep = others_for(max(ball.k for ball in balls))
        needed = n * keep * _BYTES_PER_LISTED
        # Another rank may have less memory, or another machine.
        enough = needed <= _ALWAYS_THERE or fits(needed, self._device)
        return keep if current_team().agreed(enough) else 0

    def _lacks(self, m: int, keep: int) -> dict[str, Lack]:
        """What keeps metrics from an interval with m fakes, of which `keep` neighbours are listed."""
        smaller = min(len(self.side.points), m)
        lacks: dict[str, Lack] = {
            name: "images" for name, k in self._resampled.items() if smaller < least_for_interval(name, k)
        }
        if bool(self._keep) == bool(self._listed_real) and bool(keep) == bool(self._listed_fake):
            return lacks
        return {name: lacks.get(name, "memory") for name in self._resampled}

    def _of_counts(self, name: str, side: FakeSide, k: int) -> NeighbourValue:
        metric, found = COUNTED[name], side.memberships
        null = metric.null(found, k) if name not in _RECALLS else self._null_at(found.n_fake, k)
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
            part = side.points.frame.place(part_of(side.points.features, rows.to(side.points.device)))
            own = Neighbourhood.of(part, [Ball(k)], ties=side.ties, engine=side.engine)
            self._smaller[m, k] = share_reached(own.in_degrees[0].cpu().numpy())
        return self._smaller[m, k]

    def _replicates(self, fakes: PlacedFakes, names: Collection[str]) -> Replicates | None:
        """Of metrics whose balls exist in halves of these sets; None if there are no such."""
        if not names:
            return None
        real = self.side
        of_reals = real.lists or NeighbourLists.none(real.points.features)
        of_fakes = fakes.own.lists if fakes.own else NeighbourLists.none(fakes.points.features)
        return Replicates(
            (real.points, of_reals),
            (fakes.points, of_fakes),
            {name: self._resampled[name] for name in names},
            ties=real.ties,
            seed=self._seed,
            engine=real.engine,
        )


def least_for_interval(name: str, k: int) -> int:
    """Images of each side without which halves of them have no value of a metric."""
    for scan in needed_scans([name]).values():
        return scan.halved.least if scan.halved else 0
    return 2 * _largest_k({name: k}) + 2


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
