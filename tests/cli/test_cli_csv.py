"""`genpr score --csv --html`: one score serves all, and names that would like to be something else."""

import csv
import json

import html5lib
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from genpr.report.files import COLUMNS, cell_of, name_in

QUICK = ("--extractor", "pixels", "--no-intervals", "--no-control", "--device", "cpu", "--no-cache")
CLASSES = ("--per-class", "--min-per-class", "12", "--json")
AWKWARD = st.text(st.sampled_from("=+-@＝＋－＠'\";,\\\t\r\n\0 \ud800\u202e<a1\u2028文😀"), max_size=6)
HOSTILE = (
    *("=cmd().png", "-1;=2.png", '@x,"y\n.png', "\udcff.png", "\x1b[31mred\x07.png"),
    *("<script>alert(1)<script>.png", '"><img src=x onerror=alert(1)>.png'),
)


@given(AWKWARD)
@example("x" * 4000)
def test_cells_of_names_are_not_formulas_and_round_trip(name):
    cell = cell_of(name)
    assert cell.isprintable()
    assert cell.encode("utf-8").decode("utf-8") == cell
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert ";" not in cell
    assert name_in(cell) == name


def without_times(record):
    """A score, less how long it took."""
    if isinstance(record, dict):
        return {name: without_times(value) for name, value in record.items() if name != "seconds"}
    return [without_times(each) for each in record] if isinstance(record, list) else record


def test_page_table_and_classes_come_from_one_score(genpr, tmp_path, rng):
    for side in ("real", "fake"):
        for place, label in enumerate(("=cats", "<b>dogs")):
            for row in range(30):
                pixels = (120 * place + rng.integers(0, 100, (8, 8, 3))).astype(np.uint8)
                path = tmp_path / side / label / (HOSTILE[row] if row < len(HOSTILE) else f"{row:03d}.png")
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path, "PNG")
    arguments = ("score", tmp_path / "real", tmp_path / "fake", *QUICK, *CLASSES)
    page, table = tmp_path / "page.html", tmp_path / "rows.csv"
    code, out, err = genpr(*arguments, "--html", page, "--csv", table)
    assert code == 0
    assert f"wrote 120 rows to {table}\nwrote {page}\n" in err
    assert without_times(json.loads(out)) == without_times(json.loads(genpr(*arguments)[1]))
    check_page(page.read_text(encoding="utf-8"))
    check_table(table, json.loads(out)["metrics"], tmp_path / "fake")
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


def check_page(text):
    document = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    elements = [each for each in document.iter() if isinstance(each.tag, str)]
    assert sum(each.tag == "script" for each in elements) == 1
    assert not [each for each in elements if any(name.startswith("on") for name in each.attrib)]
    assert not set(text) & {"\x1b", "\x07"}
    headings = {"".join(each.itertext()) for each in elements if each.tag == "h3"}
    assert {"Metrics of each class", "Least realistic fakes", "Fakes nearest to real images"} <= headings
    assert "<b>dogs" not in text
    assert "&lt;b&gt;dogs/" in text


def check_table(path, metrics, folder):
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    fakes, reals = ([row for row in rows if row["side"] == side] for side in ("fake", "real"))
    assert np.mean([int(row["inside"]) for row in fakes]) == metrics["precision"]["value"]
    assert np.mean([int(row["covered"]) for row in reals]) == metrics["coverage"]["value"]
    assert sum(int(row["n_balls"]) for row in fakes) / (5 * 60) == metrics["density"]["value"]
    assert {row["covered"] for row in fakes} == {row["inside"] for row in reals} == {""}
    assert {name_in(row["name"]) for row in fakes} == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*.png")
    }
    assert [row["nearest"] for row in fakes] == [reals[int(row["nearest_row"])]["name"] for row in fakes]
    assert [int(row["row"]) for row in reals] == list(range(60))
