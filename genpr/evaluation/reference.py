"""The reals of one plan, fitted once, and the score of any number of fake sets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any, TypeVar

from genpr import __version__
from genpr.distributed import current_communicator
from genpr.errors import FeatureError
from genpr.evaluation.diagnostics import decoding_notices, notices_of
from genpr.evaluation.fitted_metrics import FittedMetrics, MetricScores, Moments, NeighborResult, control_of
from genpr.evaluation.label_metrics import LabelConfig, LabelScorer, RecognizedLabels
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
    HubSummary,
    Identities,
    Result,
    SideSummary,
    StatisticsSummary,
    package_versions,
)
from genpr.features.extractor import ExtractorInfo, check_same_extractor
from genpr.features.inputs import check_same_weights
from genpr.features.source_features import Embedder, SourceFeatures, with_cpu_fallback
from genpr.features.statistics import FeatureMoments, ReferenceStatistics
from genpr.images.policy import choices_in
from genpr.metrics.frechet import Gaussian
from genpr.metrics.metric import DistributionMetric
from genpr.metrics.modes import RealKinds
from genpr.metrics.neighbor_metrics import Values
from genpr.metrics.registry import METRICS
from genpr.metrics.value import Control, MetricValue
from genpr.notices import Notice

_Found = TypeVar("_Found")


class FittedReference:
    """The fitted reals of one plan.

    If `device="auto"` chose a GPU with too little memory, everything is fitted again on the CPU, which all later scores use;
    their notices state this.
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
        most = plan.needs["real"].most
        self.real = real if most is None else real.cut(most)
        self.reals = self.real[plan.main]
        self._embedder, self._held_out, self._labels = embedder, held_out, labels
        self._identities = Identities.from_features(self.reals)
        self._real_summary = SideSummary.from_features(self.reals, self._identities)
        if self.reals.statistics is not None:
            content = self.reals.statistics.content
            self._real_summary = replace(self._real_summary, content=content, order=content)
        self._statistics_summary = self._held_out_summary = None
        self._notices: tuple[Notice, ...] = ()
        if plan.statistics is not None:
            self._statistics_summary = StatisticsSummary.from_statistics(plan.statistics, plan.given)
        if held_out is not None:
            kept = held_out[plan.own]
            self._held_out_summary = SideSummary.from_features(kept, Identities.from_features(kept))
            self._notices = (*decoding_notices("held-out", kept), *kept.notices)
        # The clusters of the reals are computed on first use, since only neighbor metrics need them.
        self._real_kinds = cache(partial(RealKinds.fit, self.reals.features, seed=embedder.options.seed))
        self._control: Control | None = None
        self._label_scorer: LabelScorer | None = None
        self._fitted: FittedMetrics | None = None
        self._run(self._fit)
        if not current_communicator().is_single_process:  # labels and statistics, too
            current_communicator().check_same(self.recipe, "options")

    @property
    def content(self) -> str:
        """Hash of the contents of the reals, independent of their order."""
        return self._real_summary.content

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything that determines a score except the fakes, as plain JSON types."""
        plan, embedder, held_out = self.plan, self._embedder, self._held_out_summary
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

    def score(self, fake: SourceFeatures) -> Result:
        """Score a fake set that is embedded by all extractors of the plan."""
        result, _, _ = self._run(partial(self._score, fake))
        return replace(result, notices=tuple(dict.fromkeys((*result.notices, *self._notices))))

    def per_image(self, fake: SourceFeatures) -> PerImageScores:
        """Score a fake set and keep the values of each image, after `check_samples`."""
        found = self._run(partial(self._score_images, fake))
        result = replace(found.result, notices=tuple(dict.fromkeys((*found.result.notices, *self._notices))))
        return replace(found, result=result)

    def _run(self, work: Callable[[Embedder], _Found]) -> _Found:
        found, notices = with_cpu_fallback(self._embedder, work, "for the metrics")
        self._notices = tuple(dict.fromkeys((*self._notices, *notices)))
        return found

    def _fit(self, embedder: Embedder) -> None:
        self._fitted = self._label_scorer = None  # they hold memory
        self._embedder = embedder
        plan = self.plan
        given = _gaussians(plan.given) if plan.given else {}
        # First, since its halves need as much memory as the reals, and nothing of it is kept.
        started = time.perf_counter()
        self._control = control_of(plan, self.real, embedder) if plan.control else None
        self._control_seconds = time.perf_counter() - started
        self._fitted = FittedMetrics(plan, self.real, embedder, given=given, held_out=self._held_out)
        if self._labels is not None:
            self._label_scorer = LabelScorer(self._labels, self.reals, plan, embedder)

    def _score(
        self, fake: SourceFeatures, embedder: Embedder
    ) -> tuple[Result, MetricScores, RecognizedLabels | None]:
        """The result, its values and searches, and the labels if they are compared."""
        # If the GPU ran out of memory, or the last fit did.
        if embedder is not self._embedder or self._fitted is None:
            self._fit(embedder)
        assert self._fitted is not None
        most = self.plan.needs["fake"].most
        fakes = fake if most is None else fake.cut(most)
        for extractor in self.plan.needs["real"].extractors:
            check_same_weights(self.real[extractor], fakes[extractor])
        if self.plan.statistics is not None:
            self._check_fakes(fakes, self.plan.statistics, self.plan.given)
        is_used = self.plan.protocol.reference_statistics == "with images"
        found, given = self._statistics_of_fakes(fakes) if is_used else (None, {})
        scores = self._fitted.score(fakes, _gaussians(given) if given else {})
        result = self._result(fakes, scores, found if given else None)
        if self._label_scorer is None:
            return result, scores, None
        result, labels = self._label_scorer.add_to(result, fakes.opened, fakes[self.plan.main])
        return result, scores, labels

    def _score_images(self, fake: SourceFeatures, embedder: Embedder) -> PerImageScores:
        result, scores, seen = self._score(fake, embedder)
        assert self._fitted is not None
        assert scores.neighbors is not None
        rows = self._fitted.sample_rows(scores.neighbors)
        k, ties = self.plan.sample_ks, self.plan.ties
        return replace(
            PerImageScores.from_result(result, scores.neighbors, rows, k=k, ties=ties), labels=seen
        )

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

    def _result(
        self, fake: SourceFeatures, scores: MetricScores, statistics: ReferenceStatistics | None
    ) -> Result:
        plan, embedder, neighbors = self.plan, self._embedder, scores.neighbors
        metrics, extractors, undefined = self._values(fake, scores.values)
        reals, fakes = self.reals, fake[self.plan.main]
        fake_ids = Identities.from_features(fakes)
        deviations = self._deviations(metrics, len(fakes))
        find = partial(
            notices_of,
            reals,
            fakes,
            (self._identities, fake_ids),
            metrics,
            plan=plan,
            source=fake,
            fake_labels=None if self._labels is None else self._labels.options.fake_labels,
            statistics=statistics,
            device=embedder.device,
            deviations=deviations,
            neighbors=neighbors,
            kinds=self._real_kinds,
        )
        return Result(
            metrics=metrics,
            protocol=plan.protocol.name,
            ties=plan.ties,
            extractor=fakes.extractor or reals.extractor,
            extractors=extractors,
            deviations=deviations,
            real=self._real_summary,
            fake=SideSummary.from_features(fakes, fake_ids),
            n_shared=fake_ids.n_shared_with(self._identities),
            device=str(embedder.device),
            seed=embedder.options.seed,
            max_images=embedder.options.max_images,
            seconds={**scores.seconds, "control": self._control_seconds},
            versions={**package_versions()},
            notices=find() if current_communicator().is_single_process else _from_rank0(find),
            hubness=None if neighbors is None else self._hubs(neighbors),
            control=self._control,
            held_out=self._held_out_summary,
            undefined=undefined,
            reference_statistics=self._statistics_summary,
        )

    def _hubs(self, neighbors: NeighborResult) -> HubSummary | None:
        if neighbors.diagnostics is None:
            return None
        facts = asdict(neighbors.diagnostics.hubness)
        return HubSummary(largest_name=self.reals.name_of(facts.pop("largest_row")), **facts)

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


def _gaussians(given: Mapping[str, FeatureMoments]) -> Moments:
    """Gaussians without the number of images, which would bound the rank of possibly regularized covariances."""
    return {name: Gaussian.from_moments(each.mean, each.covariance) for name, each in given.items()}


def _from_rank0(find: Callable[[], tuple[Notice, ...]]) -> tuple[Notice, ...]:
    """The notices of rank 0, on all ranks."""
    communicator = current_communicator()
    records = communicator.broadcast_from_rank0(lambda: [asdict(item) for item in find()])
    return tuple(Notice(**record) for record in records)
