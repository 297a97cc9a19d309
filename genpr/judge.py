"""One protocol applied to one real set: fitted once, it judges any number of fake sets."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from genpr.errors import FeatureError
from genpr.features.feature_set import FeatureSet
from genpr.findings import Identities, findings
from genpr.images.statistics import read_statistics
from genpr.metrics.companions import CompanionOptions
from genpr.metrics.frechet import Gaussian
from genpr.plan import ScorePlan
from genpr.result import MetricValue, Result, SideSummary, package_versions
from genpr.scoring import ManifoldRecipe, RealCompanions, RealManifolds
from genpr.side_features import Embedder, SideFeatures, StageProgress
from genpr.sides import check_untrained

_OF_SUBSETS = ("kid", "kd")


@dataclass
class _Search:
    """A search among neighbours that is under way."""

    progress: StageProgress
    seconds: float = 0.0

    def report(self, done: int, total: int) -> None:
        """Pairs done with, as per cent."""
        self.progress("neighbours", 100 * done // max(total, 1), 100)


class Judge:
    """A real side under one plan.

    Args:
        plan: What to compute.
        real: The real side, with every space of the plan embedded.
        embedder: How it was embedded.
    """

    def __init__(self, plan: ScorePlan, real: SideFeatures, embedder: Embedder) -> None:
        protocol = plan.protocol
        self._plan = plan
        self._embedder = embedder
        self._real = real.cut(plan.most_real)
        self._labels = {space: self._real[space].extractor for space in plan.real_spaces}
        self._real_identities = Identities.of(self._main(self._real))
        options = CompanionOptions(
            device=embedder.device, inception_score_chunk=protocol.inception_score_chunk
        )
        companions = {name: space for name, space in plan.spaces.items() if name not in plan.ks}
        self._manifolds: RealManifolds | None = None
        started = time.perf_counter()
        self._companions = RealCompanions(companions, self._real, self._given_statistics(self._real), options)
        self._companion_seconds = time.perf_counter() - started
        with self._searching() as search:
            if plan.ks:
                recipe = ManifoldRecipe(
                    protocol=protocol, ks=plan.ks, ties=plan.ties, device=embedder.device, seed=embedder.seed
                )
                self._manifolds = RealManifolds(self._real[plan.own], recipe, search.report)
        self._fit_seconds = search.seconds

    def score(self, fake: SideFeatures) -> Result:
        """Score one fake side, with every space of the plan embedded.

        Raises:
            DataError: It does not belong to the real side.
        """
        fakes = fake.cut(self._plan.most_fake)
        for space in self._plan.real_spaces:
            check_untrained(self._real[space], fakes[space])
        started = time.perf_counter()
        values = self._companions.score(fakes, self._given_statistics(fakes))
        companions = self._companion_seconds + time.perf_counter() - started
        with self._searching() as search:
            if self._manifolds is not None:
                values |= self._manifolds.score(fakes[self._plan.own], search.report)
        seconds = {"fit_real": self._fit_seconds, "score_fake": search.seconds, "companions": companions}
        return self._result(fakes, values, seconds)

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

    def _main(self, side: SideFeatures) -> FeatureSet:
        """The features that stand for a side: those of the score's own extractor, if they are used."""
        spaces = self._plan.real_spaces
        return side[self._plan.own if self._plan.own in spaces else spaces[0]]

    @contextmanager
    def _searching(self) -> Iterator[_Search]:
        """Time the block, and tell how far it is."""
        search = _Search(self._embedder.progress or (lambda *_: None))
        search.report(0, 1)
        started = time.perf_counter()
        yield search
        search.seconds = time.perf_counter() - started
        search.report(1, 1)

    def _result(
        self, fake: SideFeatures, values: Mapping[str, MetricValue], seconds: Mapping[str, float]
    ) -> Result:
        extractors = {
            name: fake[space].extractor or self._labels.get(space)
            for name, space in self._plan.spaces.items()
        }
        metrics = {
            name: replace(values[name], extractor=None if info is None else info.name)
            for name, info in extractors.items()
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
            real=SideSummary.of(reals, n_duplicates=real_ids.n_duplicates, content=real_ids.content),
            fake=SideSummary.of(fakes, n_duplicates=fake_ids.n_duplicates, content=fake_ids.content),
            n_shared=fake_ids.n_shared_with(real_ids),
            device=str(self._embedder.device),
            seed=self._embedder.seed,
            max_images=self._embedder.max_images,
            seconds=seconds,
            versions=package_versions(),
            notices=findings(
                reals, fakes, real_ids, fake_ids, protocol=self._plan.protocol.name, deviations=deviations
            ),
        )

    def _unmet(self, metrics: Mapping[str, MetricValue]) -> list[str]:
        """Where a pinned protocol could not be met beside the numbers of images, in words."""
        protocol = self._plan.protocol
        if "metrics" in protocol.free:
            return []
        unmet = []
        if "extractor" not in protocol.free and any(metric.extractor is None for metric in metrics.values()):
            unmet.append(f"features of unknown origin where {protocol.name} needs {protocol.extractor}")
        for name, metric in metrics.items():
            if name in _OF_SUBSETS and metric.variant is not None:
                unmet.append(f"{name} on {metric.variant} where {protocol.name} needs 1,000")
        return unmet


def _check_finite(metrics: Mapping[str, MetricValue]) -> None:
    for name, metric in metrics.items():
        if not math.isfinite(metric.value) or not math.isfinite(metric.spread or 0):
            raise FeatureError(
                f"{name} of these features is beyond the range of float64; are they scaled as the extractor gives them?",
                code="overflow",
            )
