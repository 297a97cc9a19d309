"""Counts of sets so large that filters are used equal brute force.

All values are on a grid, where float64 sums are exact in any order, so that a product is brute force.
"""

import functools

import numpy as np
import oracle
import pytest
import torch

from genpr.metrics.manifold import memberships_of
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood
from genpr.validation import check_features

KS = {"precision": 1, "density": 3, "coverage": 5, "recall": 3}


@functools.cache
def sets():
    """8 intrinsic dimensions of 300, in 6 clusters far from the origin, with noise, copies, near-copies and outliers."""
    rng = np.random.default_rng(12)
    directions, clusters = rng.normal(size=(8, 300)) / np.sqrt(8), 2 * rng.normal(size=(6, 8))
    latent = [clusters[rng.integers(0, 6, n)] + rng.normal(size=(n, 8)) for n in (3200, 3100)]
    found = [z @ directions + 3 + 0.01 * rng.normal(size=(len(z), 300)) for z in latent]
    real, fake = (np.round(128 * x).clip(-2047, 2047) / 128 for x in found)
    real[-300:] = real[0]
    real[1] = 1e4
    fake[:1000] = real[1000:2000]
    fake[1000:1400] = real[2]
    fake[1400:1800] = real[3]
    fake[1400:1800, :3] += rng.integers(-1, 2, (400, 3)) / 128
    fake[1800] = -1e4
    return rng.permutation(real), rng.permutation(fake)


def sq_distances(x, y):
    sq_norms = [np.square(features).sum(axis=1, keepdims=True) for features in (x, y)]
    left = np.hstack([-2 * x, sq_norms[0], np.ones((len(x), 1))])
    return left @ np.hstack([y, np.ones((len(y), 1)), sq_norms[1]]).T


def sq_radii(features):
    """By k, to the k-th nearest other row."""
    sq = sq_distances(features, features)
    np.fill_diagonal(sq, np.inf)
    sq.partition([0, 2, 4], axis=1)
    return {k: sq[:, k - 1] for k in (1, 3, 5)}


@functools.cache
def geometry():
    real, fake = sets()
    return sq_distances(real, fake), sq_radii(real), sq_radii(fake)


@pytest.mark.parametrize(("ties", "threads"), [("closed", 1), ("strict", 2)])
def test_every_count_equals_brute_force(ties, threads):
    real, fake = (features.astype(np.float32) for features in sets())
    torch.set_num_threads(threads)  # the fixture for all tests puts the number back
    balls = [BallKind(k) for k in (1, 3, 5)]
    side = Neighborhood.from_features(check_features(real, "real"), balls, ties=ties)
    found = memberships_of(side, torch.from_numpy(fake), ks=KS)
    sq, of_real, of_fake = geometry()
    for ball in balls:
        inside = oracle.memberships(sq, of_real[ball.k], ties)
        assert found.real_balls_per_fake[ball].tolist() == inside.sum(axis=0).tolist()
        assert found.fakes_per_real_ball[ball].tolist() == inside.sum(axis=1).tolist()
    inside = oracle.memberships(sq.T, of_fake[3], ties)
    assert found.fake_balls_per_real[BallKind(3)].tolist() == inside.sum(axis=0).tolist()
    assert found.reals_per_fake_ball[BallKind(3)].tolist() == inside.sum(axis=1).tolist()
