"""Which metrics are audited, and how: one table, of families that share their passes over the data.

The settings are those of the published audit: k = 3 for improved precision and recall, k = 5 for all others that count
balls, of which the covers draw theirs to the 15th neighbour, and k = 4 with scale 1.2 for the probabilistic pair. Balls
are closed. For density and coverage, 5 is the smallest k that gives a perfect generator a coverage above .95 at 1000
reals and 1000 fakes; it stays 5 where a check varies their numbers. (Chosen anew for each number of fakes, coverage
would meet both demands on ball and torus, which it is published to miss.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from genpr.audit.demands import Kind
from genpr.audit.family import Family, Features
from genpr.errors import UsageError, some
from genpr.metrics.registry import BALLS, needed_balls
from genpr.runtime import torch_threads

_K_IMPROVED = 3
_K = 5


@dataclass(frozen=True, slots=True)
class _Shipped:
    """Metrics that can be computed together.

    Attributes:
        kinds: What each of them claims to measure.
        function: From the names of those that are wanted, reals and fakes to their values, and perhaps others.
    """

    kinds: Mapping[str, Kind]
    function: Callable[[tuple[str, ...], Features, Features], Mapping[str, float]]


def _counted(names: tuple[str, ...], real: Features, fake: Features) -> Mapping[str, float]:
    """Everything that is read off balls around reals and around fakes."""
    from genpr.metrics.manifold import ball_scores
    from genpr.metrics.real_side import RealSide

    ks = {name: _K_IMPROVED if name in {"precision", "recall"} else _K for name in names}
    with torch_threads(1):  # two would wait for each other on sets this small
        side = RealSide.fit(real, balls=needed_balls(ks)[0], device="cpu")
        return ball_scores(side, fake, ks=ks)


def _probabilistic(names: tuple[str, ...], real: Features, fake: Features) -> Mapping[str, float]:
    """Both, whichever is wanted: they share their scan."""
    from genpr.metrics.probabilistic import probabilistic_precision_recall

    with torch_threads(1):
        precision, recall = probabilistic_precision_recall(real, fake, device="cpu")
    return {"p_precision": precision, "p_recall": recall}


def _witnessed(names: tuple[str, ...], real: Features, fake: Features) -> Mapping[str, float]:
    """All four, for the same reason."""
    from genpr.metrics.witnessed import witnessed

    with torch_threads(1):
        values = witnessed(real, fake, device="cpu")
    return {f"witnessed_{name}": value for name, value in values._asdict().items()}


_SHIPPED = (
    _Shipped(
        MappingProxyType({name: metric.measures for name, metric in BALLS.items() if metric.measures}),
        _counted,
    ),
    _Shipped(MappingProxyType({"p_precision": "fidelity", "p_recall": "diversity"}), _probabilistic),
    _Shipped(
        MappingProxyType(
            {
                "witnessed_fidelity": "fidelity",
                "witnessed_diversity": "diversity",
                "witnessed_support": "diversity",
                "witnessed_coverage": "diversity",
            }
        ),
        _witnessed,
    ),
)
"""Everything that ships and claims to measure fidelity or diversity, in display order."""


def shipped_kinds() -> dict[str, Kind]:
    """What each shipped metric claims to measure, in display order."""
    return {name: kind for shipped in _SHIPPED for name, kind in shipped.kinds.items()}


def families_of(names: Iterable[str]) -> tuple[Family, ...]:
    """The named metrics in their families; nothing that no other metric of a family needs is computed for one.

    Raises:
        UsageError: A name is unknown ("unknown-metric").
    """
    wanted, known = set(names), shipped_kinds()
    if unknown := sorted(wanted - set(known)):
        raise UsageError(
            f"unknown metrics: {some(unknown)}; the audit knows {', '.join(known)}, and functions of your own",
            code="unknown-metric",
        )
    families = []
    for shipped in _SHIPPED:
        kinds = {name: kind for name, kind in shipped.kinds.items() if name in wanted}
        if kinds:
            families.append(Family(kinds, partial(shipped.function, tuple(kinds))))
    return tuple(families)
