"""The real side of every metric of a score, fitted once, and the values it gives for fake features."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpr.features.feature_set import FeatureSet
from genpr.images.source import choose_rows
from genpr.metrics.catalogue import METRICS
from genpr.metrics.companions import CompanionOptions, Fitted, companion, fit_companion
from genpr.metrics.emulated_manifold import EmulatedSide
from genpr.metrics.frechet import Gaussian
from genpr.metrics.progress import PairProgress
from genpr.metrics.real_side import RealSide
from genpr.protocols import EvaluationProtocol, Ties
from genpr.result import MetricValue
from genpr.side_features import SideFeatures, Space


@dataclass(frozen=True, kw_only=True)
class ManifoldRecipe:
    """How neighbours are counted.

    Attributes:
        protocol: Sets the arithmetic and the numbers of rows.
        ks: k by metric.
        ties: "closed" or "strict".
        device: Where to compute.
        seed: Chooses rows where the protocol wants fewer.
    """

    protocol: EvaluationProtocol
    ks: Mapping[str, int]
    ties: Ties
    device: torch.device
    seed: int

    @property
    def real_ks(self) -> tuple[int, ...]:
        """Every k of a ball around a real."""
        return tuple(sorted({k for name, k in self.ks.items() if name != "recall"}))


@dataclass(frozen=True)
class _Fit:
    """The reals' balls in the space of each member of the extractor, and on emulated distances if asked for."""

    exact: tuple[RealSide, ...]
    emulated: EmulatedSide | None


class RealManifolds:
    """The reals' balls, in the space of each member of the extractor (usually there is one)."""

    def __init__(self, real: FeatureSet, recipe: ManifoldRecipe, progress: PairProgress) -> None:
        self._real = real
        self._recipe = recipe
        self._fits: dict[int | None, _Fit] = {}
        self._fit(self._rows(len(real)), progress)

    def score(self, fake: FeatureSet, progress: PairProgress) -> dict[str, MetricValue]:
        """Value and k of each metric; with its spread where there are several members."""
        ks = self._recipe.ks
        rows = self._rows(len(self._real), len(fake))
        fit = self._fit(rows, progress)
        fakes = _members(_cut(fake, rows, self._recipe.seed))
        exact = [
            side.score(features, ks=ks, ties=self._recipe.ties, progress=progress)
            for side, features in zip(fit.exact, fakes, strict=True)
        ]
        variant = (
            None if rows is None else f"{rows:,} images of each side, drawn with seed {self._recipe.seed}"
        )
        values = {name: _value([member[name] for member in exact], k, variant) for name, k in ks.items()}
        if fit.emulated is None:
            return values
        found = fit.emulated.memberships(fakes[0], ks=ks, progress=progress)
        return {
            name: replace(
                values[name], value=getattr(found, name)(k), exact=False, exact_value=values[name].value
            )
            for name, k in ks.items()
        }

    def _rows(self, *sizes: int) -> int | None:
        """Of each side, if the protocol limits them: as many reals as fakes."""
        most = self._recipe.protocol.max_rows
        return None if most is None else min(most, *sizes)

    def _fit(self, rows: int | None, progress: PairProgress) -> _Fit:
        """Of so many reals; each number is fitted once."""
        if rows not in self._fits:
            self._fits[rows] = self._fitted(rows, progress)
        return self._fits[rows]

    def _fitted(self, rows: int | None, progress: PairProgress) -> _Fit:
        recipe = self._recipe
        reals = _members(_cut(self._real, rows, recipe.seed))
        exact = tuple(
            RealSide.fit(features, ks=recipe.real_ks, device=recipe.device, progress=progress)
            for features in reals
        )
        if recipe.protocol.distances == "exact":
            return _Fit(exact, None)
        emulation = recipe.protocol.distances
        emulated = EmulatedSide.fit(
            reals[0], ks=recipe.real_ks, emulation=emulation, device=recipe.device, progress=progress
        )
        return _Fit(exact, emulated)


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
        options: CompanionOptions,
    ) -> None:
        self._spaces = spaces
        self._options = options
        self._given = given
        self._fitted: dict[str, tuple[Fitted, ...]] = {
            name: tuple(
                fit_companion(name, given.get(name, features), options) for features in _members(real[space])
            )
            for name, space in spaces.items()
            if METRICS[name].looks_at_reals
        }

    def score(self, fake: SideFeatures, given: Mapping[str, Gaussian]) -> dict[str, MetricValue]:
        """The value of each metric; `given` is what came with the fakes, as with the reals."""
        return {
            name: self._of(name, _members(fake[space]), given.get(name))
            for name, space in self._spaces.items()
        }

    def _of(self, name: str, members: Sequence[Tensor], given: Gaussian | None) -> MetricValue:
        reals = self._fitted.get(name) or (None,) * len(members)
        found = [
            companion(name, fitted, features if given is None else given, self._options)
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


def _digest(moments: Gaussian) -> str:
    content = (moments.mean.cpu().numpy().tobytes(), moments.covariance.cpu().numpy().tobytes())
    return hashlib.sha256(b"".join(content)).hexdigest()[:12]
