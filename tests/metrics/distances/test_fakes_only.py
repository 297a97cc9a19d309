"""Inception Score and Vendi score against their definitions."""

import math

import numpy as np
import pytest
from raising import raising

from genpr.errors import FeatureError, UsageError
from genpr.metrics import blocks
from genpr.metrics import fakes_only as module
from genpr.metrics.fakes_only import inception_score, vendi_score


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def by_definition(probabilities):
    mean = probabilities.mean(axis=0)
    kl = [sum(p * np.log(p / q) for p, q in zip(row, mean, strict=True) if p > 0) for row in probabilities]
    return np.exp(np.mean(kl))


def test_shuffled_parts(rng):
    p = softmax(rng.normal(0, 2, (53, 7)))
    shuffled = p[np.random.RandomState(5).permutation(53)]
    scores = [by_definition(shuffled[i * 53 // 4 : (i + 1) * 53 // 4]) for i in range(4)]
    score = inception_score(p, splits=4, seed=5)
    assert score == pytest.approx((np.mean(scores), np.std(scores)), rel=1e-12)


def test_consecutive_parts_of_a_size_with_a_short_last_one(rng):
    p = softmax(rng.normal(0, 2, (53, 7)))
    scores = [by_definition(p[:20]), by_definition(p[20:40]), by_definition(p[40:])]
    score = inception_score(p, split_size=20, seed=None)
    assert score == pytest.approx((np.mean(scores), np.std(scores)), rel=1e-12)
    assert inception_score(p, split_size=5000, seed=None).mean == pytest.approx(by_definition(p), rel=1e-12)


def test_alike_is_one(rng):
    same = softmax(rng.normal(size=(1, 9))).repeat(30, axis=0)
    assert inception_score(same).mean == pytest.approx(1, rel=1e-12)
    for classes in range(2, 40):  # for some, rounding alone would go below 1
        same = softmax(rng.normal(size=(1, classes))).repeat(30, axis=0)
        assert inception_score(same).mean >= 1
    assert inception_score(np.eye(9)[[4] * 30]) == (1, 0)


def test_float64_keeps_its_digits():
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


GOOD = np.full((12, 4), 0.25)


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        (GOOD[0], "feature-shape", "probabilities must be a 2-D array"),
        (np.where(np.eye(12, 4) == 1, np.nan, GOOD), "non-finite", "must be finite"),
        (GOOD[:1], "too-few", "probabilities needs at least 2 rows"),
        (GOOD * 1.01, "not-probabilities", "row 0 .* the sum 1.01"),
        (GOOD + np.eye(12, 4, -3), "not-probabilities", "row 3 "),
    ],
)
def test_bad_probabilities(bad, code, message, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 8)
    with raising(FeatureError, code, message):
        inception_score(bad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": 13}, "12 images cannot be cut into 13 splits"),
        ({"split_size": 0}, "split_size must be an integer"),
        ({"seed": 0.5}, "seed must be an integer"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UsageError, match=message):
        inception_score(GOOD, **options)


def vendi_by_definition(features):
    unit = features.astype(float) / np.linalg.norm(features.astype(float), axis=1)[:, None]
    values = np.linalg.eigvalsh(unit @ unit.T / len(unit))
    return math.exp(-sum(value * math.log(value) for value in values if value > 1e-12))


def rows_of(kernel):
    """Rows whose cosines are a kernel with a diagonal of 1."""
    values, vectors = np.linalg.eigh(np.asarray(kernel, dtype=np.float64))
    return vectors * np.sqrt(values.clip(min=0))


def test_published_values():
    samples = np.array([0, 0, 10, 10, 20, 20])
    score = vendi_score(rows_of(np.exp(-np.abs(samples[:, None] - samples))))
    assert math.floor(score * 1e4) / 1e4 == 2.9999  # the authors cut it off
    # Three pairs of twins: the entropy is log 3 less a sixth of the squared similarities between pairs, 4 e^-20.
    assert 3 - score == pytest.approx(2 * math.exp(-20), rel=1e-3)
    given = [[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]
    assert vendi_score(rows_of(given)) == pytest.approx(2.1573, abs=5e-5)


@pytest.mark.parametrize(("n", "d"), [(2, 5), (20, 64), (64, 64), (65, 64), (300, 16), (50, 1)])
def test_either_matrix_equals_the_definition(n, d, rng):
    features = rng.normal(0.3, 1, (n, d)).astype(np.float32)
    assert vendi_score(features) == pytest.approx(vendi_by_definition(features), rel=1e-9)


ROWS = np.random.default_rng(0).normal(size=(10, 4))


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (ROWS[0], "feature-shape"),
        (np.where(np.eye(10, 4) == 1, np.inf, ROWS), "non-finite"),
        (ROWS[:1], "too-few"),
        (np.where(np.arange(10)[:, None] == 3, 0, ROWS), "zero-row"),
    ],
)
def test_bad_features_of_vendi(bad, code):
    with raising(FeatureError, code, "features"):
        vendi_score(bad)
