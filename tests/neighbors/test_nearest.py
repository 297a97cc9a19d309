import feature_cases
import numpy as np
import oracle
import pytest
import torch
from search_cases import ENGINES, SEARCH_KINDS, combinations, place, truth

from genpr.neighbors import nearest
from genpr.neighbors.engine import ENGINE, Engine
from genpr.neighbors.index import choose_projection
from genpr.neighbors.nearest import nearest_between

kinds = pytest.mark.parametrize("kind", SEARCH_KINDS)


def _assert_nearest(x, y, k: int, sq: np.ndarray, engine=ENGINE) -> None:
    """Assert that the nearest rows are sorted by distances (m, n), then by index."""
    index, found = nearest_between(x, y, k, engine=engine)
    assert (index.dtype, found.dtype) == (torch.int64, torch.float64)
    expected = np.argsort(sq, axis=1, kind="stable")[:, :k]
    assert index.tolist() == expected.tolist()
    assert found.tolist() == np.take_along_axis(sq, expected, axis=1).tolist()


def _check(queries, points, k: int, *, kind: str = "all coordinates", engine=ENGINE) -> None:
    y, x = place(points, queries, kind=kind)
    sq = oracle.sq_distances(queries.astype(np.float32), points.astype(np.float32))
    _assert_nearest(x, y, k, sq, engine)


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(0))
def test_every_bit_and_index_equals_the_oracle(case, kind, engine):
    expected = truth(case)
    y, x = place(expected.real, expected.fake, kind=kind)
    _assert_nearest(x, y, 1 if kind == "clusters" else 5, expected.sq.T, ENGINES[engine])


@kinds
@pytest.mark.parametrize("k", [1, 7, 40])
def test_ties_go_to_the_lowest_index(kind, k, rng):
    points = rng.integers(0, 3, (40, 3)).astype(np.float32)
    queries = rng.integers(0, 3, (50, 3)).astype(np.float32)
    for engine in (ENGINE, Engine(11, 9)):
        _check(queries, points, k, kind=kind, engine=engine)


@pytest.mark.parametrize("portion", [1, 2**16])
@pytest.mark.parametrize("crowd", [1, 2**15])
@pytest.mark.parametrize(
    "case", ["one_hot_all_tied", "binary_grid_full_of_ties", "near_duplicates", "off_center"]
)
def test_time_of_merging_changes_nothing(case, portion, crowd, set_sizes, monkeypatch):
    monkeypatch.setattr(nearest, "_MASSES", crowd)
    monkeypatch.setattr(nearest, "_CROWD", crowd)
    set_sizes(min_pairs=40, min_held=portion)
    real, fake = (features[:60] for features in feature_cases.make(case))
    _check(fake, real, 3, engine=Engine(11, 13))


@pytest.mark.parametrize("plan", ["all pairs", "sweep"])
def test_many_points_at_one_distance_are_reduced_when_found(plan, monkeypatch):
    kept, near_pairs = [], nearest.near_pairs
    monkeypatch.setattr(nearest, "_CROWD", 100)
    monkeypatch.setattr(
        nearest, "near_pairs", lambda *args: (found := near_pairs(*args), kept.append(len(found[0].row)))[0]
    )
    points = 2 * np.eye(200, dtype=np.float32)  # all equally far from zero
    x, y = place(np.zeros((30, 200), dtype=np.float32), points)
    index, _ = nearest_between(x, y, 3, engine=Engine(plan=plan))
    assert index.tolist() == [[0, 1, 2]] * 30
    assert kept == [3 * 30]


@pytest.mark.parametrize("seed", range(5))
def test_copies_beyond_the_kth_are_not_searched(seed, monkeypatch):
    monkeypatch.setattr(nearest, "_SURPLUS", 1)
    rng = np.random.default_rng(seed)
    few = rng.normal(3, 1, (9, 5)).astype(np.float32)
    points = few[rng.integers(0, 9, 200)]
    queries = np.concatenate([few, rng.normal(3, 1, (20, 5)).astype(np.float32)])
    looked_at, near_pairs = [], nearest.near_pairs
    monkeypatch.setattr(
        nearest, "near_pairs", lambda *args: (looked_at.append(len(args[3].features)), near_pairs(*args))[1]
    )
    for k in (1, 4, 30):
        _check(queries, points, k)
    counts = np.unique(points, axis=0, return_counts=True)[1]
    assert looked_at == [np.minimum(counts, k).sum() for k in (1, 4, 30)]


def test_near_copies_with_the_same_projection_are_not_copies(monkeypatch):
    monkeypatch.setattr(nearest, "_SURPLUS", 1)
    points = np.stack([np.ones(9), 1e-30 * np.arange(9)], axis=1).astype(np.float32)
    y, x = place(points, points)
    assert nearest_between(x, y, 1)[0][:, 0].tolist() == list(range(9))


def test_many_copies_need_no_distances(verified):
    points = np.full((2000, 3), 0.5, dtype=np.float32)
    queries = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    y, x = place(points, queries)
    index, _ = nearest_between(x, y, 2)
    assert index.tolist() == [[0, 1]] * 500
    assert sum(verified) == 2 * 500


def test_definition_computes_few_more_than_k_pairs_per_query(rng, verified):
    points, queries = (rng.normal(5, 0.05, (900, 32)).astype(np.float32) for _ in range(2))
    _check(queries, points, 3)
    assert 3 * 900 <= sum(verified) < 1.01 * 3 * 900


def test_large_sets_with_chosen_projections_equal_the_oracle(rng):
    basis = rng.normal(size=(6, 256))
    points, queries = (
        (rng.normal(size=(n, 6)) @ basis + 0.01 * rng.normal(size=(n, 256))).astype(np.float32)
        for n in (3000, 60)
    )
    projection = choose_projection(torch.from_numpy(points), 5)
    assert projection.basis is not None
    assert len(projection.centers)
    x, y = (projection.place(torch.from_numpy(features)) for features in (queries, points))
    _assert_nearest(x, y, 5, oracle.sq_distances(queries, points))


def test_half_precision_features_equal_their_float32_values(rng):
    _check(*(rng.normal(size=(60, 8)).astype(np.float16) for _ in range(2)), 3)
