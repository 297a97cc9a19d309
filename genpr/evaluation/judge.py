"""One protocol applied to one real set: fitted once, it judges any number of fake sets."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from genpr import __version__
from genpr.errors import FeatureError
from genpr.evaluation.diagnostics import near_duplicate_notices, no_intervals, suspicions
from genpr.evaluation.evidence import Evidence
from genpr.evaluation.findings import findings, found_by_first
from genpr.evaluation.identities import Identities
from genpr.evaluation.label_recipe import LabelRecipe
from genpr.evaluation.label_scorer import LabelScorer
from genpr.evaluation.label_values import LabelScore
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import HubSummary, Result, SideSummary, package_versions
from genpr.evaluation.scorer import Scored, Scorer, control_of, with_control
from genpr.evaluation.values import MetricValue
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import check_untrained
from genpr.images.policy import choices_in
from genpr.images.statistics import read_statistics
from genpr.metrics.evidence import Evidence as Suspects
from genpr.metrics.frechet import Gaussian
from genpr.metrics.metric import DistributionMetric
from genpr.metrics.modes.kinds import RealKinds
from genpr.metrics.registry import METRICS
from genpr.notices import Notice


class Judge:
    """A real side under one plan.

    Args:
        plan: What to compute.
        real: The real side, with every space embedded that the plan needs of it.
        embedder: How it was embedded.
        held_out: Other reals, embedded in the space of the score's own extractor.
        labels: What to do about labels; None for nothing.
    """

    def __init__(
        self,
        plan: ScorePlan,
        real: SideFeatures,
        embedder: Embedder,
        held_out: SideFeatures | None = None,
        labels: LabelRecipe | None = None,
    ) -> None:
        self._plan = plan
        self._embedder = embedder
        self._real = real.cut(plan.most_real)
        self._labels = {space: self._real[space].extractor for space in plan.real_spaces}
        self._real_identities = Identities.of(self._main(self._real))
        self._scorer = Scorer(
            plan, self._real, embedder, given=self._given_statistics(self._real), held_out=held_out
        )
        kept = None if held_out is None else held_out[plan.own]
        self._held_out = None if kept is None else SideSummary.of(kept, Identities.of(kept))
        started = time.perf_counter()
        self._control = control_of(plan, self._real, embedder) if plan.control else None
        self._control_seconds = time.perf_counter() - started
        self._label_scorer = None
        if labels is not None:
            self._label_scorer = LabelScorer(labels, self._real, self._main(self._real), plan, embedder)

    def score(self, fake: SideFeatures) -> Result:
        """Score one fake side, with every space of the plan embedded.

        Raises:
            DataError: It does not belong to the real side.
        """
        fakes = self._checked(fake)
        result = self._result(fakes, self._scorer.score(fakes, self._given_statistics(fakes)))
        labels = self._label_score(fakes)
        return result if labels is None else labels.added_to(result)

    def evidence(self, fake: SideFeatures) -> Evidence:
        """Score one fake side as `score` does, and keep what is known of each image, as `check_samples` allows.

        Raises:
            DataError: It does not belong to the real side.
        """
        fakes = self._checked(fake)
        scored = self._scorer.score(fakes, self._given_statistics(fakes))
        result = self._result(fakes, scored)
        rows = self._scorer.samples(scored)
        assert scored.searched is not None
        found = Evidence.of(result, scored.searched, rows, k=self._plan.sample_ks, ties=self._plan.ties)
        labels = self._label_score(fakes)
        return found if labels is None else replace(found, result=labels.added_to(result), labels=labels.seen)

    def _label_score(self, fakes: SideFeatures) -> LabelScore | None:
        """What labels say of a fake side; None if nobody asked."""
        return None if self._label_scorer is None else self._label_scorer.score(fakes, self._main(fakes))

    def _checked(self, fake: SideFeatures) -> SideFeatures:
        """As much of a fake side as is used."""
        fakes = fake.cut(self._plan.most_fake)
        for space in self._plan.real_spaces:
            check_untrained(self._real[space], fakes[space])
        return fakes

    @property
    def reals(self) -> FeatureSet:
        """The features that stand for the real side."""
        return self._main(self._real)

    @property
    def real(self) -> SideFeatures:
        """The reals, embedded."""
        return self._real

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything but the fakes that decides a score, as plain JSON types."""
        plan, embedder = self._plan, self._embedder
        extractors = [
            {"name": info.name, "weights": info.weights_sha256, "resize": info.resize, "code": info.cache_key}
            for info in self._labels.values()
            if info is not None
        ]
        decoding = {"real": choices_in(self.reals.decoder), "fake": embedder.decoding.choices}
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
            "seed": embedder.seed,
            "max_images": embedder.max_images,
            **({"decoding": decoding} if any(decoding.values()) else {}),
            "real": self._real_identities.order,
            "held_out": None if self._held_out is None else self._held_out.order,
            **({} if self._label_scorer is None else {"labels": self._label_scorer.recipe}),
        }

    def _given_statistics(self, side: SideFeatures) -> dict[str, Gaussian]:
        """Mean and covariance by metric, where the protocol takes them from a side's file.

        Raises:
            DataError: They are damaged, or of other features.
        """
        opened = side.side
        if (
            not self._plan.protocol.reference_statistics
            or isinstance(opened, FeatureSet)
            or not opened.on_disk
        ):
            return {}
        path = Path(opened.source.name)
        found = read_statistics(path) if path.suffix.lower() == ".npz" else None
        if found is None:
            return {}
        given = {"fid": (found.mu, found.sigma), "sfid": (found.mu_s, found.sigma_s)}
        moments = {}
        for name, (mean, covariance) in given.items():
            if mean is None or covariance is None or name not in self._plan.spaces:
                continue
            dim = side[self._plan.spaces[name]].features.shape[1]
            if len(mean) != dim:
                raise FeatureError(
                    f"the mean in {path} has {len(mean)} entries, but the features of {name} have {dim}",
                    code="statistics-shape",
                    path=str(path),
                )
            moments[name] = Gaussian.from_moments(mean, covariance)
        return moments

    @cached_property
    def _kinds(self) -> RealKinds:
        """Found when first needed: where no neighbours are counted, nobody asks."""
        return RealKinds.of(self._main(self._real).features, seed=self._embedder.seed)

    def _main(self, side: SideFeatures) -> FeatureSet:
        """The features that stand for a side: those of the score's own extractor, if they are used."""
        spaces = self._plan.real_spaces
        return side[self._plan.own if self._plan.own in spaces else spaces[0]]

    def _result(self, fake: SideFeatures, scored: Scored) -> Result:
        values = scored.values
        extractors = {
            name: fake[space].extractor or self._labels.get(space)
            for name, space in self._plan.spaces.items()
        }
        whole = {
            name: replace(
                with_control(name, value, self._control), extractor=None if info is None else info.name
            )
            for name, info in extractors.items()
            if (value := values[name]) is not None
        }
        metrics = whole | {
            name: replace(value, extractor=whole[name].extractor) for name, value in scored.of_blocks.items()
        }
        reals, fakes = self._main(self._real), self._main(fake)
        real_ids, fake_ids = self._real_identities, Identities.of(fakes)
        _check_finite(metrics)
        deviations = (*self._plan.protocol.deviations(len(reals), len(fakes)), *self._unmet(metrics))
        return Result(
            metrics=metrics,
            protocol=self._plan.protocol.name,
            ties=self._plan.ties,
            distances=self._plan.protocol.distances,
            extractor=fakes.extractor or reals.extractor,
            extractors={info.name: info for info in extractors.values() if info is not None},
            deviations=deviations,
            real=SideSummary.of(reals, real_ids),
            fake=SideSummary.of(fakes, fake_ids),
            n_shared=fake_ids.n_shared_with(real_ids),
            device=str(self._embedder.device),
            seed=self._embedder.seed,
            max_images=self._embedder.max_images,
            seconds={**scored.seconds, "control": self._control_seconds},
            versions=package_versions(),
            notices=found_by_first(lambda: self._notices(reals, fakes, fake_ids, whole, scored, deviations)),
            hubness=_hub_summary(scored.evidence, reals),
            control=self._control,
            held_out=self._held_out,
            undefined=tuple(name for name in self._plan.spaces if values[name] is None),
        )

    def _notices(
        self,
        reals: FeatureSet,
        fakes: FeatureSet,
        fake_ids: Identities,
        metrics: Mapping[str, MetricValue],
        scored: Scored,
        deviations: Sequence[str],
    ) -> tuple[Notice, ...]:
        """What a reader should know, most important first."""
        found = findings(
            reals,
            fakes,
            self._real_identities,
            fake_ids,
            protocol=self._plan.protocol.name,
            deviations=deviations,
        )
        told = {item.code for item in found}
        suspected = suspicions(
            reals,
            fakes,
            metrics,
            scored.evidence,
            kinds=None if scored.evidence is None else self._kinds,
            seed=self._embedder.seed,
            distinct=fake_ids.first_rows,
            told=told,
        )
        lacking = no_intervals(scored.lacks, self._plan.ks, min(len(reals), len(fakes)))
        return (*near_duplicate_notices(scored.evidence, told), *found, *suspected, *lacking)

    def _unmet(self, metrics: Mapping[str, MetricValue]) -> list[str]:
        """Where a pinned protocol could not be met beside the numbers of images, in words."""
        protocol = self._plan.protocol
        if "metrics" in protocol.free:
            return []
        unmet = []
        if "extractor" not in protocol.free and any(metric.extractor is None for metric in metrics.values()):
            unmet.append(f"features of unknown origin where {protocol.name} needs {protocol.extractor}")
        for name, metric in metrics.items():
            known = METRICS.get(name)
            if isinstance(known, DistributionMetric) and known.samples_subsets and metric.variant is not None:
                unmet.append(f"{name} on {metric.variant} where {protocol.name} needs 1,000")
        return unmet


def _check_finite(metrics: Mapping[str, MetricValue]) -> None:
    for name, metric in metrics.items():
        if not math.isfinite(metric.value) or not math.isfinite(metric.spread or 0):
            raise FeatureError(
                f"{name} of these features is beyond the range of float64; are they scaled as the extractor gives them?",
                code="overflow",
            )


def _hub_summary(evidence: Suspects | None, reals: FeatureSet) -> HubSummary | None:
    """With the name of the real, where names are known."""
    if evidence is None or evidence.hubness is None:
        return None
    found = evidence.hubness
    facts = {name: value for name, value in asdict(found).items() if name != "largest_row"}
    return HubSummary(k=evidence.k, largest_name=reals.name_of(found.largest_row), **facts)
