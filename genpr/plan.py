"""What a score will compute: a protocol with what the user chose, and the features that each metric needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.registry import canonical_name, describe
from genpr.metrics.catalogue import METRICS
from genpr.protocols import EvaluationProtocol, Ties, find_protocol
from genpr.side_features import OWN, Space
from genpr.sides import OpenedSide


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """One protocol, ready to be computed.

    Attributes:
        protocol: The recipe.
        ks: k by manifold metric.
        ties: "closed" or "strict".
        own: The space of the metrics that are not defined on one of their own.
        spaces: The space of every metric, in display order.
    """

    protocol: EvaluationProtocol
    ks: Mapping[str, int]
    ties: Ties
    own: Space
    spaces: Mapping[str, Space]

    @classmethod
    def of(
        cls,
        protocol: str,
        real: OpenedSide,
        *,
        extractor: str | FeatureExtractor | None,
        metrics: Sequence[str] | None,
        k: int | None,
        ties: Ties | None,
    ) -> ScorePlan:
        """The plan for what a user asked for; arguments are those of `genpr.Evaluator`.

        Raises:
            UsageError: Something is unknown or impossible, or pinned by the protocol.
        """
        recipe = find_protocol(protocol)
        names = recipe.choose_metrics(metrics)
        own = _own_space(extractor, recipe, real)
        return cls(
            protocol=recipe,
            ks=recipe.choose_ks(names, k),
            ties=recipe.choose_ties(ties),
            own=own,
            spaces={name: METRICS[name].space or own for name in names},
        )

    @property
    def least_real(self) -> int:
        """Real images without which there is no ball."""
        return max((k for name, k in self.ks.items() if name != "recall"), default=0) + 1

    @property
    def most_real(self) -> int | None:
        """Real images that are used, if the protocol limits them."""
        return self.protocol.n_real or self.protocol.max_real

    @property
    def most_fake(self) -> int | None:
        """Fake images that are used, if the protocol limits them."""
        return self.protocol.n_fake or self.protocol.max_fake

    @property
    def least_fake(self) -> int:
        """Fake images without which there is no ball."""
        return self.ks.get("recall", 0) + 1


def _own_space(
    extractor: str | FeatureExtractor | None, recipe: EvaluationProtocol, real: OpenedSide
) -> Space:
    """The space of the metrics that are not defined on one of their own.

    Raises:
        UsageError: The protocol pins another one.
    """
    if extractor is None:
        info = real.extractor if isinstance(real, FeatureSet) else None
        name = recipe.extractor if info is None else info.name
        if info is not None:
            recipe.check_extractor(name)
        return OWN if isinstance(real, FeatureSet) and info is None else name
    if not isinstance(extractor, str):
        recipe.check_extractor(describe(extractor).name)
        return extractor
    name = canonical_name(extractor)
    recipe.check_extractor(name)
    return name
