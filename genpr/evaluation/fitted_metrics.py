"""Every metric of a plan, fitted to one set of reals: neighbor metrics, distribution metrics, and held-out tests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from genpr.distributed import current_communicator, single_process
from genpr.evaluation.plan import ScorePlan
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import Embedder, ExtractorKey, SourceFeatures
from genpr.images.source import choose_rows
from genpr.metrics.diagnostics import ManifoldDiagnostics
from genpr.metrics.frechet import Gaussian
from genpr.metrics.metric import DistributionMetric, DistributionOptions, HeldOutMetric, Metric
from genpr.metrics.neighbor_metrics import IntervalLimit, NeighborMetrics, Values
from genpr.metrics.real_manifold import CountedFakes, PairProgress, RealManifold
from genpr.metrics.registry import HELD_OUT, METRICS
from genpr.metrics.samples import Rows, sample_rows
from genpr.metrics.value import Control, MetricValue
from genpr.runtime import all_cores

Moments = Mapping[str, Gaussian]
"""Mean and covariance that come from a file, by metric."""


@dataclass(frozen=True)
class NeighborResult:
    """The neighbor metrics of one set of fakes."""

    values: Values  # by metric, of the sets as they are; None where a metric is undefined
    missing_intervals: Mapping[str, IntervalLimit]  # why metrics have no requested interval
    diagnostics: ManifoldDiagnostics | None
    # the reals among which neighbors were counted: a part of them, if the protocol limits them
    reals: FeatureSet
    fakes: FeatureSet  # the fakes, limited in the same way
    real_manifold: RealManifold  # the reals with their balls
    fake_side: CountedFakes  # the fakes, counted against them


@dataclass(frozen=True)
class _Fit:
    """The reals in use, fitted."""

    reals: FeatureSet
    fitted: NeighborMetrics


class FittedNeighbors:
    """The reals of one extractor, fitted for neighbor metrics."""

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
        self._max_rows = plan.protocol.max_rows
        self._fit(None if self._max_rows is None else self._limit(len(real)), progress)

    def score(self, fake: FeatureSet, progress: PairProgress | None = None) -> NeighborResult:
        """Every metric of one set of fakes."""
        limit, variant = None, None
        if self._max_rows is not None:
            limit = self._limit(len(self._real), len(fake))
        fit = self._fit(limit, progress)
        if limit is not None:
            variant = f"{limit:,} images of each side, drawn with seed {self._seed}"
            fake = _chosen(fake, limit, self._seed)
        found = fit.fitted.score(fake.features, progress)
        real_manifold, fakes, ks = fit.fitted.reals, found.fakes, self._plan.ks
        diagnostics = None
        if limit is None and self._diagnostics:
            diagnostics = ManifoldDiagnostics.from_counts(real_manifold, fakes, progress)
        values: Values = {}
        for name in ks:
            value = found.values[name]
            values[name] = None if value is None else replace(value, variant=variant)
        return NeighborResult(
            values, found.missing_intervals, diagnostics, fit.reals, fake, real_manifold, fakes
        )

    def _limit(self, *sizes: int) -> int | None:
        """Rows of each set: as many reals as fakes. None if these are all rows of both sets."""
        assert self._max_rows is not None
        rows = min(self._max_rows, *sizes)
        return None if {*sizes} == {rows} else rows

    def _fit(self, limit: int | None, progress: PairProgress | None) -> _Fit:
        """The fit to at most `limit` reals, cached by limit."""
        if limit in self._fits:
            return self._fits[limit]
        plan = self._plan
        real = self._real if limit is None else _chosen(self._real, limit, self._seed)
        fitted = NeighborMetrics(
            real.features,
            ks=plan.ks,
            ties=plan.ties,
            intervals=plan.intervals,
            seed=self._seed,
            device=self._device,
            progress=progress,
        )
        self._fits[limit] = _Fit(real, fitted)
        return self._fits[limit]


def _chosen(features: FeatureSet, limit: int, seed: int) -> FeatureSet:
    """At most `limit` random rows."""
    if limit >= len(features):
        return features
    return features.select(torch.as_tensor(choose_rows(len(features), limit, seed)))


@dataclass(frozen=True)
class MetricScores:
    """The metrics of one set of fakes."""

    values: Values  # by metric; None where one is undefined
    neighbors: NeighborResult | None  # the neighbor metrics with the search behind them
    seconds: dict[str, float]  # by stage, without embedding


class FittedMetrics:
    """Every metric of a plan, fitted to one set of reals."""

    def __init__(
        self,
        plan: ScorePlan,
        real: SourceFeatures,
        embedder: Embedder,
        *,
        given: Moments,
        held_out: SourceFeatures | None = None,
        diagnostics: bool = True,
    ) -> None:
        self._plan, self._real, self._embedder = plan, real, embedder
        self._given, self._held_out = given, held_out
        self._progress = None if embedder.options.progress is None else self._report
        self._options = DistributionOptions(
            device=embedder.device,
            inception_score_chunk=plan.protocol.inception_score_chunk,
            interval_seed=embedder.options.seed if plan.intervals else None,
        )
        started = time.perf_counter()
        self._distributions: dict[str, Tensor | Gaussian] = {}
        self._distribution_extractors: dict[str, ExtractorKey] = {}
        for name, extractor in plan.extractors.items():
            if isinstance(METRICS[name], DistributionMetric):
                self._distribution_extractors[name] = extractor
        if self._distribution_extractors and current_communicator().is_rank_zero:
            with _whole_machine(), single_process():
                for name, extractor in self._distribution_extractors.items():
                    metric = METRICS[name]
                    if isinstance(metric, DistributionMetric) and metric.uses_reals:
                        reals = given[name] if name in given else real[extractor].features
                        self._distributions[name] = metric.fit(reals, self._options)
        self._distribution_seconds = time.perf_counter() - started
        started = time.perf_counter()
        self._neighbors = None
        self._report(0, 1)
        if plan.ks:
            self._neighbors = FittedNeighbors(
                real[plan.own],
                plan,
                device=embedder.device,
                seed=embedder.options.seed,
                progress=self._progress,
                diagnostics=diagnostics,
            )
        self._report(1, 1)
        self._fit_seconds = time.perf_counter() - started

    def score(self, fake: SourceFeatures, given: Moments) -> MetricScores:
        """Every metric of one set of fakes; `given` is the mean and covariance that came with them."""
        plan = self._plan
        started = time.perf_counter()
        values = self._distribution_values(fake, given) if self._distribution_extractors else {}
        seconds = self._distribution_seconds + time.perf_counter() - started
        started = time.perf_counter()
        neighbors = None
        self._report(0, 1)
        if self._neighbors is not None:
            neighbors = self._neighbors.score(fake[plan.own], self._progress)
            values |= neighbors.values
        for name in HELD_OUT.intersection(plan.extractors):
            values[name] = self._held_out_value(METRICS[name], fake)
        self._report(1, 1)
        score_seconds = time.perf_counter() - started
        stages = {"fit_real": self._fit_seconds, "score_fake": score_seconds, "companions": seconds}
        return MetricScores(values, neighbors, stages)

    def sample_rows(self, neighbors: NeighborResult) -> tuple[Rows, Rows]:
        """The numbers of each image behind neighbor metrics."""
        copies = None if neighbors.diagnostics is None else neighbors.diagnostics.near_copies
        self._report(0, 1)
        rows = sample_rows(
            neighbors.real_manifold,
            neighbors.fake_side,
            ks=self._plan.sample_ks,
            nearest_reals=None if copies is None else copies.nearest,
            progress=self._progress,
        )
        self._report(1, 1)
        return rows

    def _distribution_values(self, fake: SourceFeatures, given: Moments) -> Values:
        """The metrics without neighbors: the first rank computes them for all."""
        machine = _whole_machine()

        def records() -> dict[str, Any]:
            with machine:
                return {
                    name: asdict(self._distribution_value(name, fake[extractor], given.get(name)))
                    for name, extractor in self._distribution_extractors.items()
                }

        found = current_communicator().broadcast_from_rank0(records)
        return {name: MetricValue(**record) for name, record in found.items()}

    def _distribution_value(self, name: str, fake: FeatureSet, given: Gaussian | None) -> MetricValue:
        metric = METRICS[name]
        assert isinstance(metric, DistributionMetric)
        fakes = fake.features if given is None else given
        found = metric.compute(self._distributions.get(name), fakes, self._options)
        moments = [
            f"{role} mean and covariance as given (sha256 {_digest(each)})"
            for role, each in (("real", self._given.get(name)), ("fake", given))
            if each is not None
        ]
        return replace(found, variant="; ".join(moments) or found.variant)

    def _held_out_value(self, metric: Metric, fake: SourceFeatures) -> MetricValue | None:
        """Undefined for the control, which has no held-out reals."""
        if self._held_out is None or not isinstance(metric, HeldOutMetric):
            return None
        sets = (each[self._plan.own].features for each in (self._real, self._held_out, fake))
        return metric.compute(*sets, device=self._embedder.device, progress=self._progress)

    def _report(self, done: int, total: int) -> None:
        """Report how far a search is, its start and its end included."""
        if self._embedder.options.progress is not None:
            self._embedder.options.progress("neighbors", 100 * done // max(total, 1), 100)


def control_of(plan: ScorePlan, real: SourceFeatures, embedder: Embedder) -> Control | None:
    """One half of the reals scored against the other; None where a half is too small for a metric."""
    plan = replace(plan, intervals=False)
    reals, fakes = real.halves()
    if reals.n < plan.needs["real"].least or fakes.n < plan.needs["fake"].least:
        return None
    found = FittedMetrics(plan, reals, embedder, given={}, diagnostics=False).score(fakes, {}).values
    values, nulls = dict[str, float](), dict[str, float | None]()
    for name, value in found.items():
        if value is not None:
            values[name], nulls[name] = value.value, value.null
    return Control(reals.n, fakes.n, values, nulls)


def _whole_machine() -> AbstractContextManager[None]:
    """Use the cores of all ranks of this machine, while the others wait for this one."""
    return nullcontext() if current_communicator().is_single_process else all_cores()


def _digest(moments: Gaussian) -> str:
    content = (moments.mean.cpu().numpy().tobytes(), moments.covariance.cpu().numpy().tobytes())
    return hashlib.sha256(b"".join(content)).hexdigest()[:12]
