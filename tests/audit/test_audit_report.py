"""The reports of an audit hold every cell, and no name can break them."""

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


def test_markdown_tables_have_equal_rows():
    matrix, results = measured({"precision": "fidelity", "recall": "diversity", HOSTILE: "diversity"})
    text = markdown(matrix, results.run)
    assert "| check | recall | <script>\"&'\\|\\*\\~$x$ |" in text
    assert "quick grids, 3 draws per point, seed 0" in text
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {3, 4}
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


def test_the_command_writes_files_and_goes_on_from_them(tmp_path):
    path, out = tmp_path / "mine.py", tmp_path / "new" / "out"
    path.write_text("def good(real, fake):\n    return 1.0\n\ndef bad(real, fake):\n    return 0.0\n")
    options = ["--kind", "fidelity", "--check", "invention", "--out", str(out), "-q"]
    first = CliRunner().invoke(command, ["--function", f"{path}:good", *options])
    assert first.stdout.splitlines()[0].split() == ["good"]
    assert sorted(each.name for each in out.iterdir()) == ["matrix.md", "results.jsonl"]
    again = ["--function", f"{path}:bad", *options, "--resume", "--json"]
    cells = json.loads(CliRunner().invoke(command, again).stdout)["cells"]
    assert [cell["mark"] for cell in cells] == ["F", "F"]
    for wrong in (["--function", f"{path}:bad", *options], ["--kind", "fidelity"], ["--resume"]):
        assert isinstance(CliRunner().invoke(command, wrong).exception, UsageError)
