"""Cells say what decided them, and the published tables are complete."""

from __future__ import annotations

import math

import pytest

from genpr.audit.checks import cases
from genpr.audit.criteria import _COLUMNS, DEMANDS
from genpr.audit.matrix import judge
from genpr.audit.runner import Results, Run, Spread

INVENTION = {1: 1.0, 5: 1.0, 10: 0.5}


def invention(values, *, sd=0.1, name="precision", kind="fidelity"):
    """The matrix of one check, for a curve through `values` by x and 1 elsewhere."""
    results = Results(Run("full", 10, 0))
    for case in cases(("invention",), "full"):
        results.add(case, {name: Spread(values.get(int(case.x), 0.99), sd)})
    return judge(results, {name: kind})


def test_published_counts_are_those_of_the_paper():
    counts = {name: 30 - marks.count("F") for name, marks in _COLUMNS.items()}
    assert counts == {
        "I-Prec": 11,
        "Dens": 18,
        "IAP": 11,
        "C-Prec": 10,
        "symPrec": 10,
        "P-Prec": 13,
        "I-Rec": 9,
        "Cov": 13,
        "IBR": 9,
        "C-Rec": 13,
        "symRec": 9,
        "P-Rec": 10,
    }
    assert all(len(marks) == len(DEMANDS) for marks in _COLUMNS.values())


def test_published_high_and_low_are_where_both_are_allowed():
    for name, marks in _COLUMNS.items():
        for demand, mark in zip(DEMANDS, marks, strict=True):
            assert mark == "F" or mark in demand.fidelity or mark in demand.diversity, (name, demand.name)


def test_cell_names_the_point_that_decides_and_its_noise():
    cell = invention({1: 0.97, 5: 0.96, 10: 0.5}).cells["invention / bounds", "precision"]
    assert cell.mark == "T"
    assert cell.margin.value == pytest.approx(0.01)
    assert cell.margin.se == pytest.approx(0.1 / math.sqrt(10))
    assert cell.is_open
    assert "0.960 at 5" in cell.reason
    assert "d = 2" in cell.reason
    assert "+0.010 ± 0.032" in cell.reason


def test_cells_differ_from_what_was_published():
    good = invention(INVENTION)
    assert not good.differing
    bad = invention({1: 0.5, 5: 1.0, 10: 0.5})
    assert [cell.demand.name for cell in bad.differing] == ["invention / bounds", "invention / property"]
    assert all(cell.published == "T" for cell in bad.differing)
    assert invention({1: 0.5, 5: 1.0, 10: 0.5}, sd=0.01).cells["invention / bounds", "precision"].text == "F*"
    settled = invention({1: 1.0, 5: 1.0, 10: 0.5}, sd=0.01).cells["invention / bounds", "precision"]
    assert settled.errors == pytest.approx(0.05 / (0.01 / math.sqrt(10)))
    assert (settled.is_open, settled.text) == (False, "T")
    assert not invention({1: 0.0}, name="mine").differing


def test_failure_is_measured_towards_the_published_pass():
    results = Results(Run("full", 10, 0))
    for case in cases(("std",), "full"):
        spread = Spread(0.5 if case.x == 1 else 0.4, 0.01)  # nearer to a bell than to a rise
        results.add(case, {"recall": spread, "mine": spread})
    matrix = judge(results, {"recall": "diversity", "mine": "diversity"})
    cell, unpublished = (matrix.cells["std / property", name] for name in ("recall", "mine"))
    assert (cell.mark, cell.published, unpublished.mark) == ("F", "H", "F")
    assert cell.margin.value == pytest.approx(-0.2)
    assert unpublished.margin.value == pytest.approx(-0.1)


def test_metric_without_values_somewhere_fails_and_says_so():
    matrix = invention({7: math.nan})
    cell = matrix.cells["invention / bounds", "precision"]
    assert cell.mark == "F"
    assert "no finite value" in cell.reason
    assert not cell.is_open


def test_incomplete_curves_are_not_judged():
    results = Results(Run("full", 10, 0))
    for case in list(cases(("invention",), "full"))[:-1]:
        results.add(case, {"precision": Spread(1.0, 0.0)})
    assert not judge(results, {"precision": "fidelity"}).cells


def with_seeds(*values, sd=0.1, kinds=("precision",)):
    """The matrix of one check with seeds 3, 4, ..., for one value at the decisive point with each seed."""
    runs = []
    for seed, value in enumerate(values, start=3):
        results = Results(Run("full", 10, seed))
        for case in cases(("invention",), "full"):
            spread = Spread({1: value, 10: 0.5}.get(int(case.x), 0.99), sd)
            results.add(case, dict.fromkeys(kinds, spread))
        runs.append(results)
    first, *more = runs
    return judge(first, dict.fromkeys(kinds, "fidelity"), *more)


def test_cell_whose_outcome_changes_with_the_seed_counts_the_seeds_that_pass():
    matrix = with_seeds(0.96, 0.94, 0.97, 0.93, 0.98)
    cell = matrix.cells["invention / bounds", "precision"]
    assert matrix.seeds == (3, 4, 5, 6, 7)
    assert cell.marks == ("T", "F", "T", "F", "T")
    assert (cell.changes, cell.passing_seeds) == (True, 3)
    assert cell.margin.value == pytest.approx(0.01)  # of the first seed
    assert matrix.changing == (cell,)
    assert cell.text == "T 3/5"


def test_cell_whose_outcome_is_the_same_with_every_seed_has_its_mark_alone():
    matrix = with_seeds(0.96, 0.97, 0.98)
    assert matrix.cells["invention / bounds", "precision"].marks == ("T", "T", "T")
    assert not matrix.changing
    assert matrix.cells["invention / bounds", "precision"].text == "T~"


def test_metric_that_was_not_measured_with_every_seed_has_one_mark():
    results, more = Results(Run("full", 10, 0)), Results(Run("full", 10, 1))
    for case in cases(("invention",), "full"):
        results.add(case, {"precision": Spread(0.5, 0.1)})
    cell = judge(results, {"precision": "fidelity"}, more).cells["invention / bounds", "precision"]
    assert (cell.marks, cell.changes) == (("F",), False)
