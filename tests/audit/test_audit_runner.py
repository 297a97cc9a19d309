"""Runs can be stopped, gone on with, added to and repeated in part."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from genpr.audit.checks import CHECKS, Case, Setting, cases, standardized
from genpr.audit.metrics import Family, UserFunction, user_family
from genpr.audit.runner import Results, Run, Spread, load, run_audit
from genpr.errors import DataError, UsageError

CHECK = ("invention",)


class Counted:
    """The distance between two means, and how often it was asked for."""

    def __init__(self):
        self.calls = 0

    def __call__(self, real, fake):
        self.calls += 1
        return float(np.abs(real.mean(axis=0) - fake.mean(axis=0)).sum())


def family(function, name="gap"):
    return Family({name: "fidelity"}, lambda real, fake: {name: function(real, fake)})


def test_values_are_means_over_the_draws_of_the_case():
    results = run_audit([family(Counted())], checks=CHECK)
    case = Case("invention", Setting(2), 3.0)
    values = []
    for repeat in range(3):
        real, fake = standardized(*CHECKS["invention"].draw(case.rng(0, repeat), case.setting, case.x))
        values.append(Counted()(real, fake))
    spread = results.values[case]["gap"]
    assert spread.mean == pytest.approx(np.mean(values), rel=1e-5)
    assert spread.sd == pytest.approx(np.std(values, ddof=1), rel=1e-5)


def test_every_point_is_kept_and_nothing_is_done_twice(tmp_path):
    path, function = tmp_path / "results.jsonl", Counted()
    first = run_audit([family(function)], checks=CHECK, path=path)
    assert function.calls == 30
    again = run_audit([family(function)], checks=CHECK, path=path, resume=True)
    assert function.calls == 30
    assert again.values == first.values == load(path, first.run).values


def test_stopped_run_goes_on_where_it_was(tmp_path):
    path, whole, function = tmp_path / "results.jsonl", tmp_path / "whole.jsonl", Counted()
    complete = run_audit([family(Counted())], checks=CHECK, path=whole)
    lines = whole.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:37])  # killed while it wrote the fifth
    resumed = run_audit([family(function)], checks=CHECK, path=path, resume=True)
    assert function.calls == 6 * 3
    assert resumed.values == complete.values
    assert path.read_text() == whole.read_text()


def test_old_results_are_not_overwritten(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("")
    with pytest.raises(UsageError) as caught:
        run_audit([family(Counted())], checks=CHECK, path=path)
    assert caught.value.code == "results-exist"


@pytest.mark.parametrize("change", [{"seed": 1}, {"repeats": 2}, {"grid": "full"}])
def test_results_of_another_run_are_not_mixed_in(tmp_path, change):
    path = tmp_path / "results.jsonl"
    run_audit([family(Counted())], checks=CHECK, path=path)
    with pytest.raises(UsageError) as caught:
        run_audit([family(Counted())], checks=CHECK, path=path, resume=True, **change)
    assert caught.value.code == "other-run"


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"check": "mean"}', '{"metrics": []}'])
def test_damaged_file_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "results.jsonl"
    run_audit([family(Counted())], checks=CHECK, path=path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"line 11: this is no result of an audit"):
        run_audit([family(Counted())], checks=CHECK, path=path, resume=True)


def test_value_that_is_none_is_kept_as_such(tmp_path):
    path = tmp_path / "results.jsonl"
    results = run_audit([family(lambda real, fake: math.nan)], checks=CHECK, path=path)
    assert all(math.isnan(spreads["gap"].mean) for spreads in results.values.values())
    assert json.loads(path.read_text().splitlines()[0])["metrics"] == {"gap": [None, None]}
    assert math.isnan(next(iter(load(path, results.run).values.values()))["gap"].mean)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"checks": ("nonsense",)}, "unknown-check"),
        ({"repeats": 0}, "bad-option"),
        ({"jobs": 0}, "bad-option"),
        ({"seed": -1}, "bad-option"),
    ],
)
def test_impossible_arguments_are_refused(arguments, code):
    with pytest.raises(UsageError) as caught:
        run_audit([family(Counted())], **{"checks": CHECK} | arguments)
    assert caught.value.code == code
    with pytest.raises(UsageError) as caught:
        run_audit([family(Counted()), family(Counted())], checks=CHECK)
    assert caught.value.code == "doubled-metric"


def written(tmp_path, body):
    path = tmp_path / "mine.py"
    path.write_text(body)
    return path


def test_functions_that_write_into_their_arguments_disturb_no_other(tmp_path):
    body = "def greedy(real, fake):\n    real[:] = fake[:] = 0\n    return 0.0\n"
    greedy = user_family(f"{written(tmp_path, body)}:greedy", "fidelity")
    with_greedy = run_audit([greedy, family(Counted())], checks=CHECK)
    alone = run_audit([family(Counted())], checks=CHECK)
    for case, spreads in alone.values.items():
        assert with_greedy.values[case]["gap"] == spreads["gap"]


def test_function_of_a_file_runs_here_and_in_other_processes(tmp_path):
    path = written(tmp_path, "def score(real, fake):\n    return len(real) + fake.mean()\n")
    alone = run_audit([user_family(f"{path}:score", "fidelity")], checks=CHECK)
    side_by_side = run_audit([user_family(f"{path}:score", "fidelity")], checks=CHECK, jobs=2)
    assert alone.values == side_by_side.values
    assert len(alone.values) == 10


def test_error_of_a_function_in_another_process_comes_back(tmp_path):
    path = written(tmp_path, "def score(real, fake):\n    raise ValueError('no\\nway')\n")
    message = r"raised ValueError: no way \(check 'invention', d = 2, x = "
    for jobs in (1, 2):
        with pytest.raises(UsageError, match=message) as caught:
            run_audit([user_family(f"{path}:score", "fidelity")], checks=CHECK, jobs=jobs)
        assert caught.value.code == "user-function"


@pytest.mark.parametrize("spec", ["mine.py", ":score", "missing.py:score", "{path}:other", "{path}:number"])
def test_a_missing_function_is_refused(tmp_path, spec):
    path = written(tmp_path, "number = 1\ndef score(real, fake):\n    return 0.0\n")
    with pytest.raises(UsageError) as caught:
        UserFunction(spec.format(path=path))
    assert caught.value.code == "user-function"


def test_a_function_is_given_reals_and_then_fakes(tmp_path):
    path = written(tmp_path, "def score(real, fake):\n    return len(real) - len(fake)\n")
    assert UserFunction(f"{path}:score")(np.zeros((5, 1)), np.zeros((3, 1))) == {"score": 2.0}


def test_a_file_that_fails_or_a_value_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        UserFunction(f"{written(tmp_path, '1 / 0')}:score")
    function = UserFunction(f"{written(tmp_path, 'def score(r, f): return [1, 2]')}:score")
    with pytest.raises(UsageError, match="not list"):
        function(np.zeros((2, 1)), np.zeros((2, 1)))


def test_curve_needs_every_point_and_shrinks_with_repeats():
    results = Results(Run("full", 4, 0))
    *most, last = cases(CHECK, "full")
    for case in most:
        results.add(case, {"gap": Spread(case.x, 0.5)})
    assert results.curve("invention", Setting(2), "gap") is None
    results.add(last, {"gap": Spread(last.x, 0.5)})
    curve = results.curve("invention", Setting(2), "gap")
    np.testing.assert_array_equal(curve.mean, range(1, 11))
    np.testing.assert_array_equal(curve.se, 0.25)
