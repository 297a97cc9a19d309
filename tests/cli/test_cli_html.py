"""`genpr score --html`."""

from __future__ import annotations

import csv
import json

import html5lib
import numpy as np
import pytest
from PIL import Image

from genpr.report.files import name_in

PIXELS = ("--extractor", "pixels", "--device", "cpu", "--no-intervals", "--no-control", "--no-cache")
HOSTILE = (
    "<script>alert(1)</script>.png",
    "=cmd().png",
    "\x1b[31mred\x07.png",
    '"><img src=x onerror=alert(1)>.png',
)


@pytest.fixture
def classes(tmp_path, rng):
    """Two folders of two classes each, in which some images and a class have names that programs obey."""
    sides = []
    for side in ("real", "fake"):
        for place, label in enumerate(("=cats", "<b>dogs")):
            for row in range(30):
                pixels = (120 * place + rng.integers(0, 100, (8, 8, 3))).astype(np.uint8)
                name = HOSTILE[row] if row < len(HOSTILE) else f"{row:03d}.png"
                path = tmp_path / side / label / name
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path, "PNG")
        sides.append(tmp_path / side)
    return sides


def parsed(page):
    return list(html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page).iter())


def without_times(record):
    """A score, less how long it took."""
    if isinstance(record, dict):
        return {name: without_times(value) for name, value in record.items() if name != "seconds"}
    return [without_times(each) for each in record] if isinstance(record, list) else record


def test_one_score_serves_the_page_the_table_and_the_classes(genpr, classes, tmp_path):
    arguments = ("score", *classes, *PIXELS, "--per-class", "--min-per-class", "12", "--json")
    page, table = tmp_path / "page.html", tmp_path / "rows.csv"
    code, out, err = genpr(*arguments, "--html", page, "--csv", table)
    assert code == 0
    assert f"wrote 120 rows to {table}" in err
    assert f"wrote {page}" in err
    assert without_times(json.loads(out)) == without_times(json.loads(genpr(*arguments)[1]))
    assert "=cats" in out

    text = page.read_text(encoding="utf-8")
    elements = [each for each in parsed(text) if isinstance(each.tag, str)]
    assert sum(each.tag == "script" for each in elements) == 1
    assert not [each for each in elements if any(name.startswith("on") for name in each.attrib)]
    assert not set(text) & {"\x1b", "\x07"}
    headings = {"".join(each.itertext()) for each in elements if each.tag == "h3"}
    assert {"Classes within themselves", "Least realistic fakes", "Likely copies of real images"} <= headings
    assert "<b>dogs" not in text
    assert "&lt;b&gt;dogs/" in text

    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {name_in(row["name"]) for row in rows if row["side"] == "fake"}
    assert names == {path.relative_to(classes[1]).as_posix() for path in classes[1].rglob("*.png")}
