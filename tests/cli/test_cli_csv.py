"""`genpr score --csv`: the table in the file, and names that would like to be something else."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genpr.report.files import COLUMNS, cell_of, name_in

QUICK = ("--extractor", "pixels", "--no-intervals", "--no-control", "--device", "cpu")


def rows_of(path, **options):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, **options))


AWKWARD = st.text(st.sampled_from("=+-@＝＋－＠'\";,\\\t\r\n\0 \ud800\u202e<a1\u2028文😀"), max_size=6)


@given(AWKWARD)
@example("x" * 4000)
def test_no_name_is_run_or_lost(name):
    cell = cell_of(name)
    assert cell.isprintable()
    assert cell.encode("utf-8").decode("utf-8") == cell
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert ";" not in cell
    assert name_in(cell) == name


@pytest.fixture
def hostile(folders):
    """Two folders, in which some files have names that programs obey."""
    names = ["=cmd().png", "<script>alert(1)</script>.png", "-1;=2.png", '@x,"y\n.png', "\udcff.png"]
    for folder in folders:
        for row, name in enumerate(names):
            (folder / name).parent.mkdir(exist_ok=True)  # the slash in one of them makes a folder
            (folder / f"{row:05d}.png").rename(folder / name)
    return folders, names


def test_the_table_is_the_score(genpr, hostile):
    (real, fake), names = hostile
    out = real.parent / "samples.csv"
    out.write_text("older")
    code, shown, told = genpr("score", real, fake, *QUICK, "--csv", out, "--json")
    assert code == 0
    result = json.loads(shown)
    assert f"wrote 40 rows to {out}" in told
    rows = rows_of(out)
    assert tuple(rows[0]) == COLUMNS
    fakes, reals = ([row for row in rows if row["side"] == side] for side in ("fake", "real"))
    assert len(fakes) == len(reals) == 20
    assert np.mean([int(row["inside"]) for row in fakes]) == result["metrics"]["precision"]["value"]
    assert np.mean([int(row["covered"]) for row in reals]) == result["metrics"]["coverage"]["value"]
    density = sum(int(row["n_balls"]) for row in fakes) / (5 * 20)
    assert density == result["metrics"]["density"]["value"]
    assert {row["covered"] for row in fakes} == {row["inside"] for row in reals} == {""}
    assert set(names) <= {name_in(row["name"]) for row in fakes}
    for row in fakes:
        assert row["nearest"] == reals[int(row["nearest_row"])]["name"]
        assert (fake / name_in(row["name"])).exists()
    assert [int(row["row"]) for row in reals] == list(range(20))
    assert not [path for path in real.parent.iterdir() if path.suffix == ".tmp"]
