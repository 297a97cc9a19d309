"""Vendi score: published values, and both of its matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from genpr.errors import FeatureError
from genpr.metrics import blocks
from genpr.metrics.fakes_only import vendi_score


def by_definition(features):
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
    assert vendi_score(features) == pytest.approx(by_definition(features), rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(9, 30), (30, 9)])
def test_the_smaller_matrix_is_used(n, d, rng, monkeypatch):
    seen, original = [], torch.linalg.eigvalsh
    monkeypatch.setattr(
        torch.linalg, "eigvalsh", lambda matrix: seen.append(matrix.shape) or original(matrix)
    )
    vendi_score(rng.normal(size=(n, d)))
    assert seen == [(9, 9)]


def test_extremes():
    assert vendi_score(np.eye(5)) == pytest.approx(5, rel=1e-13)
    assert vendi_score(np.eye(5).repeat(20, axis=0)) == pytest.approx(5, rel=1e-13)
    assert vendi_score(np.full((50, 3), 0.1)) == pytest.approx(1, rel=1e-12)
    assert vendi_score(np.full((3, 50), 0.1)) == pytest.approx(1, rel=1e-12)
    # Opposite directions are one dimension: their cosine is -1.
    assert vendi_score(np.array([[1.0, 0], [-1, 0], [1, 0]])) == pytest.approx(1, rel=1e-13)


@pytest.mark.parametrize("elements", [1, 6, 100, 299])
@pytest.mark.parametrize("n", [4, 50])
def test_block_size_does_not_matter(elements, n, rng, monkeypatch):
    features = rng.normal(size=(n, 6))
    expected = vendi_score(features)
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", elements)
    assert vendi_score(features) == pytest.approx(expected, rel=1e-12)


GOOD = np.random.default_rng(0).normal(size=(10, 4))


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (GOOD[0], "feature-shape"),
        (np.where(np.eye(10, 4) == 1, np.inf, GOOD), "non-finite"),
        (GOOD[:1], "too-few"),
        (np.where(np.arange(10)[:, None] == 3, 0, GOOD), "zero-row"),
    ],
)
def test_bad_features(bad, code):
    with pytest.raises(FeatureError, match="features") as caught:
        vendi_score(bad)
    assert caught.value.code == code
