"""Named protocols: which features, which k and which ties a score uses, so that numbers can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import Literal

from genpr.errors import UsageError

METRICS = ("precision", "recall", "density", "coverage")
"""All metrics, in the order in which they are shown."""


@dataclass(frozen=True)
class EvaluationProtocol:
    """A pinned recipe.

    Attributes:
        name: What is printed with every score.
        extractor: The feature extractor for images.
        k: Neighbours per metric; the image itself is never counted.
        ties: "closed" counts a point on the sphere as inside the ball, "strict" does not.
    """

    name: str
    extractor: str
    k: Mapping[str, int]
    ties: Literal["closed", "strict"]

    def choose_ks(self, metrics: Sequence[str] | None = None, k: int | None = None) -> dict[str, int]:
        """Choose k for each of `metrics` (None for all), in display order; a given `k` overrides the recipe's.

        Raises:
            UsageError: A metric is unknown or none is chosen, or k is below 1.
        """
        chosen = METRICS if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
        unknown = [name for name in chosen if name not in METRICS]
        if unknown or not chosen:
            came = ", ".join(unknown) or "none"
            raise UsageError(f"unknown metrics: {came}; known: {', '.join(METRICS)}", code="unknown-metric")
        if k is not None and (not isinstance(k, Integral) or k < 1):
            raise UsageError(
                f"k must be an integer of at least 1 (the image itself is not counted), not {k!r}",
                code="bad-k",
            )
        return {name: self.k[name] if k is None else int(k) for name in METRICS if name in chosen}


# k: 3 is the choice of Kynkäänniemi et al. 2019 for precision and recall, 5 that of Naeem et al. 2020 for
# density and coverage. Closed balls as in the former's definition.
_GENPR = EvaluationProtocol(
    name="genpr",
    extractor="inception",
    k=MappingProxyType({"precision": 3, "recall": 3, "density": 5, "coverage": 5}),
    ties="closed",
)

PROTOCOLS: Mapping[str, EvaluationProtocol] = MappingProxyType({_GENPR.name: _GENPR})


def find_protocol(name: str) -> EvaluationProtocol:
    """The protocol called `name`.

    Raises:
        UsageError: There is none; the message lists those there are.
    """
    if name not in PROTOCOLS:
        raise UsageError(f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}", code="unknown-protocol")
    return PROTOCOLS[name]
