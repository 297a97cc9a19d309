"""A generator swept along its axis, from Python and by the script."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

import genpr
from genpr.checkpoints.sweep import Sweep
from genpr.demo import ShapesGenerator, draw_latents
from genpr.errors import UsageError

OPTIONS = {"extractor": "pixels", "control": False, "device": "cpu"}
PSIS = (1.0, 0.2)


@pytest.fixture(scope="module")
def evaluator():
    return genpr.Evaluator(ShapesGenerator()(draw_latents(60, seed=1)), **OPTIONS)


def test_every_psi_is_scored_on_the_same_latents(evaluator):
    found = genpr.truncation_sweep(ShapesGenerator(), evaluator, PSIS, n=50, seed=3)
    assert isinstance(found, Sweep)
    assert [point.setting for point in found.points] == [0.2, 1.0]
    for point in found.points:
        alone = evaluator.score(ShapesGenerator()(draw_latents(50, seed=3), psi=point.setting))
        assert point.result.fake.order == alone.fake.order, "the same images"
        assert point.values["recall"] == alone["recall"]
    assert found.points[0].values["recall"] < found.points[1].values["recall"]


def test_it_goes_on_where_it_was(evaluator, tmp_path):
    drawn = []

    class Counting(ShapesGenerator):
        def __call__(self, latents, **options):
            drawn.append(options["psi"])
            return super().__call__(latents, **options)

    first = genpr.truncation_sweep(Counting(), evaluator, PSIS[:1], n=50, out=tmp_path)
    again = genpr.truncation_sweep(Counting(), evaluator, PSIS, n=50, out=tmp_path)
    assert drawn == [1.0, 0.2]
    assert again.points[1] == first.points[0]
    with pytest.raises(UsageError, match="other seed"):
        genpr.truncation_sweep(Counting(), evaluator, PSIS, n=50, seed=1, out=tmp_path)


def test_the_script(evaluator, tmp_path, write_images, monkeypatch, capsys):
    real = write_images("real", ShapesGenerator()(draw_latents(60, seed=1)).permute(0, 2, 3, 1).numpy())
    script = Path(__file__).parents[2] / "scripts" / "truncation_sweep.py"
    arguments = [str(real), "genpr.demo:ShapesGenerator", "--extractor", "pixels", "--n", "50"]
    psis = [f"--psi={psi}" for psi in PSIS]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments, *psis, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["psi", "precision"]
    record = json.loads((tmp_path / "out" / "sweep.json").read_text())
    found = genpr.truncation_sweep(ShapesGenerator(), evaluator, PSIS, n=50)
    recalls = [point["result"]["metrics"]["recall"]["value"] for point in record["points"]]
    assert recalls == [point.values["recall"] for point in found.points]
    assert {path.name for path in (tmp_path / "out").glob("sweep.*")} == {
        f"sweep.{form}" for form in ("json", "csv", "png", "svg")
    }
