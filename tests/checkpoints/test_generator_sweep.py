"""A generator swept along its axis."""

from __future__ import annotations

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
