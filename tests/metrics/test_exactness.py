"""Counts depend only on the features: not on threads, types, layouts, order, roles or scale.

All tests use public functions. Brute force is that of the oracle.
"""

import functools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import exactness_families
import numpy as np
import pytest
from exactness_families import (
    FAMILIES,
    KS,
    assert_equal,
    brute_force,
    counts_of,
    geometry,
    make_large,
    measure,
)
from feature_cases import make

TIES = ("closed", "strict")
families = pytest.mark.parametrize("family", FAMILIES)
both_ties = pytest.mark.parametrize("ties", TIES)


@families
@both_ties
def test_every_count_equals_brute_force(family, ties):
    assert_equal(counts_of(*make(family), ties, fake_ks=KS), brute_force(*geometry(family), ties))


@families
def test_counts_after_a_shift_of_1000_equal_brute_force(family):
    real, fake = (features[:250] + np.float32(1000) for features in make(family))
    measured = measure(real, fake)
    for ties in TIES:
        assert_equal(counts_of(real, fake, ties), brute_force(*measured, ties))


@families
@pytest.mark.parametrize("exponent", [-20, 20])
def test_scale_of_the_features_changes_no_count(family, exponent):
    real, fake = (features * np.float32(2.0**exponent) for features in make(family))
    assert_equal(counts_of(real, fake), brute_force(*geometry(family), "closed"))


class TestLarge:
    """Sizes at which filters are used, on a grid, where float64 sums are exact in any order and a product is brute force."""

    @staticmethod
    def sq_distances(x, y):
        sq_norms = [np.square(features).sum(axis=1, keepdims=True) for features in (x, y)]
        left = np.hstack([-2 * x, sq_norms[0], np.ones((len(x), 1))])
        return left @ np.hstack([y, np.ones((len(y), 1)), sq_norms[1]]).T

    @classmethod
    def sq_radii(cls, features):
        nearest = []
        for start in range(0, len(features), 1000):
            sq = cls.sq_distances(features[start : start + 1000], features)
            np.fill_diagonal(sq[:, start:], np.inf)  # a row is not its own neighbor
            sq.partition(max(KS), axis=1)
            nearest.append(sq[:, : max(KS)].copy())
        return np.sort(np.concatenate(nearest), axis=1).T[[k - 1 for k in KS]]

    @classmethod
    @functools.cache
    def expected(cls, name, ties):
        return brute_force(*cls.geometry(name), ties)

    @classmethod
    @functools.cache
    def geometry(cls, name):
        real, fake = (features.astype(np.float64) for features in make_large(name))
        return cls.sq_distances(real, fake), cls.sq_radii(real), cls.sq_radii(fake)

    @pytest.mark.parametrize(("name", "ties"), [("plain", "closed"), ("hard", "closed"), ("hard", "strict")])
    def test_every_count_equals_brute_force(self, name, ties):
        assert_equal(counts_of(*make_large(name), ties), self.expected(name, ties))

    def test_two_threads_change_no_count(self, monkeypatch):
        """In a process whose waiting threads sleep, since spinning ones stall on a busy machine."""
        monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            counts = process.submit(exactness_families.counts_of_two_threads).result()
        assert_equal(counts, self.expected("hard", "closed"))
