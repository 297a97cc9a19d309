"""The reals under one plan: fitted once, and scored against any number of sets of fakes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from genpr import __version__
from genpr.errors import FeatureError
from genpr.evaluation.diagnostics import notices_of
from genpr.evaluation.fitted_metrics import FittedMetrics, MetricScores, Moments, control_of
from genpr.evaluation.label_metrics import LabelConfig, LabelScorer, RecognizedLabels
from genpr.evaluation.per_image import PerImageScores
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import HubSummary, Identities, Result, SideSummary, package_versions
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import check_same_weights
from genpr.features.source_features import Embedder, ExtractorKey, SourceFeatures, with_cpu_fallback
from genpr.images.policy import choices_in
from genpr.images.statistics import read_statistics
from genpr.metrics.clusters import RealKinds
from genpr.metrics.diagnostics import ManifoldDiagnostics
from genpr.metrics.frechet import Gaussian
from genpr.metrics.metric import DistributionMetric
from genpr.metrics.registry import METRICS
from genpr.metrics.value import Control, MetricValue
from genpr.notices import Notice, notice
from genpr.runtime import gpu_trouble

_Found = TypeVar("_Found")


class FittedReference:
    """The reals under one plan.

    Where `device="auto"` chose a GPU whose memory does not suffice, everything is fitted again on the CPU and stays
    there; the notices of every later result say so.

    Args:
        plan: What to compute.
        real: The reals, embedded in every space of the plan.
        embedder: How they were embedded, and where to compute.
        held_out: Other reals, embedded in the space of the score's own extractor.
        labels: How to compare labels; None for not.
    """

    def __init__(
        self,
        plan: ScorePlan,
        real: SourceFeatures,
        embedder: Embedder,
        held_out: SourceFeatures | None = None,
        labels: LabelConfig | None = None,
    ) -> None:
        self.plan = plan
        self.real = real.cut(plan.most_real)
        self._embedder, self._held_out, self._labels = embedder, held_out, labels
        self._identities = Identities.of(self.reals)
        self._held_out_summary = None
        if held_out is not None:
            kept = held_out[plan.own]
            self._held_out_summary = SideSummary.of(kept, Identities.of(kept))
        trouble = gpu_trouble() if embedder.options.device == "auto" else None
        self._notices = () if trouble is None else (notice("gpu-unusable", reason=trouble),)
        self._fitted: FittedMetrics | None = None
        self._control: Control | None = None
        self._label_scorer: LabelScorer | None = None
        self._with_fallback(lambda _: None)

    @property
    def reals(self) -> FeatureSet:
        """The features that stand for the reals."""
        return self._main(self.real)

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything but the fakes that decides a score, as plain JSON types."""
        plan, embedder, held_out = self.plan, self._embedder, self._held_out_summary
        infos = [self.real[space].extractor for space in plan.real_spaces]
        extractors = [
            {"name": info.name, "weights": info.weights_sha256, "resize": info.resize, "code": info.cache_key}
            for info in infos
            if info is not None
        ]
        decoding = {"real": choices_in(self.reals.decoder), "fake": embedder.options.decoding.choices}
        return {
            "genpr": __version__,
            "protocol": plan.protocol.name,
            "metrics": list(plan.spaces),
            "k": dict(plan.ks),
            "ties": plan.ties,
            "intervals": plan.intervals,
            "control": plan.control,
            "equal_sizes": plan.equal_sizes,
            "extractors": extractors,
            "seed": embedder.options.seed,
            "max_images": embedder.options.max_images,
            **({"decoding": decoding} if any(decoding.values()) else {}),
            "real": self._identities.order,
            "held_out": None if held_out is None else held_out.order,
            **({} if self._label_scorer is None else {"labels": self._label_scorer.recipe}),
        }

    def score(self, fake: SourceFeatures) -> Result:
        """Score one set of fakes that is embedded in every space of the plan.

        Raises:
            DataError: It does not belong to the reals.
        """
        result, notices = self._with_fallback(lambda fitted: self._score(fitted, fake)[0])
        return replace(result, notices=(*result.notices, *notices))

    def per_image(self, fake: SourceFeatures) -> PerImageScores:
        """Score one set of fakes as `score` does, and keep the numbers of each image, as `check_samples` allows.

        Raises:
            DataError: It does not belong to the reals.
        """

        def scored(fitted: FittedMetrics) -> PerImageScores:
            result, scores, seen = self._score(fitted, fake)
            assert scores.neighbors is not None
            rows = fitted.sample_rows(scores.neighbors)
            found = PerImageScores.of(
                result, scores.neighbors, rows, k=self.plan.sample_ks, ties=self.plan.ties
            )
            return replace(found, labels=seen)

        found, notices = self._with_fallback(scored)
        return replace(found, result=replace(found.result, notices=(*found.result.notices, *notices)))

    def _with_fallback(self, work: Callable[[FittedMetrics], _Found]) -> tuple[_Found, tuple[Notice, ...]]:
        """What `work` returns for the fitted metrics, and the notices about memory since they were first fitted."""

        def run(embedder: Embedder) -> _Found:
            if self._fitted is None or embedder is not self._embedder:
                self._fitted = self._label_scorer = None  # they hold memory
                self._fitted = self._fit(embedder)
            return work(self._fitted)

        found, notices = with_cpu_fallback(self._embedder, run, "for the metrics")
        self._notices = tuple(dict.fromkeys((*self._notices, *notices)))
        return found, self._notices

    def _fit(self, embedder: Embedder) -> FittedMetrics:
        plan, self._embedder = self.plan, embedder
        fitted = FittedMetrics(
            plan, self.real, embedder, given=self._given_moments(self.real), held_out=self._held_out
        )
        started = time.perf_counter()
        self._control = control_of(plan, self.real, embedder) if plan.control else None
        self._control_seconds = time.perf_counter() - started
        if self._labels is not None:
            self._label_scorer = LabelScorer(self._labels, self.real, self.reals, plan, embedder)
        return fitted

    def _score(
        self, fitted: FittedMetrics, fake: SourceFeatures
    ) -> tuple[Result, MetricScores, RecognizedLabels | None]:
        """The result, the values and searches behind it, and the labels if they are compared."""
        fakes = fake.cut(self.plan.most_fake)
        for space in self.plan.real_spaces:
            check_same_weights(self.real[space], fakes[space])
        scores = fitted.score(fakes, self._given_moments(fakes))
        result = self._result(fakes, scores)
        if self._label_scorer is None:
            return result, scores, None
        labels = self._label_scorer.score(fakes, self._main(fakes))
        return labels.added_to(result), scores, labels.recognized

    def _result(self, fake: SourceFeatures, scores: MetricScores) -> Result:
        plan, embedder, neighbors = self.plan, self._embedder, scores.neighbors
        infos: dict[str, ExtractorInfo | None] = {}
        metrics: dict[str, MetricValue] = {}
        for name, space in plan.spaces.items():
            infos[name] = info = fake[space].extractor or self._real_extractor(space)
            value = scores.values[name]
            if value is not None:
                value = self._with_control(name, value)
                metrics[name] = replace(value, extractor=None if info is None else info.name)
        whole = dict(metrics)
        for name, value in (neighbors.block_values if neighbors else {}).items():
            metrics[name] = replace(value, extractor=metrics[name].extractor)
        _check_finite(metrics)
        reals, fakes = self.reals, self._main(fake)
        fake_ids = Identities.of(fakes)
        protocol = plan.protocol
        deviations = (*protocol.deviations(len(reals), len(fakes)), *self._unmet(metrics))
        notices = notices_of(
            reals,
            fakes,
            (self._identities, fake_ids),
            whole,
            plan=plan,
            deviations=deviations,
            neighbors=neighbors,
            kinds=lambda: self._kinds,
            seed=embedder.options.seed,
        )
        return Result(
            metrics=metrics,
            protocol=protocol.name,
            ties=plan.ties,
            distances=protocol.distances,
            extractor=fakes.extractor or reals.extractor,
            extractors={info.name: info for info in infos.values() if info is not None},
            deviations=deviations,
            real=SideSummary.of(reals, self._identities),
            fake=SideSummary.of(fakes, fake_ids),
            n_shared=fake_ids.n_shared_with(self._identities),
            device=str(embedder.device),
            seed=embedder.options.seed,
            max_images=embedder.options.max_images,
            seconds={**scores.seconds, "control": self._control_seconds},
            versions=package_versions(),
            notices=notices,
            hubness=_hub_summary(neighbors.diagnostics, reals) if neighbors else None,
            control=self._control,
            held_out=self._held_out_summary,
            undefined=tuple(name for name in plan.spaces if scores.values[name] is None),
        )

    def _main(self, side: SourceFeatures) -> FeatureSet:
        """The features that stand for a set: those of the score's own extractor, if they are used."""
        spaces = self.plan.real_spaces
        return side[self.plan.own if self.plan.own in spaces else spaces[0]]

    def _real_extractor(self, space: ExtractorKey) -> ExtractorInfo | None:
        return self.real[space].extractor if space in self.plan.real_spaces else None

    def _with_control(self, name: str, value: MetricValue) -> MetricValue:
        """With the value of the control as null, where no other is known."""
        control = self._control
        if value.null is not None or control is None or name not in control.values:
            return value
        return replace(value, null=control.values[name], null_source="real halves")

    @cached_property
    def _kinds(self) -> RealKinds:
        """Computed when first needed: without neighbor metrics, nothing looks at them."""
        return RealKinds.of(self.reals.features, seed=self._embedder.options.seed)

    def _given_moments(self, side: SourceFeatures) -> Moments:
        """Mean and covariance by metric, where the protocol takes them from a source's file.

        Raises:
            DataError: They are damaged, or of other features.
        """
        opened = side.opened
        if (
            not self.plan.protocol.reference_statistics
            or isinstance(opened, FeatureSet)
            or not opened.on_disk
        ):
            return {}
        path = Path(opened.source.name)
        found = read_statistics(path) if path.suffix.lower() == ".npz" else None
        moments: dict[str, Gaussian] = {}
        for name, space in self.plan.spaces.items() if found is not None else ():
            metric = METRICS[name]
            if not isinstance(metric, DistributionMetric) or metric.file_moments is None:
                continue
            mean, covariance = (getattr(found, field) for field in metric.file_moments)
            if mean is None or covariance is None:
                continue
            dim = side[space].features.shape[1]
            if len(mean) != dim:
                raise FeatureError(
                    f"the mean in {path} has {len(mean)} entries, but the features of {name} have {dim}",
                    code="statistics-shape",
                    path=str(path),
                )
            moments[name] = Gaussian.from_moments(mean, covariance)
        return moments

    def _unmet(self, metrics: Mapping[str, MetricValue]) -> list[str]:
        """Where a pinned protocol could not be met except for the numbers of images, in words."""
        protocol = self.plan.protocol
        if "metrics" in protocol.free:
            return []
        unmet = []
        if "extractor" not in protocol.free and any(metric.extractor is None for metric in metrics.values()):
            unmet.append(f"features of unknown origin where {protocol.name} needs {protocol.extractor}")
        for name, value in metrics.items():
            metric = METRICS.get(name)
            if (
                isinstance(metric, DistributionMetric)
                and metric.samples_subsets
                and value.variant is not None
            ):
                unmet.append(f"{name} on {value.variant} where {protocol.name} needs 1,000")
        return unmet


def _check_finite(metrics: Mapping[str, MetricValue]) -> None:
    for name, metric in metrics.items():
        if not math.isfinite(metric.value) or not math.isfinite(metric.spread or 0):
            raise FeatureError(
                f"{name} of these features is beyond the range of float64; are they scaled as the extractor gives them?",
                code="overflow",
            )


def _hub_summary(diagnostics: ManifoldDiagnostics | None, reals: FeatureSet) -> HubSummary | None:
    """With the name of the real, where names are known."""
    if diagnostics is None or diagnostics.hubness is None:
        return None
    facts = asdict(diagnostics.hubness)
    row = facts.pop("largest_row")
    return HubSummary(k=diagnostics.k, largest_name=reals.name_of(row), **facts)
