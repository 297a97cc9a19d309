"""MIND against its formula in float64, one direction at a time."""

import numpy as np
import pytest
import torch

from genpr import score
from genpr.errors import FeatureError, UsageError
from genpr.metrics import mind
from genpr.metrics.frechet import Gaussian
from genpr.metrics.mind import monge_inception_distance

on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def by_directions(real, fake, *, directions=1000, seed=2020):
    """The formula of arXiv:2605.06797 with the random numbers of torch-fidelity."""
    generator = torch.Generator().manual_seed(seed)
    n, d = min(len(real), len(fake)), real.shape[1]
    if len(fake) > n:
        fake = fake[torch.randperm(len(fake), generator=generator)[:n].numpy()]
    if len(real) > n:
        real = real[torch.randperm(len(real), generator=generator)[:n].numpy()]
    drawn = torch.randn(directions, d, generator=generator, dtype=torch.float32).numpy().astype(np.float64)
    costs = []
    for u in drawn:
        u = u / max(np.sqrt((u * u).sum()), 1e-12)
        gaps = np.sort(fake.astype(np.float64) @ u) - np.sort(real.astype(np.float64) @ u)
        costs.append((gaps**2).sum() / n)
    return 3 * d * np.mean(costs)


def drawn(rng, n, m, d, mean=8.0):
    real, fake = rng.normal(mean, 1, (n, d)), rng.normal(mean + 0.1, 1.3, (m, d))
    return real.astype(np.float32), fake.astype(np.float32)


@on_each_device
@pytest.mark.parametrize(
    ("n", "m", "d"), [(60, 60, 5), (90, 41, 17), (41, 90, 17), (2, 300, 1), (50, 50, 200)]
)
def test_mind_equals_its_formula(device, n, m, d, rng):
    real, fake = drawn(rng, n, m, d)
    for options in ({}, {"directions": 3, "seed": 7}):
        expected = by_directions(real, fake, **options)
        found = monge_inception_distance(real, fake, **options, device=device)
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("at_once", [1, 130, 999 * 64])
def test_block_size_of_directions_changes_nothing(at_once, rng, monkeypatch):
    real, fake = drawn(rng, 64, 80, 6)
    expected = by_directions(real, fake)
    monkeypatch.setattr(mind, "_PROJECTIONS", at_once)
    monkeypatch.setattr("genpr.metrics.blocks._BLOCK_ELEMENTS", 100)
    assert monge_inception_distance(real, fake, device="cpu") == pytest.approx(expected, rel=1e-6)


def test_number_of_compared_images_is_recorded(rng):
    real, fake = drawn(rng, 60, 45, 4)
    found = score(real, fake, metrics=["mind"], device="cpu").metrics["mind"]
    assert found.value == pytest.approx(by_directions(real, fake), rel=1e-6)
    assert found.variant == "45 images of each side"
    halves = score(real, real[:60], metrics=["mind"], device="cpu")
    assert halves.metrics["mind"].variant is None
    assert halves.metrics["mind"].null == halves.control.values["mind"] > 0


@pytest.mark.parametrize(
    ("sides", "options", "error"),
    [
        ((np.ones((3, 2)), np.ones((3, 4))), {}, FeatureError),
        ((np.ones((1, 2)), np.ones((3, 2))), {}, FeatureError),
        ((np.ones((3, 2)), np.full((3, 2), np.nan)), {}, FeatureError),
        ((Gaussian.from_features(np.eye(3), device="cpu"), np.ones((3, 3))), {}, FeatureError),
        ((np.ones((3, 2)), np.ones((3, 2))), {"directions": 0}, UsageError),
        ((np.ones((3, 2)), np.ones((3, 2))), {"seed": -1}, UsageError),
    ],
)
def test_invalid_input_is_an_error(sides, options, error):
    with pytest.raises(error):
        monge_inception_distance(*sides, **options)
