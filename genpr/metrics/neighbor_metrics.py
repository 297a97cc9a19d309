"""All neighbor metrics of one set of fakes against one set of reals: values, nulls, and replicates for intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.memory import fits
from genpr.metrics.metric import HalfSampling, HalfSizes, MetricValue
from genpr.metrics.registry import BALLS, PAIRWISE
from genpr.metrics.uncertainty import MIN_UNITS, with_interval
from genpr.neighbors.balls import BallKind, CountRequest
from genpr.neighbors.counts import Memberships, Neighborhood
from genpr.neighbors.engine import PairProgress, progress_counter
from genpr.neighbors.halves import FAKE_STREAM, REAL_STREAM, Halves, neighbors_needed
from genpr.neighbors.resample import ReplicateCounter, ResampledSet
from genpr.neighbors.subsets import covered_share_of_subsets
from genpr.validation import Ties, check_rows

_BYTES_PER_LISTED = 160  # while neighbors are searched
_LISTED_FOR_COPIES = 2  # neighbors that distinguish near copies from images that are alike

Values = dict[str, MetricValue | None]
"""By metric; None where it is undefined."""

IntervalLimit = Literal["images", "memory", "groups"]
"""What is too small for an interval: the images of each half, the memory for neighbor lists, or the number of groups."""


@dataclass(frozen=True)
class NeighborScores:
    """The neighbor metrics of one set of fakes."""

    values: Values  # by metric, None where it is undefined
    missing_intervals: dict[str, IntervalLimit]  # why a metric has no requested interval
    reals: Neighborhood  # the reals with their balls
    fakes: Neighborhood  # the fakes with theirs
    memberships: Memberships  # of both in each other's balls


class NeighborMetrics:
    """A set of reals, fitted for certain neighbor metrics."""

    def __init__(
        self,
        features: Tensor,
        *,
        ks: Mapping[str, int],
        ties: Ties,
        intervals: bool,
        seed: int,
        device: torch.device,
        progress: PairProgress | None = None,
        groups: Tensor | None = None,
    ) -> None:
        self._ks, self._seed, self._device, self._groups = ks, seed, device, groups
        self._resampled = {}
        if intervals:
            self._resampled = {name: k for name, k in ks.items() if name in BALLS and BALLS[name].halves}
        self._real_balls, self._fake_balls = needed_balls(ks)
        self._listed_real, self._listed_fake = needed_balls(self._resampled)
        self._keep = self._listed(len(features), self._listed_real) if self._listed_real else 0
        keep = max(self._keep, _LISTED_FOR_COPIES)
        balls = set(self._real_balls)
        for name in ks.keys() & PAIRWISE.keys():
            keep = max(keep, PAIRWISE[name].keep)
            balls.add(PAIRWISE[name].ball(ks[name]))
        self._real_balls = sorted(balls)
        self._null_balls = set[BallKind]()
        for name, k in ks.items():
            null_ball = BALLS[name].null_ball if name in BALLS else None
            if null_ball and null_ball(k).k < len(features):
                self._null_balls.add(null_ball(k))
        balls |= self._null_balls
        check_rows(features, "real", k=max(balls).k if balls else 0)
        advance = progress_counter(len(features) * (len(features) - 1) // 2 if balls else 0, progress)
        self.reals = Neighborhood.from_features(
            features.to(device), sorted(balls), ties=ties, keep=keep, advance=advance
        )
        self._shares: dict[tuple[int, BallKind], float] = {}

    def score(
        self, fake: Tensor, progress: PairProgress | None = None, *, groups: Tensor | None = None
    ) -> NeighborScores:
        """Every metric of (m, d) fake features, as `check_features` returns them.

        With `groups` of reals or fakes, halves consist of groups. The nulls hold for independent images, so there are none, and no
        metrics that are calibrated by them.
        """
        n, m = len(self.reals.points.features), len(fake)
        keep, missing_intervals, halved = 0, dict[str, IntervalLimit](), dict[str, int]()
        is_grouped = self._groups is not None or groups is not None
        units = {"real": effective_units(self._groups, n), "fake": effective_units(groups, m)}
        units["both"] = sum(units.values())
        if self._resampled:
            keep = self._listed(m, self._listed_fake) if self._listed_fake else 0
            is_short = bool(self._keep) != bool(self._listed_real) or bool(keep) != bool(self._listed_fake)
            for name, k in self._resampled.items():
                if min(n, m) < 2 * max(least_images({name: k})):
                    missing_intervals[name] = "images"
                elif is_short:
                    missing_intervals[name] = "memory"
                elif is_grouped and min(units.values()) < MIN_UNITS:
                    missing_intervals[name] = "groups"
                else:
                    halved[name] = k
        pairs, smallest = n * m + (m * (m - 1) // 2 if self._fake_balls else 0), None
        for name in self._ks.keys() & PAIRWISE.keys():
            pairs += PAIRWISE[name].pairs(n, m)
            if PAIRWISE[name].smallest:
                smallest = PAIRWISE[name].ball(self._ks[name])
        advance = progress_counter(pairs, progress)

        fakes = self.reals.of_fakes(fake, self._fake_balls, keep=keep, advance=advance)
        replicates = None
        if halved:
            sides = self._halved_reals, _halved(fakes, FAKE_STREAM, self._seed, groups)
            replicates = Replicates(*sides, halved, self.reals.ties)
        counts = self.reals.count(
            fakes,
            self._real_balls,
            smallest_of=smallest,
            consumers=[replicates.counter] if replicates else [],
            advance=advance,
        )
        if m < n and not is_grouped:
            counts = replace(counts, leave_one_out=self._leave_one_out(m))
        values: Values = dict.fromkeys(self._ks)
        of_halves = replicates.values() if replicates else {}
        for name, k in self._ks.items():
            if name in PAIRWISE:
                values[name] = pairwise = PAIRWISE[name].find(self.reals, fakes, counts, k, advance)
                if is_grouped and pairwise is not None:
                    values[name] = replace(pairwise, null=None, null_source=None)
                continue
            metric = BALLS[name]
            if is_grouped and metric.calibrates:
                continue
            value, n_counted = metric.value(counts, k), units[metric.over]
            null = None if is_grouped else metric.null(counts, k)
            if math.isnan(value):
                continue
            source = None if null is None else metric.null_source
            values[name] = found = MetricValue(value, k, null=null, null_source=source, n_counted=n_counted)
            # The interval of larger values was not validated.
            is_validated = metric.most_with_interval is None or value <= metric.most_with_interval
            if name in of_halves and is_validated:
                values[name] = with_interval(found, of_halves[name], n=n_counted, upper=metric.upper)
        return NeighborScores(values, missing_intervals, self.reals, fakes, counts)

    @cached_property
    def _halved_reals(self) -> ResampledSet:
        return _halved(self.reals, REAL_STREAM, self._seed, self._groups)

    def _leave_one_out(self, m: int) -> dict[BallKind, float]:
        """Share of the reals in the ball of another one of m of them, by kind of ball, cached by m."""
        reals = self.reals
        for ball in self._null_balls:
            if ball.k < m and (m, ball) not in self._shares:
                self._shares[m, ball] = covered_share_of_subsets(
                    reals.points, reals.lists, m, ball.k, ties=reals.ties
                )
        return {ball: self._shares[m, ball] for ball in self._null_balls if ball.k < m}

    def _listed(self, n: int, balls: Collection[BallKind]) -> int:
        """Neighbors to list of each of n images for replicates of their balls; 0 where memory is short."""
        keep = neighbors_needed(max(balls).k)
        needed = n * keep * _BYTES_PER_LISTED
        # Another rank may have less memory, or another machine.
        enough = fits(needed, self._device)
        return keep if all(current_communicator().all_gather_object(enough, "memory")) else 0


def _halved(side: Neighborhood, stream: int, seed: int, groups: Tensor | None) -> ResampledSet:
    """A set with random halves, drawn without replacement in complementary pairs: halves 2 s and 2 s + 1 share no image.

    They depend on the stream, the seed and the number of rows alone: two sets of fakes scored on the same reals use the same halves
    of these, and if both are of one size, fakes of the same index in their sets belong to the same halves. Where such fakes
    share a latent, the difference of the two scores gains from it; where they are unrelated, it does no harm, since their
    covariance is then zero on average.
    """
    n, device = len(side.points.features), side.points.features.device
    halves = Halves.drawn(n, seed=seed, stream=stream, device=device, groups=groups)
    return ResampledSet(side.points, side.lists, halves)


class Replicates:
    """Ball metrics of random halves of the reals against random halves of the fakes, counted as pairs are found.

    Neighbor lists are ideally of length `neighbors_needed`; both sets are in one projection. `counter` must receive the pairs
    between them.
    """

    def __init__(self, real: ResampledSet, fake: ResampledSet, ks: Mapping[str, int], ties: Ties) -> None:
        self._metrics = dict[str, tuple[HalfSampling, int, tuple[CountRequest, ...]]]()
        everything = dict[CountRequest, None]()
        for name, k in ks.items():
            how = BALLS[name].halves
            assert how is not None
            requests = how.requests(k, ties)
            self._metrics[name] = how, k, requests
            everything |= dict.fromkeys(requests)
        self._sizes = HalfSizes(real.halves.size, fake.halves.size)
        self.counter = ReplicateCounter(real, fake, list(everything))

    def values(self) -> dict[str, Tensor]:
        """By metric, (B,) float64. For the minimum of two metrics, the one that is lower on average over all halves."""
        counts = {request: table.cpu() for request, table in self.counter.counts().items()}
        return {
            name: how.value(k, self._sizes, [counts[each] for each in requests])
            for name, (how, k, requests) in self._metrics.items()
        }


def effective_units(groups: Tensor | None, n: int) -> int:
    """Number of groups of one size with which a mean would vary as much (Kish 1965, "Survey Sampling"); n without groups."""
    return n if groups is None else int(n**2 / float(groups.bincount().double().square().sum()))


def needed_balls(ks: Mapping[str, int]) -> tuple[list[BallKind], list[BallKind]]:
    """The balls around reals and around fakes that the ball metrics in `ks`, k by metric, need, each once, ascending."""
    real, fake = set[BallKind](), set[BallKind]()
    for name in ks.keys() - PAIRWISE.keys():
        metric, k = BALLS[name], ks[name]
        if metric.real_ball:
            real.add(metric.real_ball(k))
        if metric.fake_ball:
            fake.add(metric.fake_ball(k))
    return sorted(real), sorted(fake)


def least_images(ks: Mapping[str, int]) -> tuple[int, int]:
    """Minimum numbers of reals and fakes for which all of these metrics are defined; halves need as many."""
    real_balls, fake_balls = needed_balls(ks)
    least_real = real_balls[-1].k if real_balls else 0  # they ascend by k
    least_fake = fake_balls[-1].k if fake_balls else 0
    for name in ks.keys() & PAIRWISE.keys():
        least_real = max(least_real, PAIRWISE[name].ball(ks[name]).k, PAIRWISE[name].keep)
    return least_real + 1, least_fake + 1
