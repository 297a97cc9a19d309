"""All metrics of neighbours for one pair of sets: values, nulls, and the replicates that intervals rest on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from genpr.distributed.team import current_team
from genpr.memory import fits, part_of
from genpr.metrics.metric import PairwiseHalves, PairwiseOptions, PairwiseSearch
from genpr.metrics.null_geometry import share_reached
from genpr.metrics.progress import PairProgress, tally
from genpr.metrics.real_side import FakeSide, PlacedFakes, RealSide, pairs_of
from genpr.metrics.registry import BALLS, PAIRWISE, needed_balls
from genpr.metrics.replicate_values import Replicates
from genpr.neighbors.balls import Ball
from genpr.neighbors.cross import Ties
from genpr.neighbors.halves import others_for
from genpr.neighbors.lists import NeighbourLists
from genpr.neighbors.neighbourhood import Neighbourhood
from genpr.validation import Features, check_features

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
        self._counted = {name: k for name, k in ks.items() if name in BALLS}
        self._searches = pairwise_searches(ks)
        self._seed = seed
        self._real_balls, self._fake_balls = needed_balls(self._counted)
        extra = {ball for search, k in self._searches.items() for ball in search.balls(k)}
        self._real_balls = sorted({*self._real_balls, *extra})
        self._resampled = (
            {name: k for name, k in self._counted.items() if BALLS[name].halves} if intervals else {}
        )
        self._intervals = intervals
        self._device = device
        self._listed_real, self._listed_fake = needed_balls(self._resampled)
        self._keep = self._listed(len(features), self._listed_real)
        nulls = {
            ball
            for name, k in self._counted.items()
            for ball in BALLS[name].null_balls(k)
            if ball.k < len(features)
        }
        self.side = RealSide.fit(
            features,
            balls={*self._real_balls, *nulls},
            ties=ties,
            keep=max(self._keep, _BESIDE, *(search.keep for search in self._searches)),
            device=device,
            progress=progress,
        )
        self._smaller: dict[tuple[int, int], float] = {}

    def score(
        self, fake: Features, progress: PairProgress | None = None
    ) -> tuple[dict[str, NeighbourValue], FakeSide]:
        """Every metric of (m, d) fake features, and the counts behind them."""
        smallest = [search.balls(k)[0] for search, k in self._searches.items() if search.smallest]
        checked, fake_balls = check_features(fake, "fake"), self._fake_balls
        m = len(checked)
        keep = self._listed(m, self._listed_fake)
        lacks = self._lacks(m, keep)
        in_count = pairs_of(len(self.side.points), m, fake_balls)
        tick = tally(in_count + sum(self._pairs(search, m) for search in self._searches), progress)
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
        for search, k in self._searches.items():
            values |= self._searched(search, side, PairwiseOptions(k, self._seed, tick))
        return {name: values[name] for name in self._ks}, side

    def _halves(self, search: PairwiseSearch, m: int) -> PairwiseHalves | None:
        """How to search in halves, if intervals are requested and there are enough images."""
        halves = search.halves if self._intervals else None
        return halves if halves is not None and min(len(self.side.points), m) >= halves.least else None

    def _pairs(self, search: PairwiseSearch, m: int) -> int:
        """Pairs that a search evaluates with m fakes, and with their halves."""
        n, halves = len(self.side.points), self._halves(search, m)
        return search.pairs(n, m) + (halves.count * search.pairs(n // 2, m // 2) if halves else 0)

    def _searched(
        self, search: PairwiseSearch, side: FakeSide, options: PairwiseOptions
    ) -> dict[str, NeighbourValue]:
        """The requested metrics of one pairwise search."""
        n, m = len(self.side.points), len(side.points)
        found, how = search.find(self.side, side, options), self._halves(search, m)
        halves = how.find(self.side, side, options) if how else {}
        known = {name: values for name, values in halves.items() if values.isfinite().all()}
        lack: Lack | None = "images" if self._intervals and search.halves and not how else None
        return {
            name: NeighbourValue(
                each.value,
                each.null,
                each.null_source,
                known.get(name),
                m if each.over == "fake" else n,
                lack,
            )
            for name, each in found.items()
            if name in self._ks
        }

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
        metric, found = BALLS[name], side.memberships
        null = metric.null(found, k, self._null_at)
        n = {"real": found.n_real, "fake": found.n_fake, "both": found.n_real + found.n_fake}[metric.over]
        return NeighbourValue(metric(found, k), null, metric.null_source, n=n)

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
    if name in PAIRWISE:
        halves = PAIRWISE[name].search.halves
        return halves.least if halves else 0
    return 2 * _largest_k({name: k}) + 2


def least_images(ks: Mapping[str, int]) -> tuple[int, int]:
    """Reals and fakes without which one of these metrics is not defined."""
    counted = {name: k for name, k in ks.items() if name in BALLS}
    real, fake = ({ball.k for ball in balls} for balls in needed_balls(counted))
    for search, k in pairwise_searches(ks).items():
        real |= {search.least_real(k)}
        fake |= {search.least_fake(k)}
    return max(real, default=0) + 1, max(fake, default=0) + 1


def pairwise_searches(ks: Mapping[str, int]) -> dict[PairwiseSearch, int]:
    """The searches that metrics in `ks` need besides memberships, each once, with its k."""
    found: dict[PairwiseSearch, int] = {}
    for name, metric in PAIRWISE.items():
        if name in ks:
            found.setdefault(metric.search, ks[name])
    return found


def _largest_k(ks: Mapping[str, int]) -> int:
    """Of the balls that these metrics look at."""
    return max(ball.k for balls in needed_balls(ks) for ball in balls)
