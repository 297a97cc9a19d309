"""What each check demands of a fidelity metric and of a diversity metric: the thirty cells of the matrix.

Where fakes are wider than reals, two values of diversity can be defended: 1, because everything real is covered
(marked H), or 0, because little of the fakes' mass is near it (marked L). A metric may choose, but must not mix them
within a cell.

References:
    Räisä, van Breugel, van der Schaar 2025, "Position: All Current Generative Fidelity and Diversity Metrics are
    Flawed", ICML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from genpr.audit.criteria import (
    Curve,
    Margin,
    all_of,
    bell,
    close,
    converged,
    flat,
    high_low,
    high_low_mid,
    low_high,
)
from genpr.audit.draws import CUBE_OVERLAP, REAL_PLANE_MODES, REALS_ROUNDED

Kind = Literal["fidelity", "diversity"]
Mark = Literal["T", "F", "H", "L"]
Criterion = Callable[[Curve], Margin]
Ways = Mapping[Mark, Criterion]
"""By the mark of a pass: "T", or "H" and "L" where either will do."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One row of the matrix.

    Attributes:
        check: Name of the check.
        desideratum: "bounds", "property", or one of D2, D3, D5 of the paper.
        fidelity: How a fidelity metric may pass.
        diversity: How a diversity metric may pass.
    """

    check: str
    desideratum: str
    fidelity: Ways
    diversity: Ways

    @property
    def name(self) -> str:
        """Both parts."""
        return f"{self.check} / {self.desideratum}"

    def ways(self, kind: Kind) -> Ways:
        """How a metric of this kind may pass."""
        return self.fidelity if kind == "fidelity" else self.diversity


def _true(criterion: Criterion) -> Ways:
    return MappingProxyType({"T": criterion})


def _either(high: Criterion, low: Criterion) -> Ways:
    return MappingProxyType({"H": high, "L": low})


def _both(check: str, desideratum: str, criterion: Criterion) -> Demand:
    return Demand(check, desideratum, _true(criterion), _true(criterion))


def _first(target: float) -> Criterion:
    return lambda curve: close(curve, 0, target)


def _last(target: float) -> Criterion:
    return lambda curve: close(curve, -1, target)


def _at(x: float, target: float) -> Criterion:
    return lambda curve: close(curve, curve.near(x), target)


def _bell(x: float) -> Criterion:
    return lambda curve: bell(curve, curve.near(x))


def _part(q: float) -> Criterion:
    return lambda curve: high_low_mid(curve, q)


def _all(*criteria: Criterion) -> Criterion:
    return lambda curve: all_of(*(criterion(curve) for criterion in criteria))


def _peak(check: str, x: float) -> tuple[Demand, Demand]:
    bounds = _all(_at(x, 1), _first(0), _last(0))
    return _both(check, "bounds", bounds), _both(check, "property", _bell(x))


def _loss(check: str, q: float) -> tuple[Demand, Demand]:
    """Modes are lost, which costs diversity and no fidelity."""
    bounds = Demand(check, "bounds", _true(_all(_first(1), _last(1))), _true(_first(1)))
    return bounds, Demand(check, "property", _true(flat), _true(_part(q)))


def _size(check: str, desideratum: str) -> tuple[Demand, Demand]:
    return _both(check, desideratum, converged), _both(check, "property", _last(CUBE_OVERLAP))


def _rounding_of_reals(curve: Curve) -> bool:
    return curve.scenario == REALS_ROUNDED


def _rounded(of_reals: tuple[float, float], of_fakes: tuple[float, float]) -> Criterion:
    """The values at both ends, by which side was rounded."""

    def criterion(curve: Curve) -> Margin:
        first, last = of_reals if _rounding_of_reals(curve) else of_fakes
        return all_of(close(curve, 0, first), close(curve, -1, last))

    return criterion


DEMANDS: tuple[Demand, ...] = (
    *_peak("mean", 0),
    *_peak("mean+outlier", 0),
    Demand(
        "std",
        "bounds",
        _true(_all(_at(1, 1), _first(1), _last(0))),
        _either(high=_all(_at(1, 1), _first(0), _last(1)), low=_all(_at(1, 1), _first(0), _last(0))),
    ),
    Demand("std", "property", _true(high_low), _either(high=low_high, low=_bell(1))),
    *_loss("simultaneous", 0.95),
    *_loss("sequential", 0.5),
    Demand(
        "invention",
        "bounds",
        _true(_all(_at(REAL_PLANE_MODES, 1), _first(1))),
        _true(_all(_at(REAL_PLANE_MODES, 1), _last(1))),
    ),
    Demand("invention", "property", _true(high_low), _true(low_high)),
    *_peak("hypersphere", 1),
    *_size("cube-n", "D3"),
    *_size("cube-n-fake", "D2"),
    _both("sphere-torus", "bounds", _last(0)),
    _both("sphere-torus", "property", converged),
    _both("collapse", "bounds", _first(1)),
    Demand("collapse", "property", _true(high_low), _either(high=flat, low=high_low)),
    _both("scaling", "bounds", _all(_first(0), _last(0))),
    _both("scaling", "D5", flat),
    *_peak("pareto", 0),
    _both("disjoint", "bounds", _all(_first(0), _last(0))),
    _both("disjoint", "property", flat),
    Demand(
        "discrete",
        "bounds",
        _true(_rounded(of_reals=(0, 0), of_fakes=(1, 1))),
        _either(
            high=_rounded(of_reals=(1, 1), of_fakes=(0, 0)), low=_rounded(of_reals=(0, 0), of_fakes=(0, 0))
        ),
    ),
    _both("discrete", "property", flat),
)
"""In the order of the published tables."""
