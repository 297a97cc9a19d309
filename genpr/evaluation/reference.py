"""The reals of one plan: fitted once, with the metrics of any number of fake sets."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from genpr import __version__
from genpr.distributed import current_communicator, single_process
from genpr.errors import FeatureError
from genpr.evaluation.label_metrics import LabelConfig, LabelScorer, RecognizedLabels
from genpr.evaluation.notices_of_score import Evidence, decoding_notices, notices_of
from genpr.evaluation.per_image import PerImageScores
from genpr.evaluation.plan import (
    ScorePlan,
    check_width,
    given_moments,
    is_custom,
    statistics_beside,
    takes_moments,
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
from genpr.features.inputs import check_same_weights
from genpr.features.source_features import Embedder, SourceFeatures
from genpr.features.statistics import FeatureMoments, ReferenceStatistics
from genpr.images.policy import choices_in
from genpr.images.source import choose_rows
from genpr.metrics.frechet import Gaussian, of_reals
from genpr.metrics.metric import Control, DistributionMetric, DistributionOptions, HeldOutMetric, MetricValue
from genpr.metrics.modes import RealKinds
from genpr.metrics.neighbor_metrics import NeighborMetrics, NeighborScores, Values
from genpr.metrics.registry import HELD_OUT, METRICS
from genpr.metrics.samples import sample_rows
from genpr.metrics.suspects import ManifoldDiagnostics
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
    # reals and fakes among which neighbors were counted: parts of them, if the protocol limits their number
    counted: tuple[FeatureSet, FeatureSet] | None


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
        self.reals = self.real[plan.main]
        self.embedder, self._held_out, self._labels = embedder, held_out, labels
        self._held_out_summary: SideSummary | None = None
        self._notices: tuple[Notice, ...] = ()
        if held_out is not None:
            kept = held_out[plan.own]
            self._held_out_summary = SideSummary.from_features(kept, Identities.from_features(kept))
            self._notices = (*decoding_notices("held-out", kept), *kept.notices)
        self._fits: dict[int | None, tuple[FeatureSet, NeighborMetrics]] = {}
        self._options = DistributionOptions(
            device=embedder.device,
            inception_score_split_size=plan.protocol.inception_score_split_size,
            interval_seed=embedder.options.seed if plan.intervals else None,
        )
        # First, since its halves need as much memory as the reals, and nothing of it is kept.
        started = time.perf_counter()
        self._control = control_of(plan, self.real, embedder) if plan.control else None
        self._fit_seconds = {"control": _since(started)}
        started = time.perf_counter()
        self._distances = self._fitted_distances()
        self._fit_seconds["companions"] = _since(started)
        started = time.perf_counter()
        self._report(0, 1)
        if plan.ks:
            self._fitted_neighbors(self._limit(len(self.real[plan.own])))
        self._report(1, 1)
        self._fit_seconds["fit_real"] = _since(started)
        self._label_scorer = None if labels is None else LabelScorer(labels, self.reals, plan, embedder)

    @cached_property
    def _identities(self) -> Identities:
        return Identities.from_features(self.reals)

    @cached_property
    def _real_summary(self) -> SideSummary:
        summary = SideSummary.from_features(self.reals, self._identities)
        if self.reals.statistics is None:
            return summary
        content = self.reals.statistics.content
        return replace(summary, content=content, order=content)

    @cached_property
    def _real_kinds(self) -> RealKinds | None:
        """The clusters of the reals, which only metrics of neighbors need."""
        return RealKinds.fit(self.reals.features, seed=self.embedder.options.seed)

    @property
    def content(self) -> str:
        """Hash of the contents of the reals, independent of their order."""
        return self._real_summary.content

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
            "real": self._real_summary.order,
            "held_out": None if held_out is None else held_out.order,
            **({} if self._label_scorer is None else {"labels": self._label_scorer.recipe}),
            **({} if plan.statistics is None else {"statistics": plan.statistics.content}),
        }

    def check_ranks(self) -> None:
        """Raise an error if other ranks have other reals or options ("ranks-differ"); labels and statistics count, too."""
        if not current_communicator().is_single_process:
            current_communicator().check_same(self.recipe, "options")

    def score(self, fake: SourceFeatures) -> Result:
        """Score a fake set that is embedded by all extractors of the plan."""
        result, _, _ = self._score(fake)
        return result

    def per_image(self, fake: SourceFeatures) -> PerImageScores:
        """Score a fake set and keep the values of each image, after `check_samples`."""
        result, evidence, labels = self._score(fake)
        assert evidence.neighbors is not None
        assert evidence.counted is not None
        copies = None if evidence.diagnostics is None else evidence.diagnostics.near_copies
        k, ties = self.plan.sample_ks, self.plan.ties
        self._report(0, 1)
        rows = sample_rows(
            evidence.neighbors.reals,
            evidence.neighbors.fakes.points,
            ks=k,
            nearest_reals=None if copies is None else copies.nearest,
            progress=self._progress,
        )
        self._report(1, 1)
        return replace(
            PerImageScores.from_rows(result, evidence.counted, rows, k=k, ties=ties), labels=labels
        )

    def values(self, fake: SourceFeatures, given: Moments | None = None) -> Scores:
        """Every metric of one fake set; `given` is the mean and covariance that came with the fakes."""
        started = time.perf_counter()
        values = self._distances_of(fake, given or {}) if self._distances else {}
        seconds = self._fit_seconds | {"companions": self._fit_seconds["companions"] + _since(started)}
        started, neighbors, counted = time.perf_counter(), None, None
        self._report(0, 1)
        if self.plan.ks:
            neighbors, *counted = self._neighbors_of(fake[self.plan.own])
            values |= neighbors.values
        for name in HELD_OUT.intersection(self.plan.extractors):
            values[name] = self._held_out_value(name, fake)
        self._report(1, 1)
        seconds["score_fake"] = _since(started)
        return Scores(values, seconds, neighbors, None if counted is None else (counted[0], counted[1]))

    def _fitted_distances(self) -> dict[str, Tensor | Gaussian | None]:
        """What each metric of distributions needs of the reals, on the first rank, which computes these metrics for all."""
        given = _gaussians(self.plan.given)
        fitted: dict[str, Tensor | Gaussian | None] = {
            name: None for name in self.plan.extractors if isinstance(METRICS[name], DistributionMetric)
        }
        if fitted and current_communicator().is_rank_zero:
            with _whole_machine(), single_process():
                for name in fitted:
                    metric = METRICS[name]
                    if isinstance(metric, DistributionMetric) and metric.uses_reals:
                        reals = (
                            given[name] if name in given else self.real[self.plan.extractors[name]].features
                        )
                        fitted[name] = of_reals(reals, self.embedder.device) if metric.uses_moments else reals
        return fitted

    def _distances_of(self, fake: SourceFeatures, given: Moments) -> Values:
        machine = _whole_machine()

        def records() -> dict[str, Any]:
            with machine:
                return {
                    name: asdict(self._distance_of(name, fake, given.get(name))) for name in self._distances
                }

        records_by_name = current_communicator().broadcast_from_rank0(records)
        return {name: MetricValue(**record) for name, record in records_by_name.items()}

    def _distance_of(self, name: str, fake: SourceFeatures, given: Gaussian | None) -> MetricValue:
        metric, ours = METRICS[name], _gaussians(self.plan.given).get(name)
        assert isinstance(metric, DistributionMetric)
        fakes = fake[self.plan.extractors[name]].features if given is None else given
        value = metric.compute(self._distances[name], fakes, self._options)
        moments = [
            f"{role} mean and covariance as given (sha256 {_digest(each)})"
            for role, each in (("real", ours), ("fake", given))
            if each is not None
        ]
        return replace(value, variant="; ".join(moments) or value.variant)

    def _fitted_neighbors(self, limit: int | None) -> tuple[FeatureSet, NeighborMetrics]:
        """At most `limit` reals, and these fitted for the metrics of neighbors; kept by limit."""
        if limit not in self._fits:
            plan, seed = self.plan, self.embedder.options.seed
            reals = _chosen(self.real[plan.own], limit, seed)
            fitted = NeighborMetrics(
                reals.features,
                ks=plan.ks,
                ties=plan.ties,
                intervals=plan.intervals,
                seed=seed,
                device=self.embedder.device,
                progress=self._progress,
            )
            self._fits[limit] = reals, fitted
        return self._fits[limit]

    def _neighbors_of(self, fakes: FeatureSet) -> tuple[NeighborScores, FeatureSet, FeatureSet]:
        """The metrics of neighbors, with the reals and the fakes that were counted."""
        limit, seed = self._limit(len(self.real[self.plan.own]), len(fakes)), self.embedder.options.seed
        reals, fitted = self._fitted_neighbors(limit)
        fakes = _chosen(fakes, limit, seed)
        scores = fitted.score(fakes.features, self._progress)
        if limit is not None:
            variant = f"{limit:,} images of each side, drawn with seed {seed}"
            for name, value in scores.values.items():
                scores.values[name] = None if value is None else replace(value, variant=variant)
        return scores, reals, fakes

    def _limit(self, *sizes: int) -> int | None:
        """Rows of each set that are counted, as many reals as fakes; None if these are all."""
        most = self.plan.protocol.max_rows
        if most is None or {*sizes} == {min(most, *sizes)}:
            return None
        return min(most, *sizes)

    def _held_out_value(self, name: str, fake: SourceFeatures) -> MetricValue | None:
        """Undefined for the control, which has no held-out reals."""
        metric, own = METRICS[name], self.plan.own
        if self._held_out is None or not isinstance(metric, HeldOutMetric):
            return None
        sets = (each[own].features for each in (self.real, self._held_out, fake))
        return metric.compute(*sets, device=self.embedder.device, progress=self._progress)

    @property
    def _progress(self) -> Callable[[int, int], None] | None:
        return None if self.embedder.options.progress is None else self._report

    def _report(self, done: int, total: int) -> None:
        """Report how far a search is, its start and its end included."""
        if self.embedder.options.progress is not None:
            self.embedder.options.progress("neighbors", 100 * done // max(total, 1), 100)

    def _score(self, fake: SourceFeatures) -> tuple[Result, Evidence, RecognizedLabels | None]:
        """The result, what it was made from, and the labels if they are compared."""
        plan, most = self.plan, self.plan.needs["fake"].most
        fakes = fake if most is None else fake.limited_to(most)
        for extractor in plan.needs["real"].extractors:
            check_same_weights(self.real[extractor], fakes[extractor])
        if plan.statistics is not None:
            self._check_fakes(fakes, plan.statistics, plan.given)
        is_used = plan.protocol.reference_statistics == "with images"
        statistics, given = self._statistics_of_fakes(fakes) if is_used else (None, {})
        scores = self.values(fakes, _gaussians(given))
        metrics, extractors, undefined = self._values(fakes, scores.values)
        evidence = self._evidence(fakes, scores, metrics, statistics if given else None)
        result = self._result(evidence, extractors, undefined, scores.seconds)
        labels = None
        if self._label_scorer is not None:
            result, labels = self._label_scorer.add_to(result, fakes.opened, evidence.fakes)
        notices = tuple(dict.fromkeys((*result.notices, *self._notices)))
        return replace(result, notices=notices), evidence, labels

    def _values(
        self, fake: SourceFeatures, values: Values
    ) -> tuple[dict[str, MetricValue], dict[str, ExtractorInfo], tuple[str, ...]]:
        """The defined metrics with extractor and null, all extractors by name, and the undefined metrics."""
        extractors: dict[str, ExtractorInfo] = {}
        metrics: dict[str, MetricValue] = {}
        undefined = []
        for name, extractor in self.plan.extractors.items():
            info = fake[extractor].extractor
            if info is None and extractor in self.plan.needs["real"].extractors:
                info = self.real[extractor].extractor
            if info is not None:
                extractors[info.name] = info
            value = values[name]
            if value is None:
                undefined.append(name)
                continue
            if not math.isfinite(value.value) or not math.isfinite(value.spread or 0):
                text = (
                    f"{name} of these features exceeds the range of float64; check the scale of the features"
                )
                raise FeatureError(text, code="overflow")
            if value.null is None and self._control is not None and name in self._control.values:
                value = replace(value, null=self._control.values[name], null_source="real halves")
            metrics[name] = replace(value, extractor=None if info is None else info.name)
        return metrics, extractors, tuple(undefined)

    def _evidence(
        self,
        fake: SourceFeatures,
        scores: Scores,
        metrics: Mapping[str, MetricValue],
        statistics: ReferenceStatistics | None,
    ) -> Evidence:
        plan, neighbors, diagnostics = self.plan, scores.neighbors, None
        if neighbors is not None and scores.counted is not None:
            pairs = zip(scores.counted, (self.real, fake), strict=True)
            if all(counted is whole[plan.own] for counted, whole in pairs):
                progress = self._progress
                diagnostics = ManifoldDiagnostics.from_counts(
                    neighbors.reals, neighbors.fakes, neighbors.memberships, progress
                )
        return Evidence(
            plan=plan,
            reals=self.reals,
            fakes=fake[plan.main],
            identities=(self._identities, Identities.from_features(fake[plan.main])),
            fake_source=fake,
            metrics=metrics,
            deviations=self._deviations(metrics, len(fake[plan.main])),
            statistics=statistics,
            neighbors=neighbors,
            counted=scores.counted,
            diagnostics=diagnostics,
            kinds=lambda: self._real_kinds,
            device=self.embedder.device,
        )

    def _result(
        self,
        evidence: Evidence,
        extractors: Mapping[str, ExtractorInfo],
        undefined: tuple[str, ...],
        seconds: dict[str, float],
    ) -> Result:
        plan, options, fake_ids = self.plan, self.embedder.options, evidence.identities[1]
        find = partial(notices_of, evidence)
        statistics = None
        if plan.statistics is not None:
            statistics = StatisticsSummary.from_statistics(plan.statistics, plan.given)
        return Result(
            metrics=evidence.metrics,
            protocol=plan.protocol.name,
            ties=plan.ties,
            extractor=evidence.fakes.extractor or self.reals.extractor,
            extractors=extractors,
            deviations=evidence.deviations,
            real=self._real_summary,
            fake=SideSummary.from_features(evidence.fakes, fake_ids),
            n_shared=fake_ids.n_shared_with(self._identities),
            device=str(self.embedder.device),
            seed=options.seed,
            max_images=options.max_images,
            seconds=seconds,
            versions={**package_versions()},
            notices=find() if current_communicator().is_single_process else _from_rank0(find),
            control=self._control,
            held_out=self._held_out_summary,
            undefined=undefined,
            reference_statistics=statistics,
        )

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

    def _statistics_of_fakes(
        self, fakes: SourceFeatures
    ) -> tuple[ReferenceStatistics | None, Mapping[str, FeatureMoments]]:
        """The statistics in the file of the fakes, and their moments by metric."""
        found = statistics_beside(fakes.opened)
        if found is None:
            return None, {}
        given = given_moments(found, self.plan.extractors, self.plan.own, self.plan.protocol)
        self._check_fakes(fakes, found, given)
        return found, given

    def _deviations(self, metrics: Mapping[str, MetricValue], n_fake: int) -> tuple[str, ...]:
        """Descriptions of the deviations from the protocol."""
        protocol, statistics = self.plan.protocol, self.plan.statistics
        n_real = len(self.reals) if self.reals.statistics is None else None
        if statistics is not None and protocol.reference_statistics is None:
            n_real = statistics.count  # the number of images behind the moments
        unmet = list(protocol.deviations(n_real, n_fake))
        if "metrics" in protocol.free:
            return tuple(unmet)
        if "extractor" not in protocol.free and any(metric.extractor is None for metric in metrics.values()):
            unmet.append(f"features of unknown origin where {protocol.name} needs {protocol.extractor}")
        if protocol.reference_statistics == "published":
            unmet += [
                f"{name} from real images where {protocol.name} needs published statistics (--reference-statistics)"
                for name in filter(takes_moments, metrics)
                if name not in self.plan.given
            ]
        for name, value in metrics.items():
            metric = METRICS.get(name)
            samples_subsets = isinstance(metric, DistributionMetric) and metric.samples_subsets
            if samples_subsets and value.variant is not None:
                unmet.append(f"{name} on {value.variant} where {protocol.name} needs 1,000")
        return tuple(unmet)


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


def _chosen(features: FeatureSet, limit: int | None, seed: int) -> FeatureSet:
    """At most `limit` random rows."""
    if limit is None or limit >= len(features):
        return features
    return features.select(torch.as_tensor(choose_rows(len(features), limit, seed)))


def _whole_machine() -> AbstractContextManager[None]:
    """Use the cores of all ranks of this machine, while the others wait for this one."""
    return nullcontext() if current_communicator().is_single_process else all_cores()


def _digest(moments: Gaussian) -> str:
    content = (moments.mean.cpu().numpy().tobytes(), moments.covariance.cpu().numpy().tobytes())
    return hashlib.sha256(b"".join(content)).hexdigest()[:12]


def _since(started: float) -> float:
    return time.perf_counter() - started


def _gaussians(given: Mapping[str, FeatureMoments]) -> Moments:
    """Gaussians without the number of images, which would bound the rank of possibly regularized covariances."""
    return {name: Gaussian.from_moments(each.mean, each.covariance) for name, each in given.items()}


def _from_rank0(find: Callable[[], tuple[Notice, ...]]) -> tuple[Notice, ...]:
    """The notices of rank 0, on all ranks."""
    communicator = current_communicator()
    records = communicator.broadcast_from_rank0(lambda: [asdict(item) for item in find()])
    return tuple(Notice(**record) for record in records)
