"""KID and CMMD, pair by pair, Inception Score and Vendi score against their definitions."""

import math

import numpy as np
import pytest
import torch
from raising import raising
from torch.utils._python_dispatch import TorchDispatchMode

from genpr.errors import FeatureError, UsageError
from genpr.metrics import blocks, kernel
from genpr.metrics import fakes_only as module
from genpr.metrics.fakes_only import inception_score, vendi_score
from genpr.metrics.frechet import frechet_distance
from genpr.metrics.kernel import cmmd, kernel_distance, kernel_influence

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
@pytest.mark.parametrize(
    ("subsets", "tile", "at_once"),
    [(6, 7, 100), (6, 1024, 100), *((80, tile, 100) for tile in (1, 7, 24, 1024)), (80, 7, 30)],
)
def test_kid_equals_the_sums_over_pairs(subsets, tile, at_once, device, rng, monkeypatch):
    """Subsets are drawn in turn; many of few rows are summed from the kernel of all rows, in tiles."""
    monkeypatch.setattr(blocks, "_TILE_ROWS", tile)
    monkeypatch.setattr(kernel, "_SUMMED_AT_ONCE", at_once)
    real, fake = float32(rng.normal(1, 1, (30, 4))), float32(rng.normal(1.4, 1, (25, 4)))
    draws = np.random.RandomState(11)
    values = []
    for _ in range(subsets):
        real_rows, fake_rows = draws.choice(30, 8, replace=False), draws.choice(25, 8, replace=False)
        values.append(unbiased_by_pairs(real[real_rows], fake[fake_rows]))
    distance = kernel_distance(real, fake, subsets=subsets, subset_size=8, seed=11, device=device)
    assert distance == pytest.approx((np.mean(values), np.std(values), 8), rel=1e-12)


@on_each_device
@pytest.mark.parametrize("tile", [7, 1024])
def test_sums_at_once_equal_those_by_subset(tile, device, rng, monkeypatch):
    """Columns of zeros change what is faster; with scaled features, they do not change the kernel."""
    monkeypatch.setattr(blocks, "_TILE_ROWS", tile)
    real, fake = float32(rng.normal(1, 1, (30, 4))), float32(rng.normal(1.4, 1, (25, 4)))
    options = {"subsets": 12, "subset_size": 8, "device": device}
    (by_subset, influence), (at_once, other) = (
        kernel_influence(real, fake, **options),
        kernel_influence(*(np.pad(16 * side, ((0, 0), (0, 1020))) for side in (real, fake)), **options),
    )
    assert at_once == pytest.approx(by_subset, rel=1e-11)
    for side in ("real", "fake"):
        torch.testing.assert_close(getattr(other, side), getattr(influence, side), rtol=1e-9, atol=1e-11)
    assert other.second_order == pytest.approx(influence.second_order, rel=1e-9)
    assert other.squared == pytest.approx(influence.squared, rel=1e-9)


class LargestTensor(TorchDispatchMode):
    """Elements of the largest result of an operation."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.elements = max(self.elements, found.numel())
        return found


@pytest.mark.parametrize(("n", "subsets", "most"), [(40, 5000, 40 * 1000), (3000, 2, 3000 * 4)])
def test_arrays_grow_neither_with_the_number_of_subsets_nor_with_all_pairs(n, subsets, most, rng):
    with LargestTensor() as largest:
        kernel_distance(*rng.normal(size=(2, n, 4)), subsets=subsets, subset_size=8, device="cpu")
    assert largest.elements <= most


# CMMD


@pytest.mark.parametrize(("n", "m", "d"), [(2, 2, 1), (40, 55, 16), (70, 20, 300)])
@pytest.mark.parametrize("tile", [19, 1024])
@on_each_device
def test_cmmd_equals_the_sum_over_pairs(device, tile, n, m, d, rng, monkeypatch):
    monkeypatch.setattr(blocks, "_TILE_ROWS", tile)
    real, fake = float32(rng.normal(0.1, 1, (n, d))), float32(rng.normal(0.2, 1.5, (m, d)))
    assert cmmd(real, fake, device=device) == pytest.approx(cmmd_by_pairs(real, fake), rel=1e-9, abs=1e-11)


# Bad input

GOOD = np.random.default_rng(0).normal(size=(10, 4))
SHARES = np.full((12, 4), 0.25)
ZERO = np.where(np.arange(10)[:, None] == 7, 0, GOOD)
INVALID = [
    *((each, (GOOD, np.where(np.eye(10, 4) == 1, np.nan, GOOD)), "non-finite", "fake features must be finite")
      for each in (kernel_distance, cmmd, frechet_distance)),
    *((each, (GOOD, GOOD[:, :3]), "width-mismatch", "real has 4 features per image but fake has 3")
      for each in (kernel_distance, cmmd, frechet_distance)),
    *((each, sides, "too-few", f"{name}.* at least 2 rows, found 1")
      for each in (kernel_distance, cmmd, frechet_distance)
      for name, sides in (("real", (GOOD[:1], GOOD)), ("fake", (GOOD, GOOD[:1])))),
    (cmmd, (GOOD, ZERO), "zero-row", r"row 7 of fake .* all zeros"),
    (inception_score, (SHARES[0],), "feature-shape", "probabilities must be a 2-D array"),
    (inception_score, (np.where(np.eye(12, 4) == 1, np.nan, SHARES),), "non-finite", "must be finite"),
    (inception_score, (SHARES[:1],), "too-few", "probabilities needs at least 2 rows"),
    (inception_score, (SHARES * 1.01,), "not-probabilities", "sum to 1"),
    (inception_score, (SHARES + np.eye(12, 4, -3),), "not-probabilities", "sum to 1"),
    (vendi_score, (GOOD[0],), "feature-shape", "features"),
    (vendi_score, (np.where(np.eye(10, 4) == 1, np.inf, GOOD),), "non-finite", "features"),
    (vendi_score, (GOOD[:1],), "too-few", "features"),
    (vendi_score, (ZERO,), "zero-row", "features"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "sets", "code", "message"), INVALID, ids=range(len(INVALID)))
def test_invalid_features_and_probabilities_are_errors(function, sets, code, message, monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", 12)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 8)
    with raising(FeatureError, code, message):
        function(*sets)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        *((kernel_distance, {name: value}, f"{name} must be an integer")
          for name, value in (("subsets", 0), ("subset_size", 1), ("seed", 2**32))),
        (inception_score, {"splits": 13}, "12 images cannot be cut into 13 splits"),
        (inception_score, {"split_size": 0}, "split_size must be an integer"),
        (inception_score, {"seed": 0.5}, "seed must be an integer"),
    ],
)  # fmt: skip
def test_invalid_options_are_errors(function, options, message):
    with raising(UsageError, "bad-option", message):
        function(*[SHARES] * (1 + (function is kernel_distance)), **options)


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def by_definition(probabilities):
    mean = probabilities.mean(axis=0)
    kl = [sum(p * np.log(p / q) for p, q in zip(row, mean, strict=True) if p > 0) for row in probabilities]
    return np.exp(np.mean(kl))


def test_inception_score_of_shuffled_parts(rng):
    p = softmax(rng.normal(0, 2, (53, 7)))
    shuffled = p[np.random.RandomState(5).permutation(53)]
    scores = [by_definition(shuffled[i * 53 // 4 : (i + 1) * 53 // 4]) for i in range(4)]
    score = inception_score(p, splits=4, seed=5)
    assert score == pytest.approx((np.mean(scores), np.std(scores)), rel=1e-12)


def test_inception_score_of_consecutive_parts_with_a_short_last_one(rng):
    p = softmax(rng.normal(0, 2, (53, 7)))
    scores = [by_definition(p[:20]), by_definition(p[20:40]), by_definition(p[40:])]
    score = inception_score(p, split_size=20, seed=None)
    assert score == pytest.approx((np.mean(scores), np.std(scores)), rel=1e-12)
    assert inception_score(p, split_size=5000, seed=None).mean == pytest.approx(by_definition(p), rel=1e-12)


def test_inception_score_of_equal_images_is_one(rng):
    same = softmax(rng.normal(size=(1, 9))).repeat(30, axis=0)
    assert inception_score(same).mean == pytest.approx(1, rel=1e-12)
    for classes in range(2, 40):  # for some, rounding alone would go below 1
        same = softmax(rng.normal(size=(1, classes))).repeat(30, axis=0)
        assert inception_score(same).mean >= 1
    assert inception_score(np.eye(9)[[4] * 30]) == (1, 0)


def test_inception_score_of_float64_keeps_its_precision():
    # Rounded to float32, these rows would be off by 1e-8.
    p = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    assert inception_score(p, splits=1).mean == pytest.approx(by_definition(p), rel=1e-15)


@pytest.mark.parametrize("elements", [1, 5, 37, 199])
def test_block_size_does_not_matter(elements, rng, monkeypatch):
    p, few, many = softmax(rng.normal(size=(40, 5))), rng.normal(size=(4, 6)), rng.normal(size=(50, 6))
    expected = inception_score(p, splits=3), vendi_score(few), vendi_score(many)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", elements)
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", elements)
    assert inception_score(p, splits=3) == pytest.approx(expected[0], rel=1e-12)
    assert (vendi_score(few), vendi_score(many)) == pytest.approx(expected[1:], rel=1e-12)


def vendi_by_definition(features):
    unit = features.astype(float) / np.linalg.norm(features.astype(float), axis=1)[:, None]
    values = np.linalg.eigvalsh(unit @ unit.T / len(unit))
    return math.exp(-sum(value * math.log(value) for value in values if value > 1e-12))


@pytest.mark.parametrize(("n", "d"), [(2, 5), (20, 64), (64, 64), (65, 64), (300, 16), (50, 1)])
def test_vendi_score_of_either_matrix_equals_the_definition(n, d, rng):
    features = rng.normal(0.3, 1, (n, d)).astype(np.float32)
    assert vendi_score(features) == pytest.approx(vendi_by_definition(features), rel=1e-9)
