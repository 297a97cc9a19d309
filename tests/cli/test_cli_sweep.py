"""`genpr sweep`: its output and files."""

import json

import numpy as np
import pytest
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


def test_files_agree_with_the_table_and_are_not_rewritten(genpr, points, tmp_path):
    code, text, err = genpr("sweep", *points, *QUICK, "--out", "out")
    assert code == 0
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["calibrated_", "calibrated_"]
    assert lines[1].split() == ["psi", "f1", *["precision", "recall"] * 2, "density"]
    assert [line.split()[0] for line in lines[3:6]] == ["0.2", "0.6", "1"]
    assert "best (highest f1): psi = " in text
    assert "warning [shrinkage]: at psi = 0.2" in text
    assert "psi = 0.6: precision 0.99" in err
    assert "(2 of 3)" in err
    assert "wrote sweep.json and sweep.png to out" in err

    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    for path in (tmp_path / "out").glob("sweep.*"):
        path.unlink()
    code, out, _ = genpr("sweep", *points, *QUICK, "--out", "out", "--json")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")} == before
    record = json.loads(out)
    assert json.loads((tmp_path / "out" / "sweep.json").read_text()) == record
    with Image.open(tmp_path / "out" / "sweep.png") as picture:
        assert picture.size[0] > 1000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10, "not blank"


def test_unattainable_goal_exits_with_5(genpr, points):
    code, out, err = genpr("sweep", *points, *QUICK, "--maximize", "precision", "--at-least", "recall=0.999")
    assert code == 5
    assert "(highest precision with recall at least 0.999): no setting meets" in out
    assert "missed: no setting reaches --at-least" in err
    np.save("far.npy", np.load("p1.0.npy") + 50)
    goal = ("--maximize", "precision", "--at-least", "recall=0.2")
    code, out, _ = genpr("sweep", *points, "2=far.npy", *QUICK, *goal)
    assert code == 0
    assert "psi = 0.6" in out
    assert "dominated: psi = 2 (another setting" in out
