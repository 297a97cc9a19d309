import numpy as np
import oracle
import pytest
import torch
from search_cases import place

from genpr.content_order import content_order
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood
from genpr.neighbors.engine import ENGINE
from genpr.neighbors.nearest import NeighborLists
from genpr.neighbors.subsets import SUBSETS, covered_share_of_subsets, drawn_subsets

TIES = ("closed", "strict")


def whole_numbers(rng, n, d, spread):
    return (7 + rng.integers(-spread, spread + 1, (n, d))).astype(np.float32)


def found_share(features, size, k, *, listed, ties="closed"):
    (points,) = place(features)
    lists = NeighborLists.none(points.features)
    if listed:
        lists = Neighborhood.from_points(points, [BallKind(1)], keep=listed).lists
    return covered_share_of_subsets(points, lists, size, k, ties=ties, engine=ENGINE)


def expected_share(features, size, k, ties="closed", *, most=SUBSETS):
    subsets = drawn_subsets(torch.from_numpy(features), size)[:most]
    sq = oracle.sq_distances(features, features)
    np.fill_diagonal(sq, np.inf)
    return pytest.approx(
        np.mean([covered(sq[subset][:, subset], k, ties).mean() for subset in subsets]), abs=1e-12
    )


def covered(sq, k, ties):
    """Whether each row is in the ball of another one that was fitted without it: fewer than k others are nearer (or as near)."""
    inside = np.zeros(sq.shape, dtype=bool)
    for of_row, inside_row in zip(sq, inside, strict=True):
        ascending = np.sort(of_row)
        before = np.searchsorted(ascending, of_row, side="left" if ties == "closed" else "right")
        inside_row[:] = np.isfinite(of_row) & (before - (ties == "strict") < k)
    return inside.any(axis=0)


@pytest.mark.parametrize(("ties", "listed"), [*zip(TIES * 2, (0, 1, 5, 60), strict=True), ("strict", 5)])
@pytest.mark.parametrize(("size", "spread"), [(10, 9), (25, 9), (40, 2), (59, 1)])
def test_share_equals_that_of_separate_subsets(rng, size, spread, ties, listed):
    """Integers, so that many others are equally far; lists of any length."""
    features = whole_numbers(rng, 60, 3, spread)
    found = found_share(features, size, 2, listed=listed, ties=ties)
    assert found == expected_share(features, size, 2, ties)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("k", [1, 3])
def test_share_of_floats_off_center(rng, k, ties):
    features = (100 + rng.normal(size=(90, 12))).astype(np.float32)
    assert found_share(features, 50, k, listed=8, ties=ties) == expected_share(features, 50, k, ties)


@pytest.mark.parametrize("ties", TIES)
def test_k_nearly_as_large_as_the_parts(rng, ties):
    """Lists of all others are long enough, whatever they hold. An outlier is in no ball."""
    features = whole_numbers(rng, 60, 3, 2)
    features[7] = 1000
    assert found_share(features, 21, 19, listed=5, ties=ties) == expected_share(features, 21, 19, ties)


@pytest.mark.parametrize("ties", TIES)
def test_copies_that_no_list_holds(rng, ties):
    """Long lists of equal rows are not made: disjoint subsets are searched instead."""
    features = np.repeat(rng.normal(size=(3, 5)), 200, axis=0).astype(np.float32)
    found = found_share(features, 250, 3, listed=10, ties=ties)
    assert found == expected_share(features, 250, 3, ties, most=2)


@pytest.mark.parametrize("size", [9, 30, 45])
def test_order_changes_nothing(rng, size):
    features = whole_numbers(rng, 60, 2, 4)
    shares = {found_share(rng.permutation(features), size, 2, listed=6) for _ in range(8)}
    assert len(shares) == 1


def test_subsets_have_one_size_and_are_disjoint_where_possible(rng):
    features = torch.from_numpy(whole_numbers(rng, 60, 5, 9))
    for size, count in ((3, 10), (7, 5), (15, 4), (20, 3), (21, SUBSETS), (30, SUBSETS), (59, SUBSETS)):
        subsets = drawn_subsets(features, size)
        assert (len(subsets), {*subsets.sum(axis=1)}) == (count, {size})
        assert subsets[: 60 // size].sum(axis=0).max() == 1
        assert (subsets.sum(axis=0) > 0).mean() > min(0.9, count * size / 61)


def test_content_order_sorts_equal_rows_equally(rng):
    features = rng.normal(size=(3000, 700)).astype(np.float32)  # several blocks
    features[5:8], features[11] = features[20], -0.0
    features[12] = 0.0
    shuffled = rng.permutation(3000)
    for each in (features, features.astype(np.float16)):
        one, other = (torch.from_numpy(rows) for rows in (each, each[shuffled]))
        assert torch.equal(one[content_order(one)], other[content_order(other)])
    assert not torch.equal(content_order(one), torch.arange(3000))


def test_content_order_is_the_same_in_all_versions():
    features = torch.arange(12, dtype=torch.float32).view(6, 2)
    assert content_order(features).tolist() == [1, 2, 4, 5, 0, 3]
