"""`genpr sweep` as its user meets it."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

SETTINGS = (0.2, 0.6, 1.0)
QUICK = ("--no-control", "--device", "cpu")


@pytest.fixture
def points(tmp_path, rng, monkeypatch):
    """Feature files of reals and of fakes that are drawn towards the middle; the folder is the working one."""
    monkeypatch.chdir(tmp_path)
    latents, noise = rng.normal(size=(2, 120, 5))
    np.save("real.npy", rng.normal(size=(120, 5)).astype(np.float32))
    for psi in SETTINGS:
        np.save(f"p{psi}.npy", (psi * latents + 0.3 * noise).astype(np.float32))
    return ["real.npy", *(f"{psi}=p{psi}.npy" for psi in SETTINGS)]


def test_the_table_says_what_is_traded(genpr, points):
    code, out, err = genpr("sweep", *points, *QUICK)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["psi", "precision", "recall", "density", "coverage", "f1"]
    assert [line.split()[0] for line in lines[2:5]] == ["0.2", "0.6", "1"]
    assert "best (highest f1): psi = " in out
    assert "warning: shrinkage at psi = 0.2" in out
    assert "psi = 0.6: precision 0.99" in err
    assert "(2 of 3)" in err


def test_the_files_agree_with_the_table(genpr, points, tmp_path):
    code, out, err = genpr("sweep", *points, *QUICK, "--out", "out", "--json")
    assert code == 0
    assert "wrote sweep.json, sweep.csv, sweep.png and sweep.svg to out" in err
    record = json.loads(out)
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == record
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "sweep.csv").read_text())))
    values = [point["result"]["metrics"]["recall"]["value"] for point in record["points"]]
    assert [float(row["recall"]) for row in rows] == values
    with Image.open(tmp_path / "out" / "sweep.png") as picture:
        assert picture.size[0] > 1000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10, "not blank"
    drawing = (tmp_path / "out" / "sweep.svg").read_text()
    assert "precision (fidelity)" in drawing
    density = max(point["result"]["metrics"]["density"]["value"] for point in record["points"])
    assert ("cut at 2.5" in drawing) == (1.1 * density > 2.5)


def test_run_again_nothing_is_scored_and_nothing_changes(genpr, points, tmp_path):
    genpr("sweep", *points, *QUICK, "--out", "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    for path in (tmp_path / "out").glob("sweep.*"):
        path.unlink()
    code, _, _ = genpr("sweep", *points, *QUICK, "--out", "out")
    assert code == 0
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")} == before


def test_a_goal_that_no_setting_reaches_exits_5(genpr, points):
    code, out, err = genpr("sweep", *points, *QUICK, "--maximize", "precision", "--at-least", "recall=0.999")
    assert code == 5
    assert "best (highest precision with recall at least 0.999): no setting reaches it" in out
    assert "missed: no setting has highest precision with recall at least 0.999" in err
    code, out, _ = genpr("sweep", *points, *QUICK, "--maximize", "precision", "--at-least", "recall=0.2")
    assert code == 0
    assert "psi = 0.6" in out


GENERATOR = """
import pathlib
import torch

class Blobs:
    latent_dim = 3

    def __init__(self, brightness=255):
        self.brightness = brightness

    def __call__(self, latents, *, psi=1.0):
        z = torch.special.ndtr(psi * latents)
        rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        y, x, size = (z[:, at, None, None] for at in range(3))
        inside = (rows - 16 * y) ** 2 + (columns - 16 * x) ** 2 < (2 + 5 * size) ** 2
        return (inside * self.brightness).to(torch.uint8)[:, None].repeat(1, 3, 1, 1)

def load(path=None):
    return Blobs() if path is None else Blobs(int(pathlib.Path(path).read_text()))
"""


@pytest.fixture
def generator(tmp_path, write_images, rng, monkeypatch):
    """A file with a generator, and a folder of what it draws at psi = 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blobs.py").write_text(GENERATOR)
    (tmp_path / "dark.txt").write_text("90")
    scope = {}
    exec(GENERATOR, scope)
    drawn = scope["Blobs"]()(torch.from_numpy(rng.normal(size=(80, 3))).float())
    write_images("real", drawn.permute(0, 2, 3, 1).numpy())
    return ["real", "--generator", "blobs.py:load", "--extractor", "pixels", *QUICK]


def test_a_generator_is_swept(genpr, generator, tmp_path):
    code, out, err = genpr("sweep", *generator, "--psi", "0.2:1:0.4", "--out", "out", "--json")
    assert code == 0, err
    points = json.loads(out)["points"]
    assert [point["setting"] for point in points] == [0.2, 0.6, 1.0]
    assert [point["result"]["fake"]["n"] for point in points] == [80] * 3, "as many as reals"
    recalls = [point["result"]["metrics"]["recall"]["value"] for point in points]
    assert recalls[0] < recalls[2]
    code, again, err = genpr("sweep", *generator, "--psi", "0.2:1:0.4", "--out", "out", "--json")
    assert (code, again) == (0, out)
    code, _, err = genpr("sweep", *generator, "--psi", "1", "--out", "out", "--checkpoint", "dark.txt")
    assert code == 2
    assert "is a point of another sweep (other checkpoint)" in err
