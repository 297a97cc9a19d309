"""Hubness: hand computed, and of data that have it or have not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from genpr.metrics.diagnostics import hubness
from genpr.metrics.real_manifold import RealManifold
from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import cross_counts


def in_degrees(features: np.ndarray, k: int) -> torch.Tensor:
    side = RealManifold.fit(features, balls=[Ball(k)])
    return cross_counts(side.points, side.points, real_sq_radii=side.sq_radii).real_balls_per_fake[0] - 1


def test_hand_computed():
    found = hubness(torch.tensor([0, 0, 1, 3]), torch.tensor([2, 5, 5, 0]), k=1, n_fake=20)
    assert found.orphan_rate == 0.5
    assert found.expected_orphan_rate == math.exp(-1)
    assert (found.largest_share, found.largest_row) == (0.25, 1)
    assert found.skewness == pytest.approx(stats.skew([0, 0, 1, 3]))
    assert found.skewness > 0.5


def test_equal_degrees_have_no_skewness():
    assert hubness(torch.full((5,), 2), torch.ones(5, dtype=torch.int64), k=2, n_fake=5).skewness == 0


def test_a_gaussian_of_many_dimensions_has_hubs_and_a_sphere_has_none(rng):
    gaussian = rng.normal(size=(700, 128)).astype(np.float32)
    sphere = gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
    ball, shell = (
        hubness(in_degrees(features, 3), torch.zeros(700, dtype=torch.int64), k=3, n_fake=1)
        for features in (gaussian, sphere)
    )
    assert shell.orphan_rate == pytest.approx(shell.expected_orphan_rate, abs=0.03)
    assert shell.skewness < 1.5
    assert ball.orphan_rate > 0.3
    assert ball.skewness > 4
