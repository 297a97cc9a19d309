"""The demo's generator under truncation: the sweep meets what must be true."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import genpr
from genpr.demo import KINDS, LATENTS, ShapesGenerator, draw_latents
from genpr.errors import UsageError

# Near 0.1, where nearly all pictures are discs, the few between a disc and another kind are outliers, whose large balls
# reach some reals: among hundreds of images recall is then a few per cent higher than at 0.2, among a thousand it is not.
# So the whole grid is for the slow test.
PSIS = (1.0, 0.6, 0.3, 0.02)
GRID = (1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05)


def sweep(psis, *, n, **options):
    real = ShapesGenerator()(draw_latents(n, seed=1))
    evaluator = genpr.Evaluator(real, extractor="gabor", device="cpu", **options)
    sampler = genpr.Sampler.of(ShapesGenerator(), n=n, seed=2)
    return {psi: evaluator.score(sampler.images(psi)) for psi in psis}


def check_direction(results):
    """From each psi to the next smaller one, precision must not fall and recall not rise, beyond the paired interval."""
    for (before, one), (after, two) in pairwise(results.items()):
        compared = genpr.compare({"before": one, "after": two})
        assert compared.contrast("after", "precision").interval.high >= 0, (before, after)
        assert compared.contrast("after", "recall").interval.low <= 0, (before, after)


@pytest.fixture(scope="module")
def results():
    return sweep(PSIS, n=250)


def test_without_truncation_it_is_a_perfect_generator(results):
    for name in ("precision", "recall", "density", "coverage"):
        metric = results[1.0].metrics[name]
        assert metric.interval[0] <= metric.null <= metric.interval[1], name


def test_precision_does_not_fall_and_recall_does_not_rise_with_truncation(results):
    check_direction(results)
    for after in PSIS[1:]:
        compared = genpr.compare({"before": results[1.0], "after": results[after]})
        assert compared.contrast("after", "precision").interval.low > 0
        assert compared.contrast("after", "recall").interval.high < 0


@pytest.mark.slow
def test_the_whole_way_down_among_a_thousand():
    results = sweep(GRID, n=1000, metrics=["precision", "recall"], control=False)
    check_direction(results)
    assert results[GRID[-1]]["recall"] < 0.01


def test_recall_goes_to_nothing_as_psi_does(results):
    recalls = [results[psi]["recall"] for psi in PSIS]
    assert recalls[0] > 0.8
    assert recalls[-2] < 0.1
    assert recalls[-1] == 0
    assert results[PSIS[-1]]["precision"] == 1


def test_shrinkage_is_told(results):
    assert all("shrinkage" in {one.code for one in results[psi].notices} for psi in PSIS[1:])
    assert "shrinkage" not in {one.code for one in results[1.0].notices}
    assert results[0.3]["density"] > 2 * results[1.0]["density"]


def test_it_draws_the_demos_real_images(results):
    from genpr.demo import build_demo

    latents = draw_latents(10, seed=5)[:5]
    assert torch.equal(ShapesGenerator()(latents), build_demo(n=5, seed=5).real.images)


def test_it_can_be_loaded_by_name_and_says_how_many_latents_it_takes():
    loaded = genpr.load_generator("genpr.demo:ShapesGenerator")
    assert genpr.Sampler.of(loaded, n=2).latents.z.shape == (2, len(LATENTS))


def test_labels_choose_the_kind():
    latents = draw_latents(len(KINDS), seed=0)
    labels = torch.arange(len(KINDS))
    drawn = ShapesGenerator()(latents, labels=labels)
    for index, kind in enumerate(KINDS):
        alone = ShapesGenerator(kinds=(kind,))(latents[index : index + 1])
        assert torch.equal(drawn[index : index + 1], alone)
    sampled = genpr.Sampler.of(ShapesGenerator(), n=5, labels=labels, batch_size=2).images(0.5)
    own = genpr.Sampler.of(ShapesGenerator(), n=5).latents.z
    assert torch.equal(torch.cat(list(sampled)), ShapesGenerator()(own, psi=0.5, labels=labels))


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 1]),
        torch.tensor([0, 1, 5]),
        torch.tensor([0, -1, 1]),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([True, False, True]),
        torch.eye(3).long(),
        torch.tensor([0, 1, 2]),  # a kind that this generator does not draw
    ],
    ids=str,
)
def test_labels_must_be_kinds_that_it_draws(labels):
    with pytest.raises(
        UsageError, match="labels must be 3 integers, one per latent, out of 0, 1, but"
    ) as caught:
        ShapesGenerator(kinds=("disc", "square"))(draw_latents(3, seed=0), labels=labels)
    assert caught.value.code == "unknown-kind"
