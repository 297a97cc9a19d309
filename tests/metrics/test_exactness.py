"""Counts depend on the features and on nothing else: not on threads, types, layouts, order, sides or scale.

Everything goes through the public door, whatever searches behind it. Where brute force appears, it is the oracle's.
"""

from __future__ import annotations

import functools
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import exactness_families
import numpy as np
import pytest
from exactness_families import (
    FAKE_TABLES,
    KS,
    REAL_TABLES,
    Counts,
    assert_equal,
    brute_force,
    counts_of,
    geometry,
    make,
    make_large,
    measure,
    reordered,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import genpr
from genpr.metrics.manifold import ball_scores, memberships_of
from genpr.metrics.real_manifold import RealManifold
from genpr.neighbors.balls import Ball

TIES = ("closed", "strict")
families = pytest.mark.parametrize("family", exactness_families.names())
both_ties = pytest.mark.parametrize("ties", TIES)


@families
@both_ties
def test_every_count_is_that_of_brute_force(family, ties):
    assert_equal(counts_of(*make(family), ties, fake_ks=KS), brute_force(*geometry(family), ties))


@families
@both_ties
def test_values_are_shares_of_those_counts(family, ties):
    real, fake = make(family)
    counts = brute_force(*geometry(family), ties)

    def precision(k):
        return np.count_nonzero(counts["real_balls_per_fake", k]) / len(fake)

    def recall(k):
        return np.count_nonzero(counts["fake_balls_per_real", k]) / len(real)

    density = int(counts["real_balls_per_fake", 5].sum()) / (5 * len(fake))
    coverage = np.count_nonzero(counts["fakes_per_real_ball", 5]) / len(real)
    assert genpr.manifold_metrics(real, fake, ties=ties) == (precision(5), recall(5), density, coverage)
    assert genpr.precision_recall(real, fake, ties=ties) == (precision(3), recall(3))
    manifold = genpr.KNNManifold.fit(real, k=3, ties=ties)
    assert manifold.count(fake).tolist() == counts["real_balls_per_fake", 3].tolist()
    assert manifold.sq_radii.tolist() == geometry(family)[1][KS.index(3)].tolist()


def _assert_swapped(counts: Counts, expected: Counts) -> None:
    """The tables of real balls in one are those of fake balls in the other."""
    names = dict(zip(REAL_TABLES + FAKE_TABLES, FAKE_TABLES + REAL_TABLES, strict=True))
    assert_equal({(names[table], k): values for (table, k), values in counts.items()}, expected)


@families
@both_ties
def test_swapping_the_sets_swaps_the_tables(family, ties):
    real, fake = make(family)
    _assert_swapped(counts_of(fake, real, ties), brute_force(*geometry(family), ties))


@pytest.fixture(scope="module")
def counts_by_threads():
    """From a process whose threads sleep while they wait: on a busy machine, spinning ones stall."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_WAIT_POLICY", "passive")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(exactness_families.counts_by_threads).result()


@pytest.mark.parametrize("threads", [1, 2])
@families
def test_threads_change_no_count(family, threads, counts_by_threads):
    assert_equal(counts_by_threads[family, threads], brute_force(*geometry(family), "closed"))


@families
@pytest.mark.parametrize("moved", ["reals", "fakes"])
def test_counts_move_with_the_rows(family, moved, rng):
    sets, orders = make(family), [np.arange(len(features)) for features in make(family)]
    rng.shuffle(orders[moved == "fakes"])
    expected = reordered(brute_force(*geometry(family), "closed"), *orders)
    assert_equal(
        counts_of(*(features[order] for features, order in zip(sets, orders, strict=True))), expected
    )


@families
def test_plus_1000_is_brute_force_on_the_same_shifted_features(family):
    real, fake = (features[:250] + np.float32(1000) for features in make(family))
    measured = measure(real, fake)
    for ties in TIES:
        assert_equal(counts_of(real, fake, ties), brute_force(*measured, ties))


@families
@pytest.mark.parametrize("exponent", [-20, 20])
def test_the_unit_of_the_features_changes_no_count(family, exponent):
    real, fake = (features * np.float32(2.0**exponent) for features in make(family))
    assert_equal(counts_of(real, fake), brute_force(*geometry(family), "closed"))


class TestLarge:
    """Sizes at which filters set in, on a grid: float64 adds exactly in any order, so a product is brute force."""

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
    def test_every_count_is_that_of_brute_force(self, name, ties):
        assert_equal(counts_of(*make_large(name), ties), self.expected(name, ties))

    def test_swapping_the_sets_swaps_the_tables(self):
        real, fake = make_large("hard")
        _assert_swapped(counts_of(fake, real), self.expected("hard", "closed"))

    def test_two_threads_change_no_count(self, counts_by_threads):
        assert_equal(counts_by_threads["hard", 2], self.expected("hard", "closed"))


def _balls(real, fake, k):
    """(real, fake) integer points as squared distances, and the squared radius of each real, all Python ints."""

    def sq(a, b):
        return sum((int(p) - int(q)) ** 2 for p, q in zip(a, b, strict=True))

    radii = [
        sorted(sq(x, other) for j, other in enumerate(real) if j != i)[k - 1] for i, x in enumerate(real)
    ]
    return [[sq(x, y) for y in fake] for x in real], radii


@st.composite
def _grids(draw):
    n, m, d = draw(st.integers(2, 30)), draw(st.integers(2, 30)), draw(st.integers(1, 4))
    return [draw(hnp.arrays(np.int8, (rows, d), elements=st.integers(-3, 3))) for rows in (n, m)]


@settings(max_examples=50, deadline=None)
@given(sets=_grids(), ties=st.sampled_from(TIES), data=st.data())
def test_integer_grids_are_counted_as_exact_arithmetic_counts_them(sets, ties, data):
    real, fake = sets
    ks = {
        name: data.draw(st.integers(1, len(points) - 1), label=name)
        for name, points in (("precision", real), ("density", real), ("coverage", real), ("recall", fake))
    }
    side = RealManifold.fit(real, balls=[Ball(ks[name]) for name in ks if name != "recall"], ties=ties)
    found = memberships_of(side, fake, ks=ks)
    values = ball_scores(side, fake, ks=ks)
    for name, k in ks.items():
        own, other, tables = (real, fake, REAL_TABLES) if name != "recall" else (fake, real, FAKE_TABLES)
        sq, radii = _balls(own, other, k)
        inside = [
            [s <= r if ties == "closed" else s < r for s in row] for row, r in zip(sq, radii, strict=True)
        ]
        per_other, per_ball = [sum(column) for column in zip(*inside, strict=True)], [*map(sum, inside)]
        assert getattr(found, tables[0])[Ball(k)].tolist() == per_other
        assert getattr(found, tables[1])[Ball(k)].tolist() == per_ball
        share = {
            "density": Fraction(sum(per_other), k * len(other)),
            "coverage": Fraction(sum(count > 0 for count in per_ball), len(own)),
        }.get(name, Fraction(sum(count > 0 for count in per_other), len(other)))
        assert values[name] == float(share)
