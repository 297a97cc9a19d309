"""Values equal those of an oracle; runs resume, and are extended and evaluated; reports contain every cell."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from raising import raising

import genpr
from genpr.audit import runner
from genpr.audit.checks import CHECKS, Case, Setting, cases, standardized
from genpr.audit.runner import (
    Family,
    Results,
    Run,
    Spread,
    evaluate_demands,
    families_of,
    run_audit,
    shipped_kinds,
)
from genpr.cli.audit import command
from genpr.errors import GenprError, ResourceError, UsageError
from genpr.metrics.probabilistic import probabilistic_precision_recall
from genpr.metrics.registry import BALLS
from genpr.metrics.witnessed import witnessed
from genpr.report.audit_report import agreement, audit_table, markdown
from genpr.report.text import head_lines

CHECK = ("invention",)


def test_values_equal_those_of_score_with_the_published_settings(rng):
    real, fake = rng.normal(size=(220, 8)).astype(np.float32), rng.normal(size=(340, 8)).astype(np.float32)
    kinds, expected = shipped_kinds(), {}
    for k, names in ((3, ["precision", "recall"]), (5, [name for name in kinds if name in BALLS])):
        result = genpr.score(real, fake, k=k, metrics=names, control=False, intervals=False)
        expected = {name: result[name] for name in names} | expected
    for prefix, function in (("p_", probabilistic_precision_recall), ("witnessed_", witnessed)):
        expected |= {prefix + name: value for name, value in function(real, fake)._asdict().items()}
    found = {name: one.function(real, fake)[name] for one in families_of(kinds) for name in one.kinds}
    assert {name: found[name] for name in kinds} == pytest.approx({name: expected[name] for name in kinds})


class Counted:
    """The distance between two means; counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, real, fake):
        self.calls += 1
        return float(np.abs(real.mean(axis=0) - fake.mean(axis=0)).sum())


def family(function, name="gap"):
    return Family({name: "fidelity"}, lambda real, fake: {name: function(real, fake)})


def test_values_are_means_over_draws():
    results = run_audit([family(Counted())], checks=CHECK)
    case, values = Case("invention", Setting(2), 3.0), []
    for repeat in range(3):
        real, fake = standardized(*CHECKS["invention"].draw(case.rng(0, repeat), case.setting, case.x))
        values.append(Counted()(real, fake))
    spread = results.values[case]["gap"]
    assert spread.mean == pytest.approx(np.mean(values), rel=1e-5)
    assert spread.sd == pytest.approx(np.std(values, ddof=1), rel=1e-5)


def test_stopped_run_resumes_without_repeating_cases(tmp_path):
    path, whole, function = tmp_path / "results.jsonl", tmp_path / "whole.jsonl", Counted()
    complete = run_audit([family(Counted())], checks=CHECK, path=whole)
    lines = whole.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]))
    resumed = run_audit([family(function)], checks=CHECK, path=path, resume=True)
    assert function.calls == 6 * 3
    assert resumed.values == complete.values == runner.load(path, complete.run).values
    assert path.read_text() == whole.read_text()


def test_missing_values_are_stored_as_null(tmp_path):
    path = tmp_path / "results.jsonl"
    results = run_audit([family(lambda real, fake: math.nan)], checks=CHECK, path=path)
    assert json.loads(path.read_text().splitlines()[0])["metrics"] == {"gap": [None, None]}
    assert math.isnan(next(iter(runner.load(path, results.run).values.values()))["gap"].mean)


@pytest.mark.parametrize(
    ("change", "line", "code"),
    [
        ({"seed": 1}, "", "other-run"),
        ({"repeats": 2}, "", "other-run"),
        ({"grid": "full"}, "", "other-run"),
        ({"resume": False}, "", "results-exist"),
        ({}, "[]\n", "file-damaged"),
        ({}, '{"check": "mean"}\n', "file-damaged"),
        ({"checks": ("nonsense",)}, "", "unknown-check"),
    ],
)
def test_files_of_other_runs_damaged_files_and_unknown_checks_are_errors(tmp_path, change, line, code):
    path = tmp_path / "results.jsonl"
    run_audit([family(Counted())], checks=CHECK, path=path)
    path.write_text(path.read_text() + line)
    with raising(GenprError, code):
        run_audit([family(Counted())], **{"checks": CHECK, "path": path, "resume": True} | change)


def test_unknown_and_duplicate_names_are_errors():
    for names, code in ((["nonsense"], "unknown-metric"), (["recall", "recall"], "doubled-metric")):
        with raising(UsageError, code):
            run_audit([each for name in names for each in families_of([name])], checks=CHECK)


@pytest.mark.parametrize("jobs", [1, 2])
def test_functions_of_a_file_run_in_worker_processes(tmp_path, jobs):
    path = tmp_path / "mine.py"
    path.write_text(
        "def score(real, fake):\n    found = len(real) + fake.mean()\n    real[:] = fake[:] = 0\n    return found\n"
        "def bad(real, fake):\n    raise ValueError('no\\nway')\n"
    )
    function = runner.user_family(f"{path}:score", "fidelity")
    results = run_audit([function, family(Counted())] if jobs == 1 else [function], checks=CHECK, jobs=jobs)
    for case, spreads in run_audit([family(Counted())], checks=CHECK).values.items():
        assert spreads["gap"] == results.values[case].get("gap", spreads["gap"])  # arguments were copied
    assert len(results.values) == 10
    message = r"ValueError: no way \(check 'invention', d = 2, x = "
    with raising(UsageError, "user-function", message):
        run_audit([runner.user_family(f"{path}:bad", "fidelity")], checks=CHECK, jobs=jobs)


def test_lack_of_memory_is_an_error_of_a_resource():
    def hungry(real, fake):
        raise ResourceError("out of memory", code="oom")

    with raising(ResourceError, "oom", "check 'invention'"):
        run_audit([Family({"hungry": "fidelity"}, hungry)], checks=CHECK)


@pytest.mark.parametrize("spec", ["missing.py:score", "{}:other", "{}:number", "{}:text", "{}:exits"])
def test_missing_functions_and_non_numeric_values_are_errors(tmp_path, spec):
    path = tmp_path / "mine.py"
    path.write_text(
        "number = 1\ndef text(real, fake):\n    return [1, 2]\ndef exits(real, fake):\n    raise SystemExit(0)\n"
    )
    with raising(GenprError, "user-function"):
        runner.user_family(spec.format(path), "fidelity").function(np.zeros((2, 1)), np.zeros((2, 1)))


def matrix_of(value, sd=0.1, name="precision"):
    """Matrix of one check for one value at the decisive point."""
    results = Results(Run("full", 10, 0))
    for case in cases(CHECK, "full"):
        results.add(case, {name: Spread({1: value, 10: 0.5}.get(int(case.x), 0.99), sd)})
    return evaluate_demands(results, {name: "fidelity"})


def test_cells_name_the_decisive_point_and_its_standard_error():
    cell = matrix_of(0.96).cells["invention / bounds", "precision"]
    assert (cell.mark, cell.is_open, cell.text, cell.differs) == ("T", True, "T~", False)
    assert cell.margin.value == pytest.approx(0.01)
    assert cell.margin.se == pytest.approx(0.1 / math.sqrt(10))
    assert "0.960 at 1" in cell.reason
    assert "+0.010 ± 0.032" in cell.reason
    failed = matrix_of(0.5, sd=0.01).cells["invention / bounds", "precision"]
    assert (failed.text, failed.published) == ("F*", "T")
    assert matrix_of(0.5, sd=0.01, name="mine").cells["invention / bounds", "mine"].text == "F"
    nothing = matrix_of(math.nan).cells["invention / bounds", "precision"]
    assert (nothing.mark, nothing.is_open) == ("F", False)


def test_failures_are_measured_from_the_published_pass_and_incomplete_curves_are_left_out():
    results = Results(Run("full", 10, 0))
    *most, last = cases(("std",), "full")
    for case in most:
        spread = Spread(0.5 if case.x == 1 else 0.4, 0.01)  # nearer to a bell than to a rise
        results.add(case, {"recall": spread, "mine": spread})
    assert not evaluate_demands(results, {"recall": "diversity"}).cells
    results.add(last, {"recall": spread, "mine": spread})
    matrix = evaluate_demands(results, {"recall": "diversity", "mine": "diversity"})
    cell, unpublished = (matrix.cells["std / property", name] for name in ("recall", "mine"))
    assert (cell.mark, cell.published, unpublished.mark) == ("F", "H", "F")
    assert (cell.margin.value, unpublished.margin.value) == (pytest.approx(-0.2), pytest.approx(-0.1))


HOSTILE = "<script>\"&'|*~$x$"


def measured(kinds, checks=("std", "invention"), mean=0.5):
    results = Results(Run("quick", 3, 0))
    for case in cases(checks, "quick"):
        results.add(case, {name: Spread(mean, 0.001) for name in kinds})
    return evaluate_demands(results, kinds), results


def test_markdown_tables_have_equal_rows():
    matrix, results = measured({"precision": "fidelity", "recall": "diversity", HOSTILE: "diversity"})
    text = markdown(matrix, results.run)
    assert "| check | recall | <script>\"&'\\|\\*\\~$x$ |" in text
    assert "quick grids, 3 draws per point, seed 0" in text
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {3, 4}
    assert "0 of 4" in text


def test_agreement_counts_cells_that_equal_published_ones():
    matrix, results = measured({"precision": "fidelity", "mine": "fidelity"})
    # std / bounds: the others are published as passes, and .5 everywhere fails them
    assert agreement(matrix) == [("precision", "I-Prec", "1 of 4")]
    assert markdown(matrix, results.run).count("F here, T published") == 3


def test_text_fits_80_columns_and_lists_every_metric():
    kinds = shipped_kinds()
    matrix, _ = measured(kinds, tuple(CHECKS))
    blocks = audit_table(matrix).split("\n\n")
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80
    assert len(blocks) > 1
    assert all(len(block.splitlines()) in {33, 34} for block in blocks)  # names of metrics on one line or two
    heads = " ".join(block.split("─")[0] for block in blocks).split()
    assert sorted(heads) == sorted(line for name in kinds for line in head_lines(name))


def test_command_writes_files_and_resumes_from_them(tmp_path):
    path, out = tmp_path / "mine.py", tmp_path / "new" / "out"
    path.write_text("def good(real, fake):\n    return 1.0\n\ndef bad(real, fake):\n    return 0.0\n")
    options = ["--kind", "fidelity", "--checks", "invention", "--out", str(out), "-q"]
    first = CliRunner().invoke(command, ["--function", f"{path}:good", *options])
    assert first.stdout.splitlines()[0].split() == ["good"]
    assert sorted(each.name for each in out.iterdir()) == ["matrix.md", "results.jsonl"]
    again = ["--function", f"{path}:bad", *options, "--resume", "--json"]
    cells = json.loads(CliRunner().invoke(command, again).stdout)["cells"]
    assert [cell["mark"] for cell in cells] == ["F", "F"]
    for wrong in (["--function", f"{path}:bad", *options], ["--kind", "fidelity"], ["--resume"]):
        assert isinstance(CliRunner().invoke(command, wrong).exception, UsageError)
