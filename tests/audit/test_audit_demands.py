"""Ideal metrics meet every demand; constant metrics meet only demands that allow constants."""

import math

import numpy as np
import pytest

from genpr.audit import criteria
from genpr.audit.checks import CHECKS, FAKE_OUTLIER, FAKES_ROUNDED, REALS_ROUNDED, Setting, cases
from genpr.audit.criteria import DEMANDS, bell, close, converged, flat, high_low, high_low_mid, low_high
from genpr.audit.runner import Results, Run, Spread, evaluate_demands


def fidelity(case):
    """The value of an ideal fidelity metric."""
    x, setting = case.x, case.setting
    return {
        "mean": lambda: 1 - abs(x) / {1: 6, 8: 3, 64: 1}[setting.dimension],
        "mean+outlier": lambda: 1 - abs(x) / {1: 6, 8: 3, 64: 1}[setting.dimension],
        "std": lambda: 1.0 if x <= 1 else 1 - math.log10(x) / {1: 3, 8: 1, 64: 0.5}[setting.dimension],
        "simultaneous": lambda: 1.0,
        "sequential": lambda: 1.0,
        "invention": lambda: min(1.0, 5 / x),
        "hypersphere": lambda: 1 - abs(x - 1) / 0.9,
        "cube-n": lambda: 0.2,
        "cube-n-fake": lambda: 0.2,
        "sphere-torus": lambda: 0.0,
        "collapse": lambda: 1 - x / 5,
        "scaling": lambda: 0.0,
        "pareto": lambda: 1 - abs(x) / 6,
        "disjoint": lambda: 0.0,
        "discrete": lambda: 1.0 if setting.scenario == FAKES_ROUNDED else 0.0,
    }[case.check]()


def low_diversity(case):
    """The value of an ideal diversity metric that is low for fakes that are wider than the reals."""
    x, setting = case.x, case.setting
    if case.check == "std":
        return 1 - abs(math.log10(x)) / {1: 3, 8: 1, 64: 0.5}[setting.dimension]
    special = {
        "simultaneous": lambda: 1 - 0.9 * x,
        "sequential": lambda: 1 - x / 10,
        "invention": lambda: min(1.0, x / 5),
        "discrete": lambda: 0.0,
    }
    return special[case.check]() if case.check in special else fidelity(case)


def high_diversity(case):
    """The value of an ideal diversity metric that is high for fakes that are wider than the reals."""
    if case.check == "std":
        return min(1.0, low_diversity(case)) if case.x < 1 else 1.0
    if case.check == "collapse":
        return 1.0
    if case.check == "discrete":
        return 1.0 if case.setting.scenario == REALS_ROUNDED else 0.0
    return low_diversity(case)


def marks(function, kind, checks=tuple(CHECKS)):
    """Mark of a metric with values `function(case)`, by row."""
    results = Results(Run("full", 10, 0))
    for case in cases(checks, "full"):
        results.add(case, {"it": Spread(function(case), 0.01)})
    matrix = evaluate_demands(results, {"it": kind})
    return {cell.demand.name: cell.mark for cell in matrix.of("it")}


def test_ideal_fidelity_meets_all_demands():
    found = marks(fidelity, "fidelity")
    assert found == {demand.name: "T" for demand in DEMANDS}


@pytest.mark.parametrize(("function", "way"), [(low_diversity, "L"), (high_diversity, "H")])
def test_ideal_diversity_meets_all_demands_in_both_variants(function, way):
    found = marks(function, "diversity")
    split = {"std / bounds", "std / property", "collapse / property"}
    if way == "H":
        split.add("discrete / bounds")
    expected = {demand.name: way if demand.name in split else "T" for demand in DEMANDS}
    assert found == expected | {"discrete / bounds": way}


def test_metric_that_mixes_both_variants_fails():
    def mixed(case):
        return (high_diversity if case.setting.dimension == 8 else low_diversity)(case)

    found = marks(mixed, "diversity", ("std", "collapse"))
    assert (found["std / bounds"], found["std / property"], found["collapse / property"]) == ("F", "F", "F")
    assert found["collapse / bounds"] == "T"


@pytest.mark.parametrize(("kind", "value"), [("fidelity", 1), ("fidelity", 0), ("diversity", 0)])
def test_constant_metrics_meet_invariances_and_bounds_that_they_equal(kind, value):
    found = {name for name, mark in marks(lambda _: value, kind).items() if mark != "F"}
    assert len(found) == 11 + value
    assert {"cube-n / D3", "cube-n-fake / D2", "sphere-torus / property", "scaling / D5"} <= found


def test_error_in_one_setting_fails_the_check():
    def fooled(case):
        return 0.5 if case.setting == Setting(64, FAKE_OUTLIER) else fidelity(case)

    found = marks(fooled, "fidelity", ("mean+outlier",))
    assert found == {"mean+outlier / bounds": "F", "mean+outlier / property": "F"}


def at(*xs, value):
    """Replace the values of a metric at some x by `value`."""
    return lambda truth: (
        lambda case: value if any(abs(case.x - x) < 1e-3 * x for x in xs) or case.x in xs else truth(case)
    )


@pytest.mark.parametrize(
    ("row", "truth", "changed"),
    [
        ("std / bounds", fidelity, at(1, value=0.9)),
        ("std / bounds", fidelity, at(1e-3, value=0.9)),
        ("std / bounds", fidelity, at(1e3, value=0.1)),
        ("simultaneous / bounds", fidelity, at(1, value=0.9)),
        ("sequential / bounds", fidelity, at(9, value=0.9)),
        ("invention / bounds", fidelity, at(5, value=0.9)),
        ("invention / bounds", fidelity, at(1, value=0.9)),
        ("cube-n / property", fidelity, at(10_000, value=0.26)),
        ("sphere-torus / bounds", fidelity, at(10_000, value=0.06)),
        ("scaling / bounds", fidelity, at(1e-3, value=0.06)),
        ("disjoint / bounds", fidelity, at(1000, value=0.06)),
        ("discrete / bounds", fidelity, at(1, value=0.06)),
        ("discrete / bounds", fidelity, at(1000, value=0.94)),
        ("invention / bounds", low_diversity, at(10, value=0.9)),
        ("invention / bounds", low_diversity, at(5, value=0.9)),
        ("std / bounds", low_diversity, at(1e-3, value=0.1)),
        ("simultaneous / property", low_diversity, lambda _: lambda case: 0.1 if case.x == 1 else 1.0),
        ("sequential / property", low_diversity, at(*range(8), value=1.0)),
    ],
)
def test_error_at_one_point_fails_the_check(row, truth, changed):
    kind, check = "fidelity" if truth is fidelity else "diversity", row.partition(" / ")[0]
    assert marks(truth, kind, (check,))[row] in "TL"
    assert marks(changed(truth), kind, (check,))[row] == "F"


@pytest.mark.parametrize(
    ("criterion", "values", "holds"),
    [
        (lambda c: close(c, 0, 1), (0.95,), True),  # despite rounding
        (lambda c: close(c, 0, 1), (1.051,), False),
        (lambda c: bell(c, 1), (0.8, 1, 0), True),
        (lambda c: bell(c, 1), (0.81, 1, 0), False),  # does not fall enough on the left
        (lambda c: bell(c, 2), (0, 1.11, 1, 0.5, 0), False),  # higher elsewhere
        (lambda c: bell(c, 2), (0.3, 0.15, 1, 0.9, 0.3), False),  # lowest within
        (lambda c: bell(c, 2), (0.5, 0.15, 1, 0.9, 0.2), True),  # one end is the lowest
        (high_low, (0.3, 0.1), True),  # .3 - .1 - .2 is not 0 in floating point
        (high_low, (1, 0.9, 0.81), False),
        (high_low, (0.9, 1.01, 0), False),
        (high_low, (1, 0.09, 0.2), False),
        (low_high, (0.8, 0.75, 1), True),
        (lambda c: high_low_mid(c, 0.5), (1, 1, 1, 1, 0), False),
        (lambda c: high_low_mid(c, 0.5), (1, 1, 0.9, 0.9, 0), True),
        (flat, (0.5, 0.55, 0.52), True),
        (flat, (0.5, 0.551, 0.52), False),
        (converged, (9, 9, 0.5, 0.55), True),
        (converged, (0.5, 0.5, 0.58, 0.5), False),
        *[(criterion, (1, math.nan, 0), False) for criterion in (flat, high_low, lambda c: close(c, 0, 1))],
    ],
)
def test_criteria_hold_up_to_their_thresholds_and_not_beyond(criterion, values, holds):
    n = len(values)
    curve = criteria.Curve(np.arange(n, dtype=float), np.array(values, dtype=float), np.full(n, 0.01))
    assert criterion(curve).holds is holds


def test_margin_names_its_points_and_has_a_standard_error():
    margin = flat(
        criteria.Curve(np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.9, 0.5]), np.array([0.03, 0.04, 9.0]))
    )
    assert (margin.value, margin.se) == (pytest.approx(0.05 - 0.7), pytest.approx(0.05))
    assert "0.900 at 2" in margin.what


def test_published_counts_equal_those_of_the_paper():
    passed = []
    for name in criteria.COLUMN_OF:
        found = [criteria.published_mark(name, row) for row in range(len(DEMANDS))]
        passed.append(sum(mark != "F" for mark in found))
        for mark, demand in zip(found, DEMANDS, strict=True):
            assert mark in {"F", *demand.fidelity, *demand.diversity}
    assert passed == [11, 9, 18, 13, 10, 9, 13, 10]
