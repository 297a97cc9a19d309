"""`genpr score --labels`, and labels in other commands."""

import csv

import numpy as np
import pytest
from label_blobs import blobs

QUIET = ("--quiet", "--no-control", "--device", "cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Features of reals, of fakes whose classes 0 and 1 are exchanged, and of fakes that are right; and labels of all."""
    folder, random = tmp_path_factory.mktemp("labels"), np.random.default_rng(0)
    (x, x_labels), (y, y_labels) = blobs(random, [60] * 3, spread=3), blobs(random, [60] * 3, spread=3)
    np.save(folder / "real.npy", x.numpy())
    np.save(folder / "right.npy", y.numpy())
    np.save(folder / "wrong.npy", y.numpy()[np.r_[60:120, 0:60, 120:180]])
    for name, labels in (("real", x_labels), ("fake", y_labels)):
        np.save(folder / f"{name}-labels.npy", np.array([f"kind {label}" for label in labels.tolist()]))
    return folder


def sides(files, fake="wrong"):
    labels = "--real-labels", files / "real-labels.npy", "--fake-labels", files / "fake-labels.npy"
    return files / "real.npy", files / f"{fake}.npy", *labels


def test_labels_are_in_table_page_and_thresholds(genpr, files, tmp_path):
    gate = ("--fail-under", "label.gan_test=.8")
    page, table = tmp_path / "page.html", tmp_path / "images.csv"
    code, out, err = genpr("score", *sides(files), "--labels", *gate, "--html", page, "--csv", table, *QUIET)
    assert code == 5
    assert "missed: label.gan_test is 0.3" in err
    (at,) = [number for number, line in enumerate(out.splitlines()) if line.startswith("class, worst first")]
    worst = {line[:6] for line in out.splitlines()[at + 2 : at + 4]}
    assert worst == {"kind 0", "kind 1"}
    assert any(line.split()[:4] == ["kind", "0", "kind", "1"] for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= 80
    assert "label.gan_train" in page.read_text()
    assert "kind 0" in page.read_text()
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["requested"] for row in rows[:180]] == [f"kind {place // 60}" for place in range(180)]
    right = [row["requested"] == row["recognized"] for row in rows[:180]]
    assert (sum(right[:120]) < 12, sum(right[120:]) > 50) == (True, True)
    assert {row["requested"] + row["recognized"] for row in rows[180:]} == {""}
    assert genpr("score", *sides(files, "right"), "--labels", *gate, *QUIET)[0] == 0


def test_labels_by_a_pattern_equal_those_by_folders(genpr, write_images, tmp_path, rng):
    """StyleGAN and samplers of diffusion models write class and number into one name; see also DMIT#1."""
    pixels = rng.integers(0, 64, (60, 8, 8, 3), dtype=np.uint8)
    pixels[30:] *= 4
    kinds, commands = ("cat", "dog"), []
    for form, labels in (("{}_{:02d}.png", r"pattern:^(\w+?)_\d{1,2}\.png$"), ("{}/{:02d}.png", "folders")):
        for side, rows in (("real", range(0, 60, 2)), ("fake", range(1, 60, 2))):
            images = {form.format(kinds[row // 30], row): pixels[row] for row in rows}
            write_images(f"{labels[:6]}-{side}", images, "{}")
        sources = [tmp_path / f"{labels[:6]}-{side}" for side in ("real", "fake")]
        given = ("--real-labels", labels, "--fake-labels", labels, "--extractor", "pixels")
        commands.append(genpr("score", *sources, "--labels", *given, "--html", tmp_path / "x.html", *QUIET))
    assert [code for code, *_ in commands] == [0, 0]
    tables = [out[: out.index("\nreal  ")] for _, out, _ in commands]
    assert "label.gan_train" in tables[0]
    assert tables[0] == tables[1]
