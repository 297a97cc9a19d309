"""The reals of one plan: fitted once, with the metrics of any number of fake sets."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor

from genpr import __version__
from genpr.distributed import current_communicator, single_process
from genpr.errors import FeatureError
from genpr.evaluation.label_metrics import LabelConfig, LabelScorer
from genpr.evaluation.notices_of_score import Evidence, decoding_notices, notices_of
from genpr.evaluation.per_image import PerImageScores
from genpr.evaluation.plan import (
    ScorePlan,
    check_width,
    given_moments,
    is_custom,
    statistics_beside,
)
from genpr.evaluation.result import (
    Identities,
    Result,
    SideSummary,
    StatisticsSummary,
    package_versions,
)
from genpr.features.extractor import ExtractorInfo, check_same_extractor
from genpr.features.feature_set import FeatureSet
from genpr.features.options import StageProgress
from genpr.features.source_features import Embedder, SourceFeatures, check_same_input
from genpr.features.statistics import FeatureMoments, ReferenceStatistics
from genpr.images.policy import choices_in
from genpr.images.source import choose_rows
from genpr.metrics.frechet import Gaussian, of_reals
from genpr.metrics.metric import Control, DistributionOptions, HeldOutMetric, MetricValue
from genpr.metrics.modes import RealKinds
from genpr.metrics.neighbor_metrics import NeighborMetrics, NeighborScores, Values
from genpr.metrics.registry import DISTRIBUTIONS, HELD_OUT, METRICS
from genpr.metrics.samples import sample_rows
from genpr.metrics.suspects import ExaminedRows, ManifoldDiagnostics
from genpr.notices import Notice
from genpr.runtime import all_cores

Moments = Mapping[str, Gaussian]
"""Mean and covariance that come from a file, by metric."""


@dataclass(frozen=True)
class Scores:
    """Every metric of one fake set."""

    values: Values  # by metric; None where one is undefined
    seconds: dict[str, float]  # by stage, without embedding
    neighbors: NeighborScores | None  # the metrics of neighbors, with the search behind them
    counted: tuple[FeatureSet, FeatureSet] | None  # reals and fakes among which neighbors were counted
    limit: int | None  # of both, if these are parts, since the protocol limits their number


class Reference:
    """The reals of one plan, fitted on the device of an embedder."""

    def __init__(
        self,
        plan: ScorePlan,
        real: SourceFeatures,
        embedder: Embedder,
        held_out: SourceFeatures | None = None,
        labels: LabelConfig | None = None,
    ) -> None:
        self.plan = plan
        most = plan.needs["real"].most
        self.real = real if most is None else real.limited_to(most)
        extractors = plan.needs["real"].extractors
        self._main = plan.own if plan.own in extractors else extractors[0]
        self.reals = self.real[self._main]  # which identify the set in a result
        self.embedder, self._held_out = embedder, held_out
        self._held_out_summary: SideSummary | None = None
        self._notices: tuple[Notice, ...] = ()
        if held_out is not None:
            kept = held_out[plan.own]
            check_same_input(real[plan.own], kept)
            self._held_out_summary = SideSummary.from_features(kept)
            self._notices = (*decoding_notices("held-out", kept), *kept.notices)
        self._fits: dict[int | None, tuple[FeatureSet, NeighborMetrics]] = {}
        progress = embedder.options.progress
        self._progress = None if progress is None else partial(report_neighbors, progress)
        # The clusters of the reals, once a notice needs them.
        self._kinds = cache(partial(RealKinds.fit, self.reals.features, seed=embedder.options.seed))
        self._options = DistributionOptions(
            device=embedder.device,
            inception_score_split_size=plan.protocol.inception_score_split_size,
            interval_seed=embedder.options.seed if plan.intervals else None,
        )
        # First, since its halves need as much memory as the reals, and nothing of it is kept.
        started = time.perf_counter()
        self._control = control_of(plan, self.real, embedder) if plan.control else None
        self._fit_seconds = {"control": time.perf_counter() - started}
        started = time.perf_counter()
        self._given = _gaussians(plan.given) if plan.given else {}
        # What each metric of distributions needs of the reals, on the first rank, which computes these metrics for all.
        self._distances: dict[str, Tensor | Gaussian | None] = dict.fromkeys(
            filter(DISTRIBUTIONS.__contains__, plan.extractors)
        )
        if self._distances and current_communicator().is_rank_zero:
            with _whole_machine(), single_process():
                for name in self._distances:
                    metric, given = DISTRIBUTIONS[name], self._given.get(name)
                    if metric.kind != "fakes-only":
                        reals = self.real[plan.extractors[name]].features if given is None else given
                        self._distances[name] = (
                            of_reals(reals, embedder.device) if metric.uses_moments else reals
                        )
        self._fit_seconds["companions"] = time.perf_counter() - started
        started = time.perf_counter()
        self._report(0, 1)
        if plan.ks:
            self._fitted_neighbors(len(self.real[plan.own]))
        self._report(1, 1)
        self._fit_seconds["fit_real"] = time.perf_counter() - started
        self._label_scorer = None if labels is None else LabelScorer(labels, self.reals, plan, embedder)

    @cached_property
    def described_reals(self) -> tuple[Identities, SideSummary]:
        """Hashes and facts of the reals, which a control does not need."""
        identities = Identities.from_features(self.reals)
        return identities, SideSummary.from_features(self.reals, identities)

    @cached_property
    def _examined_reals(self) -> ExaminedRows | None:
        """Some of the reals, all of which are counted, with their nearest others."""
        return ExaminedRows.from_points(self._fitted_neighbors(len(self.real[self.plan.own]))[2].reals.points)

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything that determines a score except the fakes, as plain JSON types."""
        plan, embedder, held_out = self.plan, self.embedder, self._held_out_summary
        infos = [self.real[extractor].extractor for extractor in plan.needs["real"].extractors]
        extractors = [
            {"name": info.name, "weights": info.weights_sha256, "resize": info.resize, "code": info.cache_key}
            for info in infos
            if info is not None
        ]
        decoding = {"real": choices_in(self.reals.decoder), "fake": embedder.options.decoding.choices}
        return {
            "genpr": __version__,
            "protocol": plan.protocol.name,
            "metrics": list(plan.extractors),
            "k": dict(plan.ks),
            "ties": plan.ties,
            "intervals": plan.intervals,
            "control": plan.control,
            "extractors": extractors,
            "seed": embedder.options.seed,
            "max_images": embedder.options.max_images,
            **({"decoding": decoding} if any(decoding.values()) else {}),
            "real": self.described_reals[1].order,
            "held_out": None if held_out is None else held_out.order,
            **({} if self._label_scorer is None else {"labels": self._label_scorer.recipe}),
            **({} if plan.statistics is None else {"statistics": plan.statistics.content}),
        }

    def score(self, fake: SourceFeatures, *, by_image: bool = False) -> tuple[Result, PerImageScores | None]:
        """Score a fake set that is embedded by all extractors of the plan; `by_image` keeps the values of each image."""
        plan, most = self.plan, self.plan.needs["fake"].most
        fakes = fake if most is None else fake.limited_to(most)
        for extractor in plan.needs["real"].extractors:
            check_same_input(self.real[extractor], fakes[extractor])
        if plan.statistics is not None:
            self._check_fakes(fakes, plan.statistics, plan.given)
        beside, given = None, dict[str, FeatureMoments]()
        if plan.protocol.reference_statistics == "with images" and (
            beside := statistics_beside(fakes.opened)
        ):
            given = given_moments(beside, plan.extractors, plan.own, plan.protocol)
            self._check_fakes(fakes, beside, given)
        scores = self.values(fakes, _gaussians(given) if given else {})
        diagnostics, neighbors = None, scores.neighbors
        if neighbors is not None and scores.limit is None:
            diagnostics = ManifoldDiagnostics.from_counts(
                neighbors.reals,
                neighbors.fakes,
                neighbors.memberships,
                self._progress,
                examined_reals=lambda: self._examined_reals,
            )
        result, labels = self._result(fakes, scores, diagnostics, beside if given else None), None
        if self._label_scorer is not None:
            result, labels = self._label_scorer.add_to(result, fakes.opened, fakes[self._main])
        result = replace(result, notices=tuple(dict.fromkeys((*result.notices, *self._notices))))
        if not by_image:
            return result, None
        assert neighbors is not None
        assert scores.counted is not None
        copies = None if diagnostics is None else diagnostics.near_copies
        self._report(0, 1)
        rows = sample_rows(
            neighbors.reals,
            neighbors.fakes.points,
            ks=plan.sample_ks,
            nearest_reals=None if copies is None else copies.nearest,
            progress=self._progress,
        )
        self._report(1, 1)
        images = PerImageScores.from_rows(result, scores.counted, rows, k=plan.sample_ks, ties=plan.ties)
        return result, replace(images, labels=labels)

    def values(self, fake: SourceFeatures, given: Moments | None = None) -> Scores:
        """Every metric of one fake set; `given` is the mean and covariance that came with the fakes."""
        plan, started, values = self.plan, time.perf_counter(), dict[str, MetricValue | None]()
        if self._distances:
            machine = _whole_machine()

            def records() -> dict[str, Any]:
                found = {}
                with machine:
                    for name, reals in self._distances.items():
                        ours, theirs = self._given.get(name), (given or {}).get(name)
                        of_reals, of_fakes = self.real.get(plan.extractors[name]), fake[plan.extractors[name]]
                        fakes = of_fakes.features if theirs is None else theirs
                        options = replace(
                            self._options,
                            groups=(None if of_reals is None else of_reals.groups, of_fakes.groups),
                        )
                        value = DISTRIBUTIONS[name].compute(reals, fakes, options)
                        variant = _as_given(ours, theirs) or value.variant
                        found[name] = asdict(replace(value, variant=variant))
                return found

            on_all = current_communicator().broadcast_from_rank0(records)
            values |= {name: MetricValue(**record) for name, record in on_all.items()}
        companions = self._fit_seconds["companions"] + time.perf_counter() - started
        started, neighbors, counted, limit = time.perf_counter(), None, None, None
        self._report(0, 1)
        if plan.ks:
            fakes, seed = fake[plan.own], self.embedder.options.seed
            limit, reals, fitted = self._fitted_neighbors(len(self.real[plan.own]), len(fakes))
            counted = reals, fakes if limit is None else _chosen(fakes, limit, seed)
            neighbors = fitted.score(counted[1].features, self._progress, groups=counted[1].groups)
            values |= neighbors.values
            if limit is not None:
                variant = f"{limit:,} images of each side, drawn with seed {seed}"
                for name, value in neighbors.values.items():
                    values[name] = None if value is None else replace(value, variant=variant)
        for name in HELD_OUT.intersection(plan.extractors):
            metric = METRICS[name]
            values[name] = None  # undefined for the control, which has no held-out reals
            if self._held_out is not None and isinstance(metric, HeldOutMetric):
                sets = (each[plan.own].features for each in (self.real, self._held_out, fake))
                device = self.embedder.device
                values[name] = metric.compute(*sets, device=device, progress=self._progress)
        self._report(1, 1)
        seconds = {"companions": companions, "score_fake": time.perf_counter() - started}
        return Scores(values, self._fit_seconds | seconds, neighbors, counted, limit)

    def _fitted_neighbors(self, *sizes: int) -> tuple[int | None, FeatureSet, NeighborMetrics]:
        """The rows of sets of these sizes that are counted (None for all), these reals, and their fit; kept by limit.

        As many reals as fakes are counted.
        """
        plan, reals, seed = self.plan, self.real[self.plan.own], self.embedder.options.seed
        limit = plan.protocol.max_rows
        if limit is not None:
            limit = None if {*sizes} == {min(limit, *sizes)} else min(limit, *sizes)
        if limit not in self._fits:
            reals = reals if limit is None else _chosen(reals, limit, seed)
            fitted = NeighborMetrics(
                reals.features,
                ks=plan.ks,
                ties=plan.ties,
                intervals=plan.intervals,
                seed=seed,
                device=self.embedder.device,
                progress=self._progress,
                groups=reals.groups,
            )
            self._fits[limit] = reals, fitted
        return limit, *self._fits[limit]

    def _report(self, done: int, total: int) -> None:
        """Report the start or the end of a search."""
        if self._progress is not None:
            self._progress(done, total)

    def _result(
        self,
        fake: SourceFeatures,
        scores: Scores,
        diagnostics: ManifoldDiagnostics | None,
        statistics: ReferenceStatistics | None,
    ) -> Result:
        """The defined metrics with extractor and null, all facts about the two sets, and the notices."""
        plan, options, fakes = self.plan, self.embedder.options, fake[self._main]
        extractors, metrics, undefined = dict[str, ExtractorInfo](), dict[str, MetricValue](), list[str]()
        for name, extractor in plan.extractors.items():
            info = fake[extractor].extractor
            if info is None and extractor in plan.needs["real"].extractors:
                info = self.real[extractor].extractor
            if info is not None:
                extractors[info.name] = info
            value = scores.values[name]
            if value is None:
                undefined.append(name)
                continue
            if value.null is None and self._control is not None and name in self._control.values:
                value = replace(value, null=self._control.values[name], null_source="real halves")
            metrics[name] = replace(value, extractor=None if info is None else info.name)
        check_finite(metrics)
        n_real = len(self.reals) if self.reals.statistics is None else None
        if plan.statistics is not None and plan.protocol.reference_statistics is None:
            n_real = plan.statistics.count  # the number of images behind the moments
        of_reals, fake_ids = self.described_reals, Identities.from_features(fakes)
        given = plan.statistics
        result = Result(
            metrics=metrics,
            protocol=plan.protocol.name,
            ties=plan.ties,
            extractor=fakes.extractor or self.reals.extractor,
            extractors=extractors,
            deviations=plan.protocol.deviations(n_real, len(fakes), metrics, plan.given),
            real=of_reals[1],
            fake=SideSummary.from_features(fakes, fake_ids),
            n_shared=fake_ids.n_shared_with(of_reals[0]),
            device=str(self.embedder.device),
            seed=options.seed,
            max_images=options.max_images,
            seconds=scores.seconds,
            versions={**package_versions()},
            notices=(),
            control=self._control,
            held_out=self._held_out_summary,
            undefined=tuple(undefined),
            reference_statistics=None
            if given is None
            else StatisticsSummary.from_statistics(given, plan.given),
        )
        evidence = Evidence(
            plan=plan,
            result=result,
            reals=self.reals,
            fakes=fakes,
            identities=(of_reals[0], fake_ids),
            fake_source=fake,
            statistics=statistics,
            neighbors=scores.neighbors,
            diagnostics=diagnostics,
            kinds=self._kinds,
            device=self.embedder.device,
        )
        records = current_communicator().broadcast_from_rank0(
            lambda: [asdict(item) for item in notices_of(evidence)]
        )
        return replace(result, notices=tuple(Notice(**record) for record in records))

    def _check_fakes(
        self, fakes: SourceFeatures, statistics: ReferenceStatistics, given: Mapping[str, FeatureMoments]
    ) -> None:
        """Raise an error for moments of other features than those of the fakes, if both are known."""
        for name, moments in given.items():
            extractor = self.plan.extractors[name]
            features = fakes[extractor]
            check_width(statistics, moments, features.features.shape[1], name)
            ours, theirs = moments.info, features.extractor
            if ours is None or theirs is None:
                continue
            is_known = all(each.resize != "unknown" or each.weights_sha256 for each in (ours, theirs))
            if is_known or (is_custom(ours.name) and ours.name not in (theirs.name, extractor)):
                check_same_extractor(statistics.source, ours, features.source, theirs)


def control_of(plan: ScorePlan, real: SourceFeatures, embedder: Embedder) -> Control | None:
    """One half of the reals scored against the other; None where a half is too small for a metric."""
    plan = replace(plan, intervals=False, control=False, statistics=None, given={})
    reals, fakes = real.halves()
    if reals.n < plan.needs["real"].least or fakes.n < plan.needs["fake"].least:
        return None
    values, nulls = dict[str, float](), dict[str, float | None]()
    for name, value in Reference(plan, reals, embedder).values(fakes).values.items():
        if value is not None:
            values[name], nulls[name] = value.value, value.null
    return Control(reals.n, fakes.n, values, nulls)


def check_finite(metrics: Mapping[str, MetricValue]) -> None:
    """Raise an error for a value that exceeds the range of float64 ("overflow")."""
    for name, value in metrics.items():
        if not math.isfinite(value.value) or not math.isfinite(value.spread or 0):
            text = f"{name} of these features exceeds the range of float64; check the scale of the features"
            raise FeatureError(text, code="overflow")


def _chosen(features: FeatureSet, limit: int, seed: int) -> FeatureSet:
    """At most `limit` random rows."""
    if limit >= len(features):
        return features
    return features.select(torch.as_tensor(choose_rows(len(features), limit, seed)))


def _whole_machine() -> AbstractContextManager[None]:
    """Use the cores of all ranks of this machine, while the others wait for this one."""
    return nullcontext() if current_communicator().is_single_process else all_cores()


def _as_given(real: Gaussian | None, fake: Gaussian | None) -> str:
    """The given ones of these moments, by their content."""
    named = []
    for role, each in (("real", real), ("fake", fake)):
        if each is not None:
            content = each.mean.cpu().numpy().tobytes() + each.covariance.cpu().numpy().tobytes()
            sha256 = hashlib.sha256(content).hexdigest()
            named.append(f"{role} mean and covariance as given (sha256 {sha256[:12]})")
    return "; ".join(named)


def _gaussians(given: Mapping[str, FeatureMoments]) -> Moments:
    """Gaussians without the number of images, which would bound the rank of possibly regularized covariances."""
    return {name: Gaussian.from_moments(each.mean, each.covariance) for name, each in given.items()}


def report_neighbors(progress: StageProgress, done: int, total: int) -> None:
    """Report pairs of a search in percent, as the stage "neighbors"."""
    progress("neighbors", 100 * done // max(total, 1), 100)
