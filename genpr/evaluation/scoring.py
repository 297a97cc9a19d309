"""The real side of every metric of a score, fitted once, and the values it gives for fake features."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from genpr.evaluation.protocols import EvaluationProtocol, Ties
from genpr.evaluation.values import MetricValue
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Space
from genpr.features.feature_set import FeatureSet
from genpr.images.source import choose_rows
from genpr.metrics.emulated_manifold import EmulatedSide
from genpr.metrics.evidence import Evidence
from genpr.metrics.frechet import Gaussian
from genpr.metrics.metric import DistributionMetric, DistributionOptions
from genpr.metrics.neighbour_metrics import Lack, NeighbourMetrics, NeighbourValue
from genpr.metrics.progress import PairProgress
from genpr.metrics.real_side import FakeSide, RealSide
from genpr.metrics.registry import BALLS, METRICS, NEIGHBORS, needed_balls
from genpr.metrics.uncertainty import interval_of


@dataclass(frozen=True, kw_only=True)
class ManifoldRecipe:
    """How neighbours are counted.

    Attributes:
        protocol: Sets the arithmetic and the numbers of rows.
        ks: k by metric.
        ties: "closed" or "strict".
        device: Where to compute.
        seed: Chooses rows where the protocol wants fewer, the halves of intervals, and blocks of fakes.
        intervals: Whether to find them.
        evidence: Whether to look for what the neighbours reveal beside the values.
    """

    protocol: EvaluationProtocol
    ks: Mapping[str, int]
    ties: Ties
    device: torch.device
    seed: int
    intervals: bool
    evidence: bool = True


@dataclass(frozen=True)
class _Fit:
    """The reals that are used, and their balls in the space of each member of the extractor, and on emulated distances if asked for."""

    reals: FeatureSet
    exact: tuple[NeighbourMetrics, ...]
    emulated: EmulatedSide | None


@dataclass(frozen=True)
class Searched:
    """The search behind a score.

    Attributes:
        reals: The reals among which neighbours were counted: a part of them, if the protocol limits them.
        fakes: Likewise.
        real_side: The reals with their balls.
        fake_side: The fakes, counted against them.
    """

    reals: FeatureSet
    fakes: FeatureSet
    real_side: RealSide
    fake_side: FakeSide


@dataclass(frozen=True)
class ManifoldScore:
    """One fake side among the reals' neighbours.

    Attributes:
        values: By metric, of the sides as they are; None where it is undefined.
        evidence: What the first member of the extractor reveals beside them; None where only a part was counted.
        lacks: What keeps metrics from the interval that was asked for.
        searched: What the first member of the extractor was counted by.
        of_blocks: The values of metrics that were also scored in blocks of equal size.
    """

    values: Mapping[str, MetricValue | None]
    evidence: Evidence | None
    lacks: Mapping[str, Lack]
    searched: Searched
    of_blocks: Mapping[str, MetricValue] = field(default_factory=dict)


class RealManifolds:
    """The reals' balls, in the space of each member of the extractor (usually there is one)."""

    def __init__(self, real: FeatureSet, recipe: ManifoldRecipe, progress: PairProgress) -> None:
        self._real = real
        self._recipe = recipe
        self._fits: dict[int | None, _Fit] = {}
        self._fit(self._rows(len(real)), progress)

    def score(self, fake: FeatureSet, progress: PairProgress) -> ManifoldScore:
        """Value and k of each metric, with its spread where the extractor has several members."""
        ks = self._recipe.ks
        rows = self._rows(len(self._real), len(fake))
        fit = self._fit(rows, progress)
        fake = _cut(fake, rows, self._recipe.seed)
        fakes = _members(fake)
        sides = zip(fit.exact, fakes, strict=True)
        exact, counted = zip(*(side.score(features, progress) for side, features in sides), strict=True)
        is_wanted = self._recipe.evidence and rows is None
        evidence = Evidence.of(fit.exact[0].side, counted[0], progress) if is_wanted else None
        variant = (
            None if rows is None else f"{rows:,} images of each side, drawn with seed {self._recipe.seed}"
        )
        values = {
            name: _joined(name, [member[name] for member in exact], k, variant) for name, k in ks.items()
        }
        lacks = {name: value.lack for name, value in exact[0].items() if value.lack is not None}
        if fit.emulated is not None:
            found = fit.emulated.memberships(fakes[0], ks=ks, progress=progress)
            values = {name: _emulated(name, values[name], BALLS[name](found, k)) for name, k in ks.items()}
        searched = Searched(fit.reals, fake, fit.exact[0].side, counted[0])
        return ManifoldScore(values, evidence, lacks, searched)

    def _rows(self, *sizes: int) -> int | None:
        """Of each side, if the protocol limits them: as many reals as fakes. None where that leaves all of them."""
        most = self._recipe.protocol.max_rows
        if most is None:
            return None
        rows = min(most, *sizes)
        return None if all(size == rows for size in sizes) else rows

    def _fit(self, rows: int | None, progress: PairProgress) -> _Fit:
        """Of so many reals; each number is fitted once."""
        if rows not in self._fits:
            self._fits[rows] = self._fitted(rows, progress)
        return self._fits[rows]

    def _fitted(self, rows: int | None, progress: PairProgress) -> _Fit:
        recipe = self._recipe
        real = _cut(self._real, rows, recipe.seed)
        reals = _members(real)
        exact = tuple(
            NeighbourMetrics(
                features,
                ks=recipe.ks,
                ties=recipe.ties,
                intervals=recipe.intervals,
                seed=recipe.seed,
                device=recipe.device,
                progress=progress,
            )
            for features in reals
        )
        if recipe.protocol.distances == "exact":
            return _Fit(real, exact, None)
        emulated = EmulatedSide.fit(
            reals[0],
            ks=[ball.k for ball in needed_balls(recipe.ks)[0]],
            emulation=recipe.protocol.distances,
            device=recipe.device,
            progress=progress,
        )
        return _Fit(real, exact, emulated)


def _cut(features: FeatureSet, rows: int | None, seed: int) -> FeatureSet:
    if rows is None or rows >= len(features):
        return features
    return features.select(torch.as_tensor(choose_rows(len(features), rows, seed)))


def _members(features: FeatureSet) -> tuple[Tensor, ...]:
    count = 1 if features.extractor is None else features.extractor.members
    return features.features.chunk(count, dim=1)


def _value(members: list[float], k: int | None, variant: str | None) -> MetricValue:
    if len(members) == 1:
        return MetricValue(members[0], k, variant=variant)
    spread = statistics.stdev(members)
    return MetricValue(
        statistics.fmean(members), k, spread=spread, spread_over="random networks", variant=variant
    )


def _joined(name: str, members: list[NeighbourValue], k: int, variant: str | None) -> MetricValue | None:
    """The mean over networks, with the interval of this mean: all of them saw the same halves."""
    known = [member.value for member in members if member.value is not None]
    if len(known) < len(members):
        return None
    value = _value(known, k, variant)
    nulls = [member.null for member in members if member.null is not None]
    null = statistics.fmean(nulls) if nulls else None
    value = replace(value, null=null, null_source=members[0].source if nulls else None)
    if members[0].replicates is None:
        return value
    replicates = torch.stack([member.replicates for member in members if member.replicates is not None])
    return _with_interval(replace(value, n_counted=members[0].n), name, replicates.mean(dim=0))


def _with_interval(value: MetricValue, name: str, replicates: Tensor) -> MetricValue:
    assert value.n_counted is not None
    interval = interval_of(value.value, replicates, n=value.n_counted, upper=NEIGHBORS[name].upper)
    return replace(value, interval=(interval.low, interval.high), replicates=tuple(replicates.tolist()))


def _emulated(name: str, exact: MetricValue | None, value: float) -> MetricValue:
    """The value on emulated distances, with the interval of the exact one around it."""
    assert exact is not None
    found = replace(exact, value=value, exact=False, exact_value=exact.value)
    return found if exact.interval is None else _moved(found, value - exact.value, name)


def _moved(value: MetricValue, by: float, name: str) -> MetricValue:
    assert value.interval is not None
    low, high = value.interval
    upper = NEIGHBORS[name].upper
    high = high + by if upper is None else min(high + by, upper)
    return replace(value, interval=(max(low + by, 0.0), high))


class RealCompanions:
    """The reals' part of the metrics that count no neighbours.

    Args:
        spaces: The space of each metric.
        real: The real side, with all of them embedded that look at reals.
        given: Mean and covariance that came with the reals, by metric.
        options: What the protocol chooses.
    """

    def __init__(
        self,
        spaces: Mapping[str, Space],
        real: SideFeatures,
        given: Mapping[str, Gaussian],
        options: DistributionOptions,
    ) -> None:
        self._spaces = spaces
        self._options = options
        self._given = given
        self._fitted = {
            name: tuple(
                _distribution_metric(name).fit(given.get(name, features), options)
                for features in _members(real[space])
            )
            for name, space in spaces.items()
            if METRICS[name].uses_reals
        }

    def score(self, fake: SideFeatures, given: Mapping[str, Gaussian]) -> dict[str, MetricValue]:
        """The value of each metric; `given` is what came with the fakes, as with the reals."""
        return {
            name: self._of(name, _members(fake[space]), given.get(name))
            for name, space in self._spaces.items()
        }

    def _of(self, name: str, members: Sequence[Tensor], given: Gaussian | None) -> MetricValue:
        reals = self._fitted.get(name) or (None,) * len(members)
        metric = _distribution_metric(name)
        found = [
            metric.compute(fitted, features if given is None else given, self._options)
            for fitted, features in zip(reals, members, strict=True)
        ]
        variant = self._moments(name, given) or found[0].variant
        if len(found) == 1:
            value, spread, over, _ = found[0]
            return MetricValue(value, None, spread=spread, spread_over=over, variant=variant)
        return _value([each.value for each in found], None, variant)

    def _moments(self, name: str, fake: Gaussian | None) -> str | None:
        """Which mean and covariance were not computed here, and a hash of them."""
        parts = [
            f"{role} mean and covariance as given (sha256 {_digest(moments)})"
            for role, moments in (("real", self._given.get(name)), ("fake", fake))
            if moments is not None
        ]
        return "; ".join(parts) or None


def _distribution_metric(name: str) -> DistributionMetric:
    metric = METRICS[name]
    assert isinstance(metric, DistributionMetric)
    return metric


def _digest(moments: Gaussian) -> str:
    content = (moments.mean.cpu().numpy().tobytes(), moments.covariance.cpu().numpy().tobytes())
    return hashlib.sha256(b"".join(content)).hexdigest()[:12]
