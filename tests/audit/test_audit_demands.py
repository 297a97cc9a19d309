"""Metrics that know the truth meet every demand; metrics that know nothing meet what a constant can."""

from __future__ import annotations

import math

import pytest

from genpr.audit.checks import CHECKS, FAKES_ROUNDED, REALS_ROUNDED, cases
from genpr.audit.criteria import DEMANDS
from genpr.audit.matrix import judge
from genpr.audit.runner import Results, Run, Spread


def fidelity(case):
    """What an ideal fidelity metric would say."""
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
    """The same for diversity, which calls fakes that are wider than reals not diverse."""
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
    """The same for diversity, which calls fakes that are wider than reals diverse."""
    if case.check == "std":
        return min(1.0, low_diversity(case)) if case.x < 1 else 1.0
    if case.check == "collapse":
        return 1.0
    if case.check == "discrete":
        return 1.0 if case.setting.scenario == REALS_ROUNDED else 0.0
    return low_diversity(case)


def marks(function, kind, checks=tuple(CHECKS)):
    """By row, what a metric that says `function(case)` is marked with."""
    results = Results(Run("full", 10, 0))
    for case in cases(checks, "full"):
        results.add(case, {"it": Spread(function(case), 0.01)})
    matrix = judge(results, {"it": kind})
    return {cell.demand.name: cell.mark for cell in matrix.of("it")}


def test_truth_about_fidelity_meets_everything():
    found = marks(fidelity, "fidelity")
    assert found == {demand.name: "T" for demand in DEMANDS}


@pytest.mark.parametrize(("function", "way"), [(low_diversity, "L"), (high_diversity, "H")])
def test_truth_about_diversity_meets_everything_either_way(function, way):
    found = marks(function, "diversity")
    split = {"std / bounds", "std / property", "collapse / property"}
    if way == "H":
        split.add("discrete / bounds")
    expected = {demand.name: way if demand.name in split else "T" for demand in DEMANDS}
    assert found == expected | {"discrete / bounds": way}


def test_high_in_one_dimension_and_low_in_another_fails():
    def mixed(case):
        return (high_diversity if case.setting.dimension == 8 else low_diversity)(case)

    found = marks(mixed, "diversity", ("std", "collapse"))
    assert (found["std / bounds"], found["std / property"], found["collapse / property"]) == ("F", "F", "F")
    assert found["collapse / bounds"] == "T"


def constant_passes(kind, value):
    return {name for name, mark in marks(lambda _: value, kind).items() if mark != "F"}


UNCHANGED = {
    "cube-n / D3",
    "cube-n-fake / D2",
    "sphere-torus / property",
    "scaling / D5",
    "disjoint / property",
    "discrete / property",
}
ONE = {"simultaneous / bounds", "sequential / bounds", "invention / bounds", "collapse / bounds"}
ZERO = {"sphere-torus / bounds", "scaling / bounds", "disjoint / bounds"}


def test_constants_meet_what_does_not_change_and_bounds_that_they_equal():
    flat_modes = {"simultaneous / property", "sequential / property"}
    assert constant_passes("fidelity", 1.0) == UNCHANGED | ONE | flat_modes
    assert constant_passes("fidelity", 0.0) == UNCHANGED | ZERO | flat_modes
    assert constant_passes("fidelity", 0.2) == UNCHANGED | flat_modes | {
        "cube-n / property",
        "cube-n-fake / property",
    }
    assert constant_passes("diversity", 1.0) == UNCHANGED | ONE | {"collapse / property"}
    assert constant_passes("diversity", 0.0) == UNCHANGED | ZERO | {
        "collapse / property",
        "discrete / bounds",
    }


def test_every_setting_counts():
    for wrong in ("outlier among the reals", "outlier among the fakes"):

        def fooled(case, wrong=wrong):
            return 0.5 if (case.setting.scenario, case.setting.dimension) == (wrong, 64) else fidelity(case)

        found = marks(fooled, "fidelity", ("mean+outlier",))
        assert found == {"mean+outlier / bounds": "F", "mean+outlier / property": "F"}


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("std / bounds", lambda case: 0.9 if case.x == 1 else fidelity(case)),
        ("std / bounds", lambda case: 0.9 if case.x < 0.002 else fidelity(case)),
        ("std / bounds", lambda case: 0.1 if case.x > 900 else fidelity(case)),
        ("simultaneous / bounds", lambda case: 0.9 if case.x == 1 else 1.0),
        ("sequential / bounds", lambda case: 0.9 if case.x == 9 else 1.0),
        ("invention / bounds", lambda case: 0.9 if case.x == 5 else fidelity(case)),
        ("invention / bounds", lambda case: 0.9 if case.x == 1 else fidelity(case)),
        ("cube-n / property", lambda case: 0.26 if case.x == 10_000 else 0.2),
        ("sphere-torus / bounds", lambda case: 0.06 if case.x == 10_000 else 0.0),
        ("scaling / bounds", lambda case: 0.06 if case.x < 0.002 else 0.0),
        ("disjoint / bounds", lambda case: 0.06 if case.x == 1000 else 0.0),
        ("discrete / bounds", lambda case: 0.06 if case.x == 1 and fidelity(case) == 0 else fidelity(case)),
        (
            "discrete / bounds",
            lambda case: 0.94 if case.x == 1000 and fidelity(case) == 1 else fidelity(case),
        ),
    ],
)
def test_each_bound_counts(row, wrong):
    check = row.partition(" / ")[0]
    assert marks(fidelity, "fidelity", (check,))[row] == "T"
    assert marks(wrong, "fidelity", (check,))[row] == "F"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("invention / bounds", lambda case: 0.9 if case.x == 10 else low_diversity(case)),
        ("invention / bounds", lambda case: 0.9 if case.x == 5 else low_diversity(case)),
        ("std / bounds", lambda case: 0.1 if case.x < 0.4 else low_diversity(case)),
        ("simultaneous / property", lambda case: 0.1 if case.x == 1 else 1.0),
        ("sequential / property", lambda case: 1.0 if case.x < 8 else low_diversity(case)),
    ],
)
def test_each_bound_of_diversity_counts(row, wrong):
    check = row.partition(" / ")[0]
    assert marks(low_diversity, "diversity", (check,))[row] in "TL"
    assert marks(wrong, "diversity", (check,))[row] == "F"
