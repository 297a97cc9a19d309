"""Every metric of a plan, fitted to one set of reals: neighbor metrics, distribution metrics, and held-out tests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from genpr.distributed import current_communicator, single_process
from genpr.evaluation.fitted_neighbors import FittedNeighbors, NeighborResult, mean_over_networks
from genpr.evaluation.plan import ScorePlan
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import Embedder, ExtractorKey, SourceFeatures
from genpr.metrics.frechet import Gaussian
from genpr.metrics.metric import DistributionMetric, DistributionOptions, HeldOutMetric, Metric
from genpr.metrics.neighbor_metrics import Values
from genpr.metrics.registry import HELD_OUT, METRICS
from genpr.metrics.samples import FakeRows, RealRows, sample_rows
from genpr.metrics.value import Control, MetricValue
from genpr.runtime import all_cores

Moments = Mapping[str, Gaussian]
"""Mean and covariance that a protocol takes from a file, by metric."""


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
    ) -> None:
        self._plan, self._real, self._embedder = plan, real, embedder
        self._given, self._held_out = given, held_out
        self._progress = None if embedder.options.progress is None else self._report
        self._options = DistributionOptions(
            device=embedder.device, inception_score_chunk=plan.protocol.inception_score_chunk
        )
        started = time.perf_counter()
        self._distributions: dict[str, tuple[Tensor | Gaussian, ...]] = {}
        self._distribution_spaces: dict[str, ExtractorKey] = {}
        for name, space in plan.spaces.items():
            if isinstance(METRICS[name], DistributionMetric):
                self._distribution_spaces[name] = space
        if self._distribution_spaces and current_communicator().is_rank_zero:
            with _whole_machine(), single_process():
                self._fit_distributions()
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
            )
        self._report(1, 1)
        self._fit_seconds = time.perf_counter() - started

    def score(self, fake: SourceFeatures, given: Moments) -> MetricScores:
        """Every metric of one set of fakes; `given` is the mean and covariance that came with them."""
        plan = self._plan
        started = time.perf_counter()
        values = self._distribution_values(fake, given) if self._distribution_spaces else {}
        seconds = self._distribution_seconds + time.perf_counter() - started
        started = time.perf_counter()
        neighbors = None
        self._report(0, 1)
        if self._neighbors is not None:
            neighbors = self._neighbors.score(fake[plan.own], self._progress)
            values |= neighbors.values
        for name in HELD_OUT.intersection(plan.spaces):
            values[name] = self._held_out_value(METRICS[name], fake)
        self._report(1, 1)
        score_seconds = time.perf_counter() - started
        stages = {"fit_real": self._fit_seconds, "score_fake": score_seconds, "companions": seconds}
        return MetricScores(values, neighbors, stages)

    def sample_rows(self, neighbors: NeighborResult) -> tuple[FakeRows, RealRows]:
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

    def _fit_distributions(self) -> None:
        """Fit every distribution metric, for each network of its extractor."""
        for name, space in self._distribution_spaces.items():
            metric = METRICS[name]
            if isinstance(metric, DistributionMetric) and metric.uses_reals:
                self._distributions[name] = tuple(
                    metric.fit(self._given.get(name, each), self._options)
                    for each in self._real[space].networks
                )

    def _distribution_values(self, fake: SourceFeatures, given: Moments) -> Values:
        """The metrics without neighbors: the first rank computes them for all."""
        machine = _whole_machine()

        def records() -> dict[str, Any]:
            with machine:
                return {
                    name: asdict(self._distribution_value(name, fake[space], given.get(name)))
                    for name, space in self._distribution_spaces.items()
                }

        found = current_communicator().broadcast_from_rank0(records)
        return {name: MetricValue(**record) for name, record in found.items()}

    def _distribution_value(self, name: str, fake: FeatureSet, given: Gaussian | None) -> MetricValue:
        metric, networks = METRICS[name], fake.networks
        assert isinstance(metric, DistributionMetric)
        reals: Sequence[Tensor | Gaussian | None]
        reals = self._distributions.get(name, (None,) * len(networks))
        found = [
            metric.compute(real, features if given is None else given, self._options)
            for real, features in zip(reals, networks, strict=True)
        ]
        moments = [
            f"{role} mean and covariance as given (sha256 {_digest(each)})"
            for role, each in (("real", self._given.get(name)), ("fake", given))
            if each is not None
        ]
        return mean_over_networks(found, "; ".join(moments) or found[0].variant)

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
    plan = replace(plan, intervals=False, equal_sizes=False)  # halves of an odd number differ by one
    reals, fakes = real.halves()
    if reals.n < plan.needs["real"].least or fakes.n < plan.needs["fake"].least:
        return None
    found = FittedMetrics(plan, reals, embedder, given={}).score(fakes, {}).values
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
