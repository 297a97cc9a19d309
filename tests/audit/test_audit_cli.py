"""`genpr audit`: the matrix on stdout, files in --out, one clear error for what is wrong."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from genpr.cli.audit import command
from genpr.errors import GenprError, ResourceError, UsageError


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def good(real, fake):\n    return 1.0\n\ndef bad(real, fake):\n    return 0.0\n")
    return path


def run(*args):
    result = CliRunner().invoke(command, [*map(str, args), "-q"], catch_exceptions=True)
    if isinstance(result.exception, GenprError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_matrix_of_own_functions(mine):
    result = run(
        "--function",
        f"{mine}:good",
        "--function",
        f"{mine}:bad",
        "--kind",
        "fidelity",
        "--check",
        "invention",
    )
    head, _, bounds, shape, passed = result.stdout.splitlines()[:5]
    assert head.split() == ["good", "bad"]
    assert re.split(r"\s{2,}", bounds) == ["invention / bounds", "T", "F"]
    assert re.split(r"\s{2,}", shape) == ["invention / property", "F", "F"]
    assert re.split(r"\s{2,}", passed) == ["passed", "1/2", "0/2"]
    assert "quick grids, 3 draws per point, seed 0" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stderr == ""


def test_files_are_written_and_gone_on_from(mine, tmp_path):
    out = tmp_path / "new" / "folder"
    result = run("--function", f"{mine}:good", "--kind", "fidelity", "--check", "invention", "--out", out)
    assert sorted(path.name for path in out.iterdir()) == ["matrix.html", "matrix.md", "results.jsonl"]
    assert "wrote matrix.md" in result.stderr
    kept = (out / "results.jsonl").read_text()
    again = run(
        *("--function", f"{mine}:bad", "--kind", "fidelity", "--check", "invention", "--out", out, "--resume")
    )
    assert (out / "results.jsonl").read_text().startswith(kept)
    assert again.stdout.splitlines()[0].split() == ["bad"]  # whose function "good" was is not kept
    with pytest.raises(UsageError, match="holds results already"):
        run("--function", f"{mine}:good", "--kind", "fidelity", "--out", out)


def test_shipped_metrics_of_earlier_runs_stay_in_the_matrix(tmp_path, mine):
    out = tmp_path / "out"
    line = {"grid": "quick", "repeats": 3, "seed": 0, "check": "invention", "scenario": "", "dimension": 2}
    out.mkdir()
    rows = ({**line, "x": float(x), "metrics": {"recall": [1.0, 0.0]}} for x in range(1, 11))
    (out / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(
        *(
            "--function",
            f"{mine}:good",
            "--kind",
            "fidelity",
            "--check",
            "invention",
            "--out",
            out,
            "--resume",
        )
    )
    assert result.stdout.splitlines()[0].split() == ["recall", "good"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--metric", "nonsense"), "unknown-metric"),
        (("--check", "nonsense", "--metric", "recall"), "unknown-check"),
        (("--function", "mine.py:good"), "bad-option"),
        (("--kind", "fidelity"), "bad-option"),
        (("--function", "missing.py:good", "--kind", "fidelity"), "user-function"),
        (("--resume",), "bad-option"),
    ],
)
def test_errors_are_found_before_anything_runs(args, code):
    with pytest.raises(UsageError) as caught:
        run(*args)
    assert caught.value.code == code


def test_out_that_is_a_file_is_refused(mine):
    with pytest.raises(ResourceError) as caught:
        run("--function", f"{mine}:good", "--kind", "fidelity", "--check", "invention", "--out", mine)
    assert caught.value.code == "unwritable"


@pytest.fixture
def uneven(tmp_path):
    """A function that passes a check with some seeds only: its value depends on a digit of the data."""
    path = tmp_path / "uneven.py"
    path.write_text("def score(real, fake):\n    return float(int(abs(real[0, 0]) * 1e4) % 2)\n")
    return f"{path}:score"


def test_every_seed_is_kept_and_marked(uneven, tmp_path):
    out = tmp_path / "out"
    arguments = ("--function", uneven, "--kind", "fidelity", "--check", "invention", "--out", out)
    run(*arguments, "--seed", "5")
    kept = (out / "results.jsonl").read_text()
    answer = json.loads(run(*arguments, "--seed", "5", "--seeds", "3", "--resume", "--json").stdout)
    assert (answer["seed"], answer["seeds"]) == (5, [5, 6, 7])
    assert sorted(path.name for path in out.glob("*.jsonl")) == [
        "results-seed-6.jsonl",
        "results-seed-7.jsonl",
        "results.jsonl",
    ]
    assert (out / "results.jsonl").read_text() == kept
    for cell in answer["cells"]:
        assert len(cell["marks"]) == 3
        assert cell["mark"] == cell["marks"][0]
        assert cell["changes"] == (len({mark == "F" for mark in cell["marks"]}) == 2)
