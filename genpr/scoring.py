"""The real side of every metric of a score, fitted once, and the values it gives for fake features."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from genpr.features.feature_set import FeatureSet
from genpr.images.source import choose_rows
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


class RealManifolds:
    """The reals' balls, in the space of each member of the extractor (usually there is one)."""

    def __init__(self, real: FeatureSet, recipe: ManifoldRecipe, progress: PairProgress) -> None:
        self._real = real
        self._recipe = recipe
        self._fit(self._rows(len(real)), progress)

    def score(self, fake: FeatureSet, progress: PairProgress) -> dict[str, MetricValue]:
        """Value and k of each metric; with its spread where there are several members."""
        ks = self._recipe.ks
        rows = self._rows(len(self._real), len(fake))
        if rows is not None and rows < self._fitted_rows:
            self._fit(rows, progress)  # the protocol takes as many reals as fakes
        fakes = _members(_cut(fake, rows, self._recipe.seed))
        exact = [
            side.score(features, ks=ks, ties=self._recipe.ties, progress=progress)
            for side, features in zip(self._sides, fakes, strict=True)
        ]
        variant = None if rows is None else f"{rows:,} images of each side"
        values = {name: _value([member[name] for member in exact], k, variant) for name, k in ks.items()}
        if not self._emulated:
            return values
        found = self._emulated[0].memberships(fakes[0], ks=ks, progress=progress)
        return {
            name: replace(
                values[name], value=getattr(found, name)(k), exact=False, exact_value=values[name].value
            )
            for name, k in ks.items()
        }

    def _rows(self, *sizes: int) -> int | None:
        """Of each side, if the protocol limits them."""
        most = self._recipe.protocol.max_rows
        return None if most is None else min(most, *sizes)

    def _fit(self, rows: int | None, progress: PairProgress) -> None:
        recipe = self._recipe
        reals = _members(_cut(self._real, rows, recipe.seed))
        self._fitted_rows = len(reals[0])
        self._sides = [
            RealSide.fit(features, ks=recipe.real_ks, device=recipe.device, progress=progress)
            for features in reals
        ]
        self._emulated: list[EmulatedSide] = []
        if recipe.protocol.distances != "exact":
            emulation = recipe.protocol.distances
            self._emulated = [
                EmulatedSide.fit(
                    reals[0], ks=recipe.real_ks, emulation=emulation, device=recipe.device, progress=progress
                )
            ]


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
    return MetricValue(statistics.fmean(members), k, spread=statistics.stdev(members), variant=variant)


class RealCompanions:
    """The reals' part of the metrics that count no neighbours.

    Args:
        spaces: The space of each metric.
        real: The real side, with all of them embedded.
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
        self._given = frozenset(given)
        self._fitted: dict[tuple[str, int], Fitted] = {
            (name, member): fit_companion(name, given.get(name, features), options)
            for name, space in spaces.items()
            for member, features in enumerate(_members(real[space]))
        }

    def score(self, fake: SideFeatures) -> dict[str, MetricValue]:
        """The value of each metric."""
        return {name: self._of(name, _members(fake[space])) for name, space in self._spaces.items()}

    def _of(self, name: str, members: Iterable[Tensor]) -> MetricValue:
        found = [
            companion(name, self._fitted[name, member], features, self._options)
            for member, features in enumerate(members)
        ]
        given = "mean and covariance that came with the reals" if name in self._given else None
        variant = given or found[0].variant
        if len(found) == 1:
            return MetricValue(found[0].value, None, spread=found[0].spread, variant=variant)
        return _value([each.value for each in found], None, variant)
