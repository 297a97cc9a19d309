"""The reports of an audit hold every cell, and no name can break them."""

from __future__ import annotations

import json

from click.testing import CliRunner

from genpr.audit.checks import CHECKS, cases
from genpr.audit.runner import Results, Run, Spread, judge, shipped_kinds
from genpr.cli.audit import command
from genpr.errors import UsageError
from genpr.report.audit_report import agreement, audit_table, markdown

HOSTILE = "<script>\"&'|*~$x$"


def measured(kinds, checks=("std", "invention"), mean=0.5):
    results = Results(Run("quick", 3, 0))
    for case in cases(checks, "quick"):
        results.add(case, {name: Spread(mean, 0.001) for name in kinds})
    return judge(results, kinds), results


def test_hostile_names_stay_text():
    matrix, results = measured({HOSTILE: "fidelity"})
    header = next(line for line in markdown(matrix, results.run).splitlines() if line.startswith("| check"))
    assert header == "| check | <script>\"&'\\|\\*\\~$x$ |"


def test_markdown_tables_have_equal_rows():
    matrix, results = measured({"precision": "fidelity", "recall": "diversity", "mine": "diversity"})
    text = markdown(matrix, results.run)
    assert "quick grids, 3 draws per point, seed 0" in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {3, 4}
    assert "0 of 4" in text


def test_agreement_counts_cells_as_published():
    matrix, results = measured({"precision": "fidelity", "mine": "fidelity"})
    # std / bounds: the others are published as passes, and .5 everywhere fails them
    assert agreement(matrix) == [("precision", "I-Prec", "1 of 4")]
    assert markdown(matrix, results.run).count("F here, T published") == 3


def test_text_fits_eighty_columns_and_shows_every_metric():
    kinds = shipped_kinds()
    matrix, _ = measured(kinds, tuple(CHECKS))
    blocks = audit_table(matrix).split("\n\n")
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80
    assert len(blocks) > 1
    assert all(len(block.splitlines()) == 33 for block in blocks)
    assert " ".join(block.splitlines()[0] for block in blocks).split() == list(kinds)


def test_cells_that_change_with_the_seed_are_listed_with_the_seeds_that_pass():
    runs = []
    for seed, value in enumerate((0.96, 0.5, 0.97)):
        results = Results(Run("quick", 3, seed))
        for case in cases(("invention",), "quick"):
            spread = Spread({1: value, 10: 0.5}.get(int(case.x), 0.99), 0.001)
            results.add(case, {"precision": spread, "mine": Spread(0.5, 0.001)})
        runs.append(results)
    kinds = {"precision": "fidelity", "mine": "fidelity"}
    matrix = judge(runs[0], kinds, *runs[1:])
    text = markdown(matrix, runs[0].run)
    assert "seeds 0 to 2" in text
    assert "precision, invention / bounds: passes with 2 of 3 seeds (0, 2)" in text
    assert "T 2/3" in text
    assert "2 of 4 cells" in text
    assert "changes with the seed" not in markdown(judge(runs[0], kinds), runs[0].run)


def test_every_seed_is_kept_and_gone_on_from(tmp_path):
    path, out = tmp_path / "mine.py", tmp_path / "new" / "out"
    # Passes with some seeds only: the value depends on a digit of the data.
    path.write_text("def score(real, fake):\n    return float(int(abs(real[0, 0]) * 1e4) % 2)\n")
    arguments = [
        "--function",
        f"{path}:score",
        "--kind",
        "fidelity",
        "--check",
        "invention",
        "--out",
        str(out),
        "-q",
    ]
    first = CliRunner().invoke(command, [*arguments, "--seed", "5"])
    assert first.exit_code == 0
    kept = (out / "results.jsonl").read_text()
    again = CliRunner().invoke(command, [*arguments, "--seed", "5", "--seeds", "2", "--resume", "--json"])
    names = ["matrix.md", "results-seed-6.jsonl", "results.jsonl"]
    assert sorted(each.name for each in out.iterdir()) == names
    assert (out / "results.jsonl").read_text() == kept
    answer = json.loads(again.stdout)
    assert answer["seeds"] == [5, 6]
    assert all(cell["mark"] == cell["marks"][0] and len(cell["marks"]) == 2 for cell in answer["cells"])
    assert isinstance(CliRunner().invoke(command, [*arguments, "--seed", "5"]).exception, UsageError)
    assert isinstance(CliRunner().invoke(command, ["--kind", "fidelity"]).exception, UsageError)
