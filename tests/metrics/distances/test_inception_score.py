"""Inception Score against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from genpr.errors import FeatureError, UsageError
from genpr.metrics import fakes_only as module
from genpr.metrics.fakes_only import inception_score


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


def test_certain_and_varied_is_the_number_of_classes():
    score = inception_score(np.eye(6).repeat(10, axis=0), splits=1)
    assert score.mean == pytest.approx(6, rel=1e-14)  # probabilities of exactly 0 and 1
    assert score.std == 0


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


def test_arrays_of_all_kinds(rng, tmp_path):
    p = softmax(rng.normal(size=(40, 5))).astype(np.float32)
    np.save(tmp_path / "p.npy", p)
    for same in (torch.from_numpy(p), np.load(tmp_path / "p.npy", mmap_mode="r"), p.astype(">f4")):
        assert inception_score(same) == inception_score(p)
    assert inception_score(p.astype(np.float16)) == pytest.approx(inception_score(p), rel=1e-3)


@pytest.mark.parametrize("elements", [1, 5, 37, 199])
def test_block_size_does_not_matter(elements, rng, monkeypatch):
    p = softmax(rng.normal(size=(40, 5)))
    expected = inception_score(p, splits=3)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", elements)
    assert inception_score(p, splits=3) == pytest.approx(expected, rel=1e-12)


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
    with pytest.raises(FeatureError, match=message) as caught:
        inception_score(bad)
    assert caught.value.code == code


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
