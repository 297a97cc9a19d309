"""The reals of one extractor, fitted for the neighbor metrics of a plan, and the values they give for fakes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from genpr.evaluation.plan import ScorePlan
from genpr.features.feature_set import FeatureSet
from genpr.images.source import choose_rows
from genpr.metrics.blocks import equal_blocks
from genpr.metrics.diagnostics import ManifoldDiagnostics
from genpr.metrics.emulated_manifold import EmulatedSide
from genpr.metrics.neighbor_metrics import Lack, NeighborMetrics, NeighborScores, Values
from genpr.metrics.real_manifold import CountedFakes, PairProgress, RealManifold
from genpr.metrics.registry import BALLS, NEIGHBORS, SIZE_SENSITIVE, needed_balls
from genpr.metrics.uncertainty import interval_of
from genpr.metrics.value import MetricValue


@dataclass(frozen=True)
class NeighborResult:
    """The neighbor metrics of one set of fakes."""

    values: Values  # by metric, of the sets as they are; None where a metric is undefined
    lacks: Mapping[str, Lack]  # what keeps metrics from the interval that was requested
    diagnostics: ManifoldDiagnostics | None  # diagnostics in the first network's features
    # the reals among which neighbors were counted: a part of them, if the protocol limits them
    reals: FeatureSet
    fakes: FeatureSet  # the fakes, likewise
    real_manifold: RealManifold  # the reals with their balls, in the first network's features
    fake_side: CountedFakes  # the fakes, counted against them
    # the values of metrics that were also computed in blocks of equal size
    block_values: Mapping[str, MetricValue] = field(default_factory=dict)


@dataclass(frozen=True)
class _Fit:
    """The reals in use, fitted in the features of each network, and on emulated distances if the protocol wants them."""

    reals: FeatureSet
    networks: tuple[NeighborMetrics, ...]
    emulated: EmulatedSide | None


class FittedNeighbors:
    """The reals of one extractor, fitted for neighbor metrics.

    The features of an extractor of several random networks hold an equal number of columns per network; values are
    means over the networks.
    """

    def __init__(
        self,
        real: FeatureSet,
        plan: ScorePlan,
        *,
        device: torch.device,
        seed: int,
        progress: PairProgress | None = None,
        diagnostics: bool = True,
    ) -> None:
        self._real, self._plan, self._device, self._seed = real, plan, device, seed
        self._diagnostics = diagnostics
        self._fits: dict[int | None, _Fit] = {}
        self._in_blocks: FittedNeighbors | None = None
        self._max_rows = plan.protocol.max_rows
        self._fit(None if self._max_rows is None else self._limit(len(real)), progress)

    def score(self, fake: FeatureSet, progress: PairProgress | None = None) -> NeighborResult:
        """Every metric; with `equal_sizes`, those that depend on the ratio of the sizes also in blocks."""
        blocks, whole, rest = self._blocks(fake) if self._plan.equal_sizes else (), fake, progress
        if blocks:
            progress = _part(rest, 0, 1 + len(blocks))
        limit, variant, found = None, None, []
        if self._max_rows is not None:
            limit = self._limit(len(self._real), len(fake))
        fit = self._fit(limit, progress)
        if limit is not None:
            variant = f"{limit:,} images of each side, drawn with seed {self._seed}"
            fake = _chosen(fake, limit, self._seed)
        for fitted, part in zip(fit.networks, fake.networks, strict=True):
            found.append(fitted.score(part, progress))
        real_manifold, fakes, ks = fit.networks[0].reals, found[0].fakes, self._plan.ks
        diagnostics = None
        if limit is None and self._diagnostics:
            diagnostics = ManifoldDiagnostics.of(real_manifold, fakes, progress)
        values: Values = {}
        for name in ks:
            values[name] = _over_networks(name, found, variant)
        if fit.emulated is not None:
            counts = fit.emulated.memberships(fake.networks[0], ks=ks, progress=progress)
            values = {name: _emulated(name, values[name], BALLS[name](counts, k)) for name, k in ks.items()}
        result = NeighborResult(values, found[0].lacks, diagnostics, fit.reals, fake, real_manifold, fakes)
        return self._with_blocks(result, whole, blocks, rest) if blocks else result

    def _blocks(self, fake: FeatureSet) -> tuple[Tensor, ...]:
        """Rows of the larger set in blocks as large as the other set; none where no metric needs them."""
        n, m = len(self._real), len(fake)
        # A protocol that limits the rows uses equally many of both sets anyway.
        if n == m or self._max_rows is not None or not self._plan.ks.keys() & set(SIZE_SENSITIVE):
            return ()
        return equal_blocks(max(n, m), min(n, m), self._seed)

    def _with_blocks(
        self,
        whole: NeighborResult,
        fake: FeatureSet,
        blocks: Sequence[Tensor],
        progress: PairProgress | None,
    ) -> NeighborResult:
        """With the metrics that depend on the ratio of the sizes, as means over blocks of equal size."""
        n, m = len(self._real), len(fake)
        ks = {name: k for name, k in self._plan.ks.items() if name in SIZE_SENSITIVE}
        plan = replace(self._plan, ks=ks, intervals=False, equal_sizes=False)
        found = [
            self._block(plan, fake, rows, _part(progress, at, 1 + len(blocks)))
            for at, rows in enumerate(blocks, start=1)
        ]
        role, plural = "reals" if n > m else "fakes", "s" if len(blocks) > 1 else ""
        variant = f"{len(blocks):,} random block{plural} of {min(n, m):,} of the {max(n, m):,} {role}"
        block_values = {}
        for name in ks:
            known = [value for values in found if (value := values[name]) is not None]
            if len(known) == len(found):
                mean = _mean_of_blocks(known)
                block_values[name] = replace(mean, n_counted=min(n, m), variant=variant)
        lacks = {name: lack for name, lack in whole.lacks.items() if name not in block_values}
        return replace(whole, lacks=lacks, block_values=block_values)

    def _block(
        self, plan: ScorePlan, fake: FeatureSet, rows: Tensor, progress: PairProgress | None
    ) -> Values:
        """The values of one block of the larger set; a block of reals has balls of its own."""

        def fitted(real: FeatureSet) -> FittedNeighbors:
            return FittedNeighbors(
                real, plan, device=self._device, seed=self._seed, progress=progress, diagnostics=False
            )

        if len(fake) < len(self._real):
            return fitted(self._real.select(rows)).score(fake, progress).values
        self._in_blocks = self._in_blocks or fitted(self._real)
        return self._in_blocks.score(fake.select(rows), progress).values

    def _limit(self, *sizes: int) -> int | None:
        """Rows of each set: as many reals as fakes. None where the protocol's limit leaves all of them."""
        assert self._max_rows is not None
        rows = min(self._max_rows, *sizes)
        return None if all(size == rows for size in sizes) else rows

    def _fit(self, limit: int | None, progress: PairProgress | None) -> _Fit:
        """The fit to so many reals; each number is fitted once."""
        if limit in self._fits:
            return self._fits[limit]
        plan, networks, emulated = self._plan, [], None
        real = self._real if limit is None else _chosen(self._real, limit, self._seed)
        for part in real.networks:
            fitted = NeighborMetrics(
                part,
                ks=plan.ks,
                ties=plan.ties,
                intervals=plan.intervals,
                seed=self._seed,
                device=self._device,
                progress=progress,
            )
            networks.append(fitted)
        if plan.protocol.distances != "exact":
            emulated = EmulatedSide.fit(
                real.networks[0],
                ks=[ball.k for ball in needed_balls(plan.ks)[0]],
                emulation=plan.protocol.distances,
                device=self._device,
                progress=progress,
            )
        self._fits[limit] = _Fit(real, tuple(networks), emulated)
        return self._fits[limit]


def _chosen(features: FeatureSet, limit: int, seed: int) -> FeatureSet:
    """A random part of so many rows, or all of them if there are not more."""
    if limit >= len(features):
        return features
    return features.select(torch.as_tensor(choose_rows(len(features), limit, seed)))


def mean_over_networks(values: Sequence[MetricValue], variant: str | None) -> MetricValue:
    """The mean over random networks, with their spread and the mean of their nulls."""
    first = replace(values[0], variant=variant)
    if len(values) == 1:
        return first
    numbers = [each.value for each in values]
    nulls = [each.null for each in values if each.null is not None]
    return replace(
        first,
        value=statistics.fmean(numbers),
        spread=statistics.stdev(numbers),
        spread_over="random networks",
        null=statistics.fmean(nulls) if nulls else None,
    )


def _over_networks(name: str, networks: Sequence[NeighborScores], variant: str | None) -> MetricValue | None:
    """The mean over networks, with the interval of this mean: all of them were resampled by the same halves."""
    known = [value for each in networks if (value := each.values[name]) is not None]
    if len(known) < len(networks):
        return None
    value = mean_over_networks(known, variant) if len(known) > 1 else replace(known[0], variant=variant)
    if value.replicates is None or value.n_counted is None:
        return replace(value, n_counted=None)
    tables = [each.replicates for each in known if each.replicates is not None]
    replicates = torch.tensor(tables, dtype=torch.float64).mean(dim=0)
    interval = interval_of(value.value, replicates, n=value.n_counted, upper=NEIGHBORS[name].upper)
    return replace(value, interval=(interval.low, interval.high), replicates=tuple(replicates.tolist()))


def _emulated(name: str, exact: MetricValue | None, value: float) -> MetricValue:
    """The value on emulated distances, with the interval of the exact one moved to it."""
    assert exact is not None
    found = replace(exact, value=value, exact=False, exact_value=exact.value)
    if exact.interval is None:
        return found
    (low, high), upper, difference = exact.interval, NEIGHBORS[name].upper, value - exact.value
    high = high + difference if upper is None else min(high + difference, upper)
    return replace(found, interval=(max(low + difference, 0.0), high))


def _part(progress: PairProgress | None, at: int, parts: int) -> PairProgress | None:
    """The progress of one of several searches that count as equally long."""
    if progress is None:
        return None
    return lambda done, total: progress(at * total + done, parts * total)


def _mean_of_blocks(found: Sequence[MetricValue]) -> MetricValue:
    """The mean of the values of all blocks, with their spread if there are several; of nulls and exact values, too."""
    values = [each.value for each in found]
    mean = replace(
        found[0],
        value=statistics.fmean(values),
        null=_mean_of([each.null for each in found]),
        exact_value=_mean_of([each.exact_value for each in found]),
    )
    if len(found) == 1:
        return mean
    return replace(mean, spread=statistics.stdev(values), spread_over="blocks of equal size")


def _mean_of(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.fmean(known) if len(known) == len(numbers) else None
