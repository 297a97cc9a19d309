"""Hubness: hand computed, and of data that have it or have not."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import genpr
from genpr.metrics.diagnostics import Hubness


def test_hand_computed():
    found = Hubness.of(torch.tensor([0, 0, 1, 3]), torch.tensor([2, 5, 5, 0]), k=1, n_fake=20)
    assert (found.orphan_rate, found.expected_orphan_rate) == (0.5, math.exp(-1))
    assert (found.largest_share, found.largest_row) == (0.25, 1)
    assert found.skewness == pytest.approx(stats.skew([0, 0, 1, 3]))
    equal = Hubness.of(torch.full((5,), 2), torch.ones(5, dtype=torch.int64), k=2, n_fake=5)
    assert equal.skewness == 0


def test_a_gaussian_of_many_dimensions_has_hubs_and_a_sphere_has_none(rng):
    gaussian = rng.normal(size=(1400, 128)).astype(np.float32)
    sphere = gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
    ball, shell = (genpr.score(each[:700], each[700:], k=5, control=False) for each in (gaussian, sphere))
    assert shell.hubness.orphan_rate == pytest.approx(shell.hubness.expected_orphan_rate, abs=0.03)
    assert shell.hubness.skewness < 1.5
    assert (ball.hubness.orphan_rate > 0.3, ball.hubness.skewness > 4) == (True, True)
    assert ball.hubness.orphan_rate == pytest.approx(1 - ball.metrics["precision"].null, abs=1e-12)
    assert genpr.score(gaussian[:50], gaussian[50:100], metrics=["fd"]).hubness is None
