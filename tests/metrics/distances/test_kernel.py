"""KID and CMMD against their definitions, pair by pair."""

import math

import numpy as np
import pytest
from raising import raising

from genpr.errors import FeatureError, UsageError
from genpr.metrics import blocks, kernel
from genpr.metrics.frechet import frechet_distance
from genpr.metrics.kernel import cmmd, kernel_distance

on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def float32(values):
    return values.astype(np.float32)


def unbiased_by_pairs(real, fake):
    n, d = real.shape
    real, fake = real.astype(float), fake.astype(float)

    def k(x, y):
        return (float(x @ y) / d + 1) ** 3

    within = sum(k(s[i], s[j]) for s in (real, fake) for i in range(n) for j in range(n) if i != j)
    return within / (n * (n - 1)) - 2 * sum(k(x, y) for x in real for y in fake) / n**2


def cmmd_by_pairs(real, fake):
    real, fake = (s.astype(float) / np.linalg.norm(s.astype(float), axis=1)[:, None] for s in (real, fake))

    def mean(xs, ys):
        return math.fsum(math.exp(-((x - y) ** 2).sum() / 200) for x in xs for y in ys) / (len(xs) * len(ys))

    return 1000 * (mean(real, real) + mean(fake, fake) - 2 * mean(real, fake))


# KID


@on_each_device
def test_equals_the_sum_over_pairs(device, rng):
    real, fake = float32(rng.normal(1, 1, (20, 5))), float32(rng.normal(1.3, 2, (20, 5)))
    # Every subset is the set, in another order.
    whole = kernel_distance(real, fake, subsets=3, subset_size=20, device=device)
    assert whole.mean == pytest.approx(unbiased_by_pairs(real, fake), rel=1e-12)
    assert whole.std == pytest.approx(0, abs=1e-12)


@on_each_device
@pytest.mark.parametrize("at_once", [1, 16, 2**14])
def test_subsets_are_drawn_in_turn(at_once, device, rng, monkeypatch):
    monkeypatch.setattr(kernel, "_DRAWN_AT_ONCE", at_once)
    real, fake = float32(rng.normal(size=(30, 4))), float32(rng.normal(0.4, 1, (25, 4)))
    draws = np.random.RandomState(11)
    values = []
    for _ in range(6):
        real_rows, fake_rows = draws.choice(30, 8, replace=False), draws.choice(25, 8, replace=False)
        values.append(unbiased_by_pairs(real[real_rows], fake[fake_rows]))
    distance = kernel_distance(real, fake, subsets=6, subset_size=8, seed=11, device=device)
    assert distance.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert distance.std == pytest.approx(np.std(values), rel=1e-12)
    assert distance.subset_size == 8


def test_unbiased_for_equal_distributions(rng):
    # 400 independent pairs of 10 rows each: the mean must vanish within its own standard error, the biased one (the
    # diagonal adds (E k(x, x) - E k(x, y)) 2 / n > 1) would be far off.
    values = [
        kernel_distance(*rng.normal(size=(2, 10, 3)), subsets=1, subset_size=10).mean for _ in range(400)
    ]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20
    assert min(values) < 0


# CMMD


@pytest.mark.parametrize(("n", "m", "d"), [(2, 2, 1), (40, 55, 16), (70, 20, 300)])
@on_each_device
def test_cmmd_equals_the_sum_over_pairs(device, n, m, d, rng):
    real, fake = float32(rng.normal(0.1, 1, (n, d))), float32(rng.normal(0.2, 1.5, (m, d)))
    assert cmmd(real, fake, device=device) == pytest.approx(cmmd_by_pairs(real, fake), rel=1e-9, abs=1e-11)


def test_cmmd_of_point_masses():
    # Orthogonal unit vectors are at squared distance 2.
    real, fake = np.tile([3.0, 0], (4, 1)), np.tile([0, 0.5], (6, 1))
    assert cmmd(real, fake) == pytest.approx(1000 * 2 * (1 - math.exp(-2 / 200)), rel=1e-13)


# Both


@pytest.mark.parametrize("tile", [1, 29, 31])
def test_tile_size_does_not_matter(tile, rng, monkeypatch):
    real, fake = rng.normal(1, 1, (30, 8)), rng.normal(1.2, 1, (41, 8))
    expected = cmmd(real, fake), kernel_distance(real, fake, subsets=2).mean
    monkeypatch.setattr(blocks, "_TILE_ROWS", tile)
    assert (cmmd(real, fake), kernel_distance(real, fake, subsets=2).mean) == pytest.approx(
        expected, rel=1e-12
    )


# Bad input

GOOD = np.random.default_rng(0).normal(size=(10, 4))
NAN = np.where(np.arange(40).reshape(10, 4) == 17, np.nan, GOOD)


@pytest.mark.parametrize("function", [kernel_distance, cmmd, frechet_distance])
@pytest.mark.parametrize(
    ("real", "fake", "code", "message"),
    [
        (GOOD, NAN, "non-finite", "fake features must be finite"),
        (GOOD, GOOD[:, :3], "width-mismatch", "real has 4 features per image but fake has 3"),
        (GOOD[:1], GOOD, "too-few", "real needs at least 2 rows, found 1"),
        (GOOD, GOOD[:1], "too-few", "fake.* at least 2 rows, found 1"),
    ],
)
def test_bad_features(function, real, fake, code, message):
    with raising(FeatureError, code, message):
        function(real, fake)


def test_row_of_zeros_has_no_direction(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", 12)
    zero = GOOD.copy()
    zero[7] = 0
    with raising(FeatureError, "zero-row", r"row 7 of fake .* all zeros"):
        cmmd(GOOD, zero)


@pytest.mark.parametrize("options", [{"subsets": 0}, {"subset_size": 1}, {"seed": 2**32}])
def test_bad_options(options):
    with raising(UsageError, "bad-option", f"{next(iter(options))} must be an integer"):
        kernel_distance(GOOD, GOOD, **options)
