"""C_T and authenticity: against their definitions, under the null, and with planted copies."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
import torch
from scipy import stats

import genpr
from genpr.errors import FeatureError
from genpr.metrics.realism import authentic, ct_z, mann_whitney_z


def z_by_scipy(fake: np.ndarray, held_out: np.ndarray) -> float:
    """From the two-sided p value, and the side from the statistic."""
    test = stats.mannwhitneyu(fake, held_out, use_continuity=False, method="asymptotic")
    z = -stats.norm.ppf(test.pvalue / 2)
    return z if test.statistic > len(fake) * len(held_out) / 2 else -z


@pytest.mark.parametrize("levels", [3, 20, 10**6])
@pytest.mark.parametrize("sizes", [(30, 30), (50, 20), (9, 40)])
def test_z_is_the_statistic_of_scipy(sizes, levels, rng):
    fake, held_out = (rng.integers(0, levels, n).astype(float) for n in sizes)
    assert mann_whitney_z(fake, held_out) == pytest.approx(z_by_scipy(fake, held_out), rel=1e-9)
    assert mann_whitney_z(held_out, fake) == pytest.approx(-mann_whitney_z(fake, held_out), rel=1e-9)


def test_all_tied_is_no_evidence():
    assert mann_whitney_z(np.ones(5), np.ones(4)) == 0


def test_the_score_is_that_of_distances_to_the_nearest_training_row(rng):
    train, held_out, fake = (rng.normal(size=(n, 5)).astype(np.float32) for n in (120, 70, 90))
    to_train = [oracle.sq_distances(features, train).min(axis=1) for features in (fake, held_out)]
    found = ct_z(train, held_out, fake)
    assert found == pytest.approx(z_by_scipy(*to_train), rel=1e-9)
    assert genpr.score(train, fake, held_out=held_out, metrics=["c_t"], control=False)["c_t"] == found
    with pytest.raises(FeatureError, match="train has 5 features per image but held_out has 1"):
        ct_z(train, held_out[:, :1], fake)


@pytest.mark.parametrize("draws", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_under_the_null_z_is_standard_normal(draws):
    rng = np.random.default_rng(5)
    z = np.array([ct_z(*rng.normal(size=(3, 90, 4)).astype(np.float32)) for _ in range(draws)])
    assert abs(z.mean()) < 3 / math.sqrt(draws)
    assert stats.kstest(z, "norm").pvalue > 0.01


def test_copies_and_underfits_are_told_apart(rng):
    train, held_out = rng.normal(size=(2, 300, 32)).astype(np.float32)
    noisy = train + 0.05 * rng.normal(size=train.shape)
    underfit = 1.6 * rng.normal(size=(300, 32))
    for fake, side in ((noisy, -1), (train[::-1], -1), (underfit, 1)):
        assert side * ct_z(train, held_out, fake) > 8


def test_authentic_looks_at_the_ball_of_the_nearest_real():
    # Reals 0, 1, 5: nearest other reals at 1, 1, 4. The fake 1.9 is .9 from its nearest, 2.5 is 1.5, 8 is 3.
    index, sq = torch.tensor([1, 1, 2, 1]), torch.tensor([0.9, 1.5, 3, 1]).square()
    assert authentic(index, sq, torch.tensor([1.0, 1, 16])).tolist() == [False, True, False, False]
