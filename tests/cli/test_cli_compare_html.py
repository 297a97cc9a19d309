"""`genpr compare --html`, and the same page of `genpr rank` and `genpr sweep`."""

import json

import numpy as np
import pytest
from blob_checkpoints import GENERATOR, real_blobs, write_checkpoint, write_generator

PIXELS = ("--extractor", "pixels", "--metrics", "precision,recall", "--device", "cpu", "--no-control", "-q")
LOAD = ("--generator", "gan.py:load", "--image-range=-1,1", "--n", "40", "--no-intervals")


@pytest.fixture
def scored(genpr, write_images, rng, tmp_path, monkeypatch):
    """Two results in the working folder, one of a hostile name, and the images that were scored."""
    monkeypatch.chdir(tmp_path)
    for name in ("real", "a", "b"):
        write_images(name, rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    files = ["<script>alert(1)<script>.json", "=cmd().json"]
    for file, fakes in zip(files, "ab", strict=True):
        (tmp_path / file).write_text(genpr("score", "real", fakes, *PIXELS, "--json")[1])
    return files


@pytest.fixture
def generator(write_images, tmp_path, monkeypatch):
    """A generator, reals and two checkpoints in the working folder."""
    monkeypatch.chdir(tmp_path)
    write_images("real", real_blobs(40))
    write_generator(
        tmp_path, GENERATOR.replace("    return Blobs(", "    print('loading')\n    return Blobs(")
    )
    return [
        str(write_checkpoint(tmp_path / f"step-{step}.pt", spread)) for step, spread in ((2, 0.3), (10, 0.9))
    ]


def test_page_is_written_in_addition_to_the_table(genpr, scored, tmp_path):
    for options in ((), ("--json",)):
        plain = genpr("compare", *scored, *options)
        code, out, err = genpr("compare", *scored, *options, "--html", "page.html")
        assert (code, out, err) == (0, plain[1], "wrote page.html\n" + plain[2])
        assert genpr("compare", *scored, *options, "--html", "page.html", "-q") == (0, plain[1], plain[2])
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<script>") == 1
    assert "=cmd()" in page
    assert "=cmd().json" not in page
    assert 'id="galleries"' not in page


def test_ranking_and_sweep_write_the_same_page(genpr, generator, tmp_path):
    code, out, err = genpr("rank", "real", *generator, *LOAD, *PIXELS, "--json", "--html", "page.html")
    assert (code, set(err.split())) == (0, {"loading"})
    assert "<b>1 step-10.pt</b>" in (tmp_path / "page.html").read_text()  # the best first
    (tmp_path / "ranking.json").write_text(out)
    assert genpr("compare", "ranking.json")[0] == 0

    arguments = ("sweep", "real", *LOAD, "--checkpoint", generator[1], *PIXELS, "--out", "out")
    code, out, _ = genpr(*arguments, "--psi", "1,0.5", "--json", "--html", "page.html")
    assert (code, json.loads(out)["axis"]) == (0, "psi")
    assert "<b>1 psi=0.5</b>" in (tmp_path / "page.html").read_text()
    assert genpr("compare", "out")[0] == 0
    code, _, err = genpr(*arguments, "--psi", "1", "--html", "page.html")
    assert (code, "--html compares several results" in err) == (2, True)
    assert genpr("compare", "ranking.json", "--html", "nowhere/p.html")[0] == 2
