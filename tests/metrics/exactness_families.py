"""Families of features for which searches differ, their forms, and counts by brute force."""

import functools
from collections.abc import Sequence

import numpy as np
import oracle
import torch
from feature_cases import make
from numpy.typing import NDArray

from genpr.metrics.manifold import memberships_of
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood
from genpr.validation import check_features

Sets = tuple[NDArray, NDArray]
Counts = dict[tuple[str, int], NDArray]
"""Per-sample counts by table and k."""

KS = (1, 3, 5)
REAL_TABLES = ("real_balls_per_fake", "fakes_per_real_ball")
FAKE_TABLES = ("fake_balls_per_real", "reals_per_fake_ball")

FAMILIES = (
    *("integers", "off_center", "fakes_copy_reals", "outlier_in_both", "collapsed_fakes", "near_duplicates"),
    *("tight_clumps", "one_column", "six_rows"),
)
"""Names of cases of `feature_cases`."""


def counts_of(
    real, fake, ties="closed", *, real_ks: Sequence[int] = KS, fake_ks: Sequence[int] = (3,)
) -> Counts:
    """The tables of real balls for `real_ks`, fitted at once and at most 3, and those of fake balls for `fake_ks`."""
    balls = [BallKind(k) for k in real_ks]
    side = Neighborhood.from_features(check_features(real, "real"), balls, ties=ties)
    counts: Counts = {}
    for fake_k in fake_ks:
        ks = dict(zip(("precision", "density", "coverage"), real_ks, strict=False))
        found = memberships_of(side, fake, ks={**ks, "recall": fake_k})
        for table in REAL_TABLES + FAKE_TABLES:
            for ball, values in getattr(found, table).items():
                assert values.dtype == torch.int64
                before = counts.setdefault((table, ball.k), values.cpu().numpy())
                assert before.tolist() == values.tolist()  # the k of recall moves no real ball
    assert set(counts) == {(t, k) for t in REAL_TABLES for k in real_ks} | {
        (t, k) for t in FAKE_TABLES for k in fake_ks
    }
    return counts


def brute_force(sq: NDArray, real_sq_radii: NDArray, fake_sq_radii: NDArray, ties: str) -> Counts:
    """All that `counts_of` may return, from (n, m) squared distances and squared radii (3, n) and (3, m) for KS."""
    counts: Counts = {}
    for row, k in enumerate(KS):
        in_real_balls = oracle.memberships(sq, real_sq_radii[row], ties)
        in_fake_balls = oracle.memberships(sq.T, fake_sq_radii[row], ties)
        for tables, inside in ((REAL_TABLES, in_real_balls), (FAKE_TABLES, in_fake_balls)):
            for axis, table in enumerate(tables):
                counts[table, k] = inside.sum(axis=axis)
    return counts


def assert_equal(counts: Counts, expected: Counts) -> None:
    """Assert that each table in `counts` equals the one in `expected`, and that there are some."""
    assert counts
    for key, values in counts.items():
        assert values.tolist() == expected[key].tolist(), key


@functools.cache
def geometry(family: str) -> tuple[NDArray, NDArray, NDArray]:
    """The oracle's squared distances and squared radii of both sides, for `brute_force`."""
    return measure(*make(family))


def measure(real: NDArray, fake: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """`geometry` of any two sets of float32."""
    radii = [oracle.kth_sq_distances(features, list(KS)) for features in (real, fake)]
    return oracle.sq_distances(real, fake), *radii


def counts_of_two_threads() -> Counts:
    """Counts of the hard large sets with two threads of torch and of FAISS, each of which may have its own OpenMP."""
    import faiss

    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    return counts_of(*make_large("hard"))


@functools.cache
def make_large(name: str) -> Sets:
    """Learned-like sets on a grid that float16 holds. "hard": copies, near-copies and outliers are among them."""
    rng = np.random.default_rng(12)
    sizes = (4500, 3000) if name == "plain" else (4000, 3200)
    real, fake = (np.round(128 * x).clip(-2047, 2047) / 128 for x in learned_like(rng, *sizes))
    if name == "hard":
        real[-300:] = real[0]
        real[1] = 1e4
        fake[:1000] = real[1000:2000]
        fake[1000:1400] = real[2]
        fake[1400:1800] = real[3]
        fake[1400:1800, :3] += rng.integers(-1, 2, (400, 3)) / 128
        fake[1800] = -1e4
        real, fake = rng.permutation(real), rng.permutation(fake)
    return real.astype(np.float32), fake.astype(np.float32)


def learned_like(rng: np.random.Generator, *sizes: int) -> Sequence[NDArray]:
    """8 intrinsic dimensions of 300, in 6 clusters far from the origin, and 1 % noise in all directions."""
    directions = rng.normal(size=(8, 300)) / np.sqrt(8)
    clusters = 2 * rng.normal(size=(6, 8))
    latent = [clusters[rng.integers(0, 6, n)] + rng.normal(size=(n, 8)) for n in sizes]
    return [z @ directions + 3 + 0.01 * rng.normal(size=(len(z), 300)) for z in latent]
