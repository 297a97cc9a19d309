"""The sanity checks of metrics: grids and data as published, criteria up to their thresholds, recorded results."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from metric_checks import (  # noqa: E402
    CHECKS,
    DEMANDS,
    KINDS,
    PUBLISHED,
    Case,
    Curve,
    bell,
    cell,
    converged,
    falling,
    falling_until,
    flat,
    main,
    measured,
    rising,
    stored,
    tables,
    values,
)

RECORDED = BENCHMARKS / "results" / "metric-checks.jsonl"
CASES = [case for name, check in CHECKS.items() for curve in check.curves(name) for case in curve]


def test_recorded_results_give_the_recorded_tables():
    results = stored(RECORDED, repeats=10, seed=0)
    assert results.keys() == {*CASES}
    assert tables(results, repeats=10, seed=0) == RECORDED.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case("mean+outlier", "outlier among the reals", 8, 0.0), marks=pytest.mark.slow),
        Case("cube-n-fake", "", 8, 100.0),
    ],
)
def test_values_equal_recorded_ones(case):
    names = [name for names in KINDS.values() for name in names]
    found = measured(case, metrics=names, repeats=10, seed=0)
    recorded = stored(RECORDED, repeats=10, seed=0)[case]
    for name in names:
        assert found[name] == pytest.approx(recorded[name], rel=1e-4)


def test_marks_as_published():
    passed = {name: 30 - marks.count("F") for name, marks in PUBLISHED.items()}
    assert list(passed.values()) == [11, 9, 18, 13, 10, 9]
    for marks in PUBLISHED.values():
        assert all(mark in {"F", *DEMANDS[row][2], *DEMANDS[row][3]} for row, mark in enumerate(marks))


def test_value_that_is_not_finite_fails():
    results = {case: {"clipped_density": [math.nan, 0.01]} for case in CASES}
    assert {cell(results, row, "clipped_density", repeats=10)[0] for row in range(len(DEMANDS))} == {"F"}


@pytest.mark.parametrize(
    ("criterion", "means", "holds"),
    [
        (values(1), (0.95,), True),  # despite rounding
        (values(1), (1.051,), False),
        (lambda c: bell(1, c), (0.8, 1, 0), True),
        (lambda c: bell(1, c), (0.81, 1, 0), False),  # does not fall enough on the left
        (lambda c: bell(2, c), (0, 1.11, 1, 0.5, 0), False),  # higher elsewhere
        (lambda c: bell(2, c), (0.3, 0.15, 1, 0.9, 0.3), False),  # lowest within
        (lambda c: bell(2, c), (0.5, 0.15, 1, 0.9, 0.2), True),  # one end is the lowest
        (falling, (0.3, 0.1), True),  # .3 - .1 - .2 is not 0 in floating point
        (falling, (1, 0.9, 0.81), False),
        (falling, (0.9, 1.01, 0), False),
        (falling, (1, 0.09, 0.2), False),
        (rising, (0.8, 0.75, 1), True),
        (lambda c: falling_until(0.5, c), (1, 1, 1, 1, 0), False),
        (lambda c: falling_until(0.5, c), (1, 1, 0.9, 0.9, 0), True),
        (flat, (0.5, 0.55, 0.52), True),
        (flat, (0.5, 0.551, 0.52), False),
        (converged, (9, 9, 0.5, 0.55), True),
        (converged, (0.5, 0.5, 0.58, 0.5), False),
    ],
)
def test_criteria_hold_up_to_their_thresholds(criterion, means, holds):
    n = len(means)
    curve = Curve("", np.arange(n, dtype=float), np.array(means, dtype=float), np.full(n, 0.01))
    assert (criterion(curve).value >= -1e-12) is holds


def test_standard_error_is_that_of_the_deciding_points():
    margin = flat(Curve("", np.arange(3.0), np.array([0.2, 0.9, 0.5]), np.array([0.03, 0.04, 9.0])))
    assert (margin.value, margin.error) == (pytest.approx(0.05 - 0.7), pytest.approx(0.05))


def test_grids_are_as_published():
    ends = {name: [(c[0].x, c[-1].x, len(c)) for c in check.curves(name)] for name, check in CHECKS.items()}
    assert len({*CASES}) == len(CASES) == 1304
    assert ends["mean"] == [(-6, 6, 51), (-3, 3, 51), (-1, 1, 51)]
    assert ends["disjoint"] == [(1, 1000, 18)]  # 20, of which two are the same whole numbers as others
    assert ends["sphere-torus"] == [(100, 10_000, 20)] * 2
    for name, middle in {"mean": 0, "mean+outlier": 0, "std": 1, "hypersphere": 1, "pareto": 0}.items():
        assert all(middle in {case.x for case in curve} for curve in CHECKS[name].curves(name))


def test_command_adds_only_what_its_file_lacks(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.jsonl"
    run = {"repeats": 2, "seed": 0, "metrics": {"precision": [0.5, 0.1]}}
    cases = [case for case in CASES if case.check == "invention"]
    first = [json.dumps(run | case._asdict()) for case in cases]
    out.write_text("\n".join(first) + "\n")

    def lines_with(metrics):
        options = ["--checks", "invention", "--repeats", "2", "--metrics", metrics, "--out", str(out)]
        monkeypatch.setattr("sys.argv", ["metric_checks.py", *options])
        main()
        return out.read_text().splitlines()

    assert lines_with("precision") == first
    both = lines_with("precision,recall")
    assert (len(both), both[:10]) == (20, first)
    assert lines_with("precision,recall") == both
    assert "| invention / bounds | T |" in out.with_suffix(".md").read_text()
    with pytest.raises(SystemExit):
        lines_with("nonsense")
    assert "nonsense" in capsys.readouterr().err
