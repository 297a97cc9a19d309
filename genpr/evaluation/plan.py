"""What a score will compute: a protocol with what the user chose, and the features that each metric needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from genpr.errors import UsageError
from genpr.evaluation.protocols import EvaluationProtocol, Ties, find_protocol
from genpr.features.embedded_source import OWN
from genpr.features.embedder import Space
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide
from genpr.features.lookup import canonical_name, with_variants_of
from genpr.features.registry import describe
from genpr.metrics.neighbor_metrics import least_images
from genpr.metrics.registry import METRICS, SIZE_SENSITIVE
from genpr.metrics.samples import SAMPLE_METRICS


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """One protocol, ready to be computed.

    Attributes:
        protocol: The recipe.
        ks: k by manifold metric.
        ties: "closed" or "strict".
        own: The space of the metrics that are not defined on one of their own.
        spaces: The space of every metric, in display order.
        intervals: Whether to find intervals, where any are known.
        control: Whether to score one half of the reals against the other.
        equal_sizes: Whether to score some metrics in blocks of equal size, where the sides differ in size.
        sample_ks: k by metric, of those that the numbers of single images belong to.
    """

    protocol: EvaluationProtocol
    ks: Mapping[str, int]
    ties: Ties
    own: Space
    spaces: Mapping[str, Space]
    intervals: bool = True
    control: bool = True
    equal_sizes: bool = False
    sample_ks: Mapping[str, int] = field(default_factory=dict)

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
        intervals: bool,
        control: bool,
        held_out: bool = False,
        equal_sizes: bool = False,
    ) -> ScorePlan:
        """The plan for what a user asked for; arguments are those of `genpr.Evaluator`.

        Raises:
            UsageError: Something is unknown or impossible, or pinned by the protocol.
        """
        recipe = find_protocol(protocol)
        names = recipe.with_held_out(recipe.choose_metrics(metrics), held_out=held_out)
        own = _own_space(extractor, recipe, real)
        if equal_sizes:
            recipe.check_sizes_free(names)
        spaces = {name: space_of(name, own) for name in names}
        if extractor is not None and own not in spaces.values():
            raise UsageError(
                f"{', '.join(names)} would not use {_name(own)}, but {', '.join(map(_name, spaces.values()))}; leave the "
                "extractor out, or ask for metrics on its features too, such as fd",
                code="extractor-unused",
            )
        return cls(
            protocol=recipe,
            ks=recipe.choose_ks(names, k),
            ties=recipe.choose_ties(ties),
            own=own,
            spaces=spaces,
            intervals=intervals,
            control=control,
            equal_sizes=equal_sizes,
            sample_ks=recipe.choose_ks(SAMPLE_METRICS, k),
        )

    @property
    def real_spaces(self) -> tuple[Space, ...]:
        """The spaces that are needed of the reals: of the metrics that look at them, and of all for the control."""
        return tuple(dict.fromkeys(self.spaces.values())) if self.control else self.looked_at

    @property
    def looked_at(self) -> tuple[Space, ...]:
        """The spaces of the metrics that look at reals; if none does, the reals are known by those of all."""
        looked_at = [space for name, space in self.spaces.items() if METRICS[name].uses_reals]
        return tuple(dict.fromkeys(looked_at or self.spaces.values()))

    @property
    def least_real(self) -> int:
        """Real images without which a metric is not defined."""
        return max(
            least_images(self.ks)[0],
            self._least_of_block,
            *(METRICS[name].least for name in self.spaces if METRICS[name].uses_reals),
            1,
        )

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
        """Fake images without which a metric is not defined."""
        return max(
            least_images(self.ks)[1],
            self._least_of_block,
            *(METRICS[name].least for name in self.spaces),
        )

    @property
    def _least_of_block(self) -> int:
        """Images of both sides, since either may be cut into blocks of the size of the other."""
        in_blocks = {name: k for name, k in self.ks.items() if name in SIZE_SENSITIVE and self.equal_sizes}
        return max(least_images(in_blocks))


def space_of(metric: str, own: Space) -> Space:
    """The features of `metric` in a score whose own are `own`: of the same variant, if they are of the same network."""
    space = METRICS[metric].space
    if space is None:
        return own
    return with_variants_of(space, own) if isinstance(own, str) else space


def _name(space: Space) -> str:
    return space if isinstance(space, str) else describe(space).name


def _own_space(
    extractor: str | FeatureExtractor | None, recipe: EvaluationProtocol, real: OpenedSide
) -> Space:
    """The space of the metrics that are not defined on one of their own.

    Raises:
        UsageError: The protocol pins another one.
    """
    if extractor is None:
        info = real.extractor if isinstance(real, FeatureSet) else None
        if info is not None:
            name = canonical_name(info.name) if info.comparable else info.name
            recipe.check_extractor(name, built_in=info.comparable)
            return name
        return OWN if isinstance(real, FeatureSet) else recipe.extractor
    if not isinstance(extractor, str):
        info = describe(extractor)
        recipe.check_extractor(info.name, built_in=info.comparable)
        return extractor
    name = canonical_name(extractor)
    recipe.check_extractor(name)
    return name
