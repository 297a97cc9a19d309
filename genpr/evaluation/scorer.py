"""Every value of one plan for one real side; and the same for one half of the reals against the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from genpr.distributed.team import alone, current_team
from genpr.evaluation.equalised import EqualisedManifolds
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.scoring import ManifoldRecipe, RealCompanions, RealManifolds, Searched
from genpr.evaluation.values import Control, MetricValue
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder, StageProgress
from genpr.metrics.evidence import Evidence
from genpr.metrics.frechet import Gaussian
from genpr.metrics.memorisation import ct_z
from genpr.metrics.metric import DistributionOptions
from genpr.metrics.neighbour_metrics import Lack
from genpr.metrics.registry import METRICS
from genpr.metrics.samples import FakeRows, RealRows, sample_rows
from genpr.rebuild import rebuilt
from genpr.runtime import all_cores

Values = dict[str, MetricValue | None]
"""By metric; None where it is undefined."""


@dataclass(frozen=True)
class Scored:
    """One fake side.

    Attributes:
        values: By metric, of the sides as they are.
        evidence: What the neighbours reveal beside them.
        seconds: By stage.
        lacks: What keeps metrics from the interval that was asked for.
        of_blocks: The values of metrics that were also scored in blocks of equal size.
        searched: The search among neighbours; None where none were counted.
    """

    values: Values
    evidence: Evidence | None
    seconds: dict[str, float]
    lacks: Mapping[str, Lack] = field(default_factory=dict)
    of_blocks: Mapping[str, MetricValue] = field(default_factory=dict)
    searched: Searched | None = None


@dataclass
class _Search:
    """A search among neighbours that is under way."""

    progress: StageProgress
    seconds: float = 0.0

    def report(self, done: int, total: int) -> None:
        """Pairs done with, as per cent."""
        self.progress("neighbours", 100 * done // max(total, 1), 100)


class Scorer:
    """A real side, fitted for every metric of a plan.

    Args:
        plan: What to compute.
        real: The real side, with every space embedded that the plan needs of it.
        embedder: How it was embedded.
        given: Mean and covariance that came with the reals, by metric.
        held_out: Other reals, for the metrics that need them.
    """

    def __init__(
        self,
        plan: ScorePlan,
        real: SideFeatures,
        embedder: Embedder,
        *,
        given: Mapping[str, Gaussian],
        held_out: SideFeatures | None = None,
    ) -> None:
        self._plan = plan
        self._embedder = embedder
        options = DistributionOptions(
            device=embedder.device, inception_score_chunk=plan.protocol.inception_score_chunk
        )
        companions = {
            name: space
            for name, space in plan.spaces.items()
            if METRICS[name].kind not in {"neighbors", "held-out"}
        }
        self._train, self._held_out = real, held_out
        started = time.perf_counter()
        self._companions = _Companions(lambda: RealCompanions(companions, real, given, options))
        self._companion_seconds = time.perf_counter() - started
        self._manifolds: RealManifolds | EqualisedManifolds | None = None
        with self._searching() as search:
            if plan.ks:
                kind = EqualisedManifolds if plan.equal_sizes else RealManifolds
                self._manifolds = kind(real[plan.own], self._recipe(), search.report)
        self._fit_seconds = search.seconds

    def score(self, fake: SideFeatures, given: Mapping[str, Gaussian]) -> Scored:
        """Every metric of one fake side; `given` came with the fakes."""
        started = time.perf_counter()
        values = self._companions.score(fake, given)
        companions = self._companion_seconds + time.perf_counter() - started
        evidence, searched, lacks, of_blocks = None, None, dict[str, Lack](), dict[str, MetricValue]()
        with self._searching() as search:
            if self._manifolds is not None:
                found = self._manifolds.score(fake[self._plan.own], search.report)
                values |= found.values
                evidence, searched = found.evidence, found.searched
                lacks, of_blocks = {**found.lacks}, {**found.of_blocks}
            if "c_t" in self._plan.spaces:
                values["c_t"] = self._copying(fake, search)
        seconds = {"fit_real": self._fit_seconds, "score_fake": search.seconds, "companions": companions}
        return Scored(values, evidence, seconds, lacks, of_blocks, searched)

    def samples(self, scored: Scored) -> tuple[FakeRows, RealRows]:
        """What is known of each image of a score that counted neighbours."""
        searched = scored.searched
        assert searched is not None
        copies = None if scored.evidence is None else scored.evidence.near_copies
        with self._searching() as search:
            return sample_rows(
                searched.real_side,
                searched.fake_side,
                ks=self._plan.sample_ks,
                nearest_reals=None if copies is None else copies.nearest,
                progress=search.report,
            )

    def _copying(self, fake: SideFeatures, search: _Search) -> MetricValue | None:
        """C_T: a standard normal number under the null."""
        if self._held_out is None:
            return None
        sides = (side[self._plan.own].features for side in (self._train, self._held_out, fake))
        z = ct_z(*sides, device=self._embedder.device, progress=search.report)
        return MetricValue(z, None, null=0.0, null_source="closed form") if math.isfinite(z) else None

    def _recipe(self) -> ManifoldRecipe:
        plan, embedder = self._plan, self._embedder
        return ManifoldRecipe(
            protocol=plan.protocol,
            ks=plan.ks,
            ties=plan.ties,
            device=embedder.device,
            seed=embedder.seed,
            intervals=plan.intervals,
        )

    @contextmanager
    def _searching(self) -> Iterator[_Search]:
        """Time the block, and tell how far it is."""
        search = _Search(self._embedder.progress or (lambda *_: None))
        search.report(0, 1)
        started = time.perf_counter()
        yield search
        search.seconds = time.perf_counter() - started
        search.report(1, 1)


class _Companions:
    """The metrics that count no neighbours, computed by the first rank of a team, with every core that it may use."""

    def __init__(self, fit: Callable[[], RealCompanions]) -> None:
        self._fitted = fit() if current_team().is_alone else None
        if self._fitted is None and current_team().is_first:
            with alone(), all_cores():
                self._fitted = fit()

    def score(self, fake: SideFeatures, given: Mapping[str, Gaussian]) -> Values:
        """The value of each."""
        team, fitted = current_team(), self._fitted
        if team.is_alone:
            assert fitted is not None
            return {**fitted.score(fake, given)}

        def records() -> dict[str, Any]:
            assert fitted is not None
            with all_cores():
                return {name: asdict(value) for name, value in fitted.score(fake, given).items()}

        return {name: rebuilt(MetricValue, record) for name, record in team.from_first(records).items()}


def control_of(plan: ScorePlan, real: SideFeatures, embedder: Embedder) -> Control | None:
    """One half of the reals scored against the other; None where a half is too small for a metric."""
    plan = replace(plan, intervals=False, equal_sizes=False)  # halves of an odd number differ by one
    reals, fakes = real.halves()
    n_real, n_fake = reals.n, fakes.n
    if n_real < plan.least_real or n_fake < plan.least_fake:
        return None
    scorer = Scorer(plan, reals, embedder, given={})
    found = scorer.score(fakes, {}).values
    known = {name: value for name, value in found.items() if value is not None}
    return Control(
        n_real,
        n_fake,
        {name: value.value for name, value in known.items()},
        {name: value.null for name, value in known.items()},
    )


def with_control(name: str, value: MetricValue, control: Control | None) -> MetricValue:
    """With the value of the control as null, where no other is known."""
    if value.null is not None or control is None or name not in control.values:
        return value
    return replace(value, null=control.values[name], null_source="real halves")
