"""`genpr diversity` from the command line: text, JSON, table, page and thresholds."""

import csv
import json
import re

import numpy as np
import pytest

METRICS = ["--metrics=cosine_distance", "--extractor=pixels", "--device=cpu"]


@pytest.fixture
def folders(write_images, rng):
    """12 groups of 4 fakes, of which the first is the least diverse and has a hostile name, and of 3 reals."""
    patterns = rng.integers(60, 190, (12, 1, 16, 16, 3))
    for side, count, spreads in (("fake", 4, np.linspace(2, 60, 12)), ("real", 3, np.full(12, 40))):
        noise = rng.normal(size=(12, count, 16, 16, 3)) * spreads[:, None, None, None, None]
        pixels = np.clip(patterns + noise, 0, 255).astype(np.uint8)
        names = {
            (row, at): f"{'=cmd|<b>x' if not row else f'a red car {row}'}/{at}.png"
            for row in range(12)
            for at in range(count)
        }
        write_images(side, {name: pixels[key] for key, name in names.items()}, "{}")
    return write_images("fake", {}), write_images("real", {})


def test_diversity_writes_text_table_and_page(genpr, tmp_path, folders):
    fake, real = folders
    table, page = tmp_path / "groups.csv", tmp_path / "page.html"
    options = ("--real", real, *METRICS, "--csv", table, "--html", page)
    code, out, err = genpr("diversity", fake, *options)
    assert (code, "error" in err) == (0, False)
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line)
    assert re.search(r"diversity.cosine_distance +0\.\d+ +0\.\d+ - 0\.\d+ +0\.\d+ +\d+%", out)
    assert "72 pairs of fakes in 12 groups from sub-folders" in " ".join(out.split())
    rows = list(csv.DictReader(table.read_text().splitlines()))
    names = ["images", "pairs", "cosine_distance"]
    assert list(rows[0]) == ["group", *names, *(f"real_{name}" for name in names)]
    assert rows[0]["group"] == "'=cmd|<b>x"
    assert {(row["images"], row["pairs"], row["real_images"], row["real_pairs"]) for row in rows} == {
        ("4", "6", "3", "3")
    }
    values = [float(row["cosine_distance"]) for row in rows]
    assert values == sorted(values)
    record = json.loads(genpr("diversity", fake, "--real", real, *METRICS, "--json")[1])
    metric = record["metrics"]["diversity.cosine_distance"]
    assert metric["value"] == pytest.approx(np.mean(values), rel=1e-12)
    assert metric["null"] == pytest.approx(
        np.mean([float(row["real_cosine_distance"]) for row in rows]), rel=1e-12
    )
    html = page.read_text()
    assert len(set(re.findall('data:image/jpeg[^"]+', html))) == 8 * (4 + 3), (
        "images of the 8 least diverse groups"
    )
    assert "&lt;b&gt;x: images 4, pairs 6" in html
    assert "<b>x" not in html
    assert genpr("diversity", fake, *options)[0] == 0, "its own files are replaced"


def test_thresholds_and_groups(genpr, tmp_path, folders, write_images):
    fake, _ = folders
    gate = "--fail-under", "diversity.cosine_distance=.9"
    assert genpr("diversity", fake, *METRICS, *gate)[0] == 5
    assert genpr("diversity", fake, *METRICS, "--fail-over", "diversity.cosine_distance=1")[0] == 2
    by_name = "--groups", r"pattern:^.*?(\d)\.png$", "--csv", tmp_path / "x.csv"
    assert genpr("diversity", fake, *METRICS, *by_name)[0] == 0
    groups = {row["group"] for row in csv.DictReader((tmp_path / "x.csv").read_text().splitlines())}
    assert groups == {"0", "1", "2", "3"}
    plain = write_images("plain", np.zeros((3, 8, 8, 3), np.uint8))
    code, out, err = genpr("diversity", plain, *METRICS, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (3, "no-labels")
    assert "Traceback" not in err
    assert genpr("diversity", plain, *METRICS, "--groups", "all")[0] == 0
    assert genpr("diversity", plain, *METRICS, "--groups", "none.csv")[0] == 2
    assert genpr("diversity", plain, *METRICS, "--real", tmp_path / "none")[0] == 2
