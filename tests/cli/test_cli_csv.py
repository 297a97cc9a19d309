"""`genpr score --csv`: the table in the file, and names that would like to be something else."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import genpr as package
from genpr.report.files import COLUMNS, cell_of, name_in, write_samples

QUICK = ("--extractor", "pixels", "--no-intervals", "--no-control", "--device", "cpu")
HOSTILE = [
    "=cmd()",
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1+1",
    "＝1＋1",
    "'quoted",
    "''=1",
    "a;=cmd()",
    "a,=cmd()",
    'a","=cmd()',
    "a\\tb",
    "a\tb\nc\rd\0e",
    "\ud800 \udcff",
    "\u202egnp.exe",
    "<script>alert(1)</script>.png",
    "ünï中文\u00a0\u2028😀",
    "x" * 4000,
    "",
]


def rows_of(path, **options):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, **options))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_is_run_or_lost(name):
    cell = cell_of(name)
    assert cell.isprintable()
    assert cell.encode("utf-8").decode("utf-8") == cell
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert ";" not in cell
    assert name_in(cell) == name


def test_plain_names_are_left_alone():
    for name in ("00001.png", "a/b-c=d+e@f.png", "[17]", "row 17", "ünï.png", "it's.png"):
        assert cell_of(name) == name


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


def test_numbers_are_written_in_full(genpr, folders):
    real, fake = folders
    out = real.parent / "samples.csv"
    assert genpr("score", real, fake, *QUICK, "--csv", out, "-q")[2] == ""
    found = package.Evaluator(
        str(real), extractor="pixels", intervals=False, control=False, device="cpu"
    ).evidence(str(fake))
    rows = rows_of(out)
    for name in ("realism", "rarity", "rarity_percentile", "n_balls", "authentic"):
        column = [float(row[name] or "nan") for row in rows[:20]]
        np.testing.assert_array_equal(column, getattr(found.fake, name))
    for name in ("n_fakes", "radius"):
        np.testing.assert_array_equal([float(row[name]) for row in rows[20:]], getattr(found.real, name))
    distances = [float(row["nearest_distance"]) for row in rows]
    both = [*found.fake.nearest_real_distance, *found.real.nearest_fake_distance]
    np.testing.assert_array_equal(distances, both)


def test_copies_have_infinite_realism_and_strangers_no_rarity(tmp_path, rng):
    real = rng.normal(size=(30, 4))
    found = package.Evaluator(real, metrics=["precision"], intervals=False, device="cpu").evidence(
        np.concatenate([real[:1], 1000 + real[:1]])
    )
    assert write_samples(tmp_path / "a.csv", found) == 32
    copy, stranger = rows_of(tmp_path / "a.csv")[:2]
    assert copy["realism"] == "inf"
    assert (copy["nearest"], copy["nearest_distance"]) == ("row 0", "0.0")
    assert (stranger["inside"], stranger["rarity"], stranger["rarity_percentile"]) == ("0", "", "")
