import functools

import feature_cases
import numpy as np
import pytest
import torch
from search_cases import ENGINES, SEARCH_KINDS, combinations, place, sq_distances
from torch import Tensor

from genpr.distributed import Communicator
from genpr.neighbors.engine import Engine, Search, in_steps
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.search import Pairs, row_blocks, sweep

CPU = torch.device("cpu")
kinds = pytest.mark.parametrize("kind", SEARCH_KINDS)
TILES = [Engine(7, 64), Engine(33, 20), Engine()]
searches = pytest.mark.parametrize(("kind", "engine"), [*zip(SEARCH_KINDS, TILES * 2, strict=True)])


def _pairs_within(
    points: IndexedPoints, sq_reach: Tensor, engine: Engine, consume=lambda pairs: pairs
) -> list[Pairs]:
    with engine.search(CPU) as search:
        return list(sweep(points, sq_reach, search, consume))


def _pairs_between(
    x: IndexedPoints, y: IndexedPoints, x_sq_reach: Tensor, y_sq_reach: Tensor, engine: Engine
) -> list[Pairs]:
    with engine.search(CPU) as search:
        return list(sweep(x, x_sq_reach, search, lambda pairs: pairs, (y, y_sq_reach)))


def _joined(found: list[Pairs]) -> Pairs:
    none = torch.empty(0, dtype=torch.int64)
    return Pairs(*map(torch.cat, zip(Pairs(none, none, none, none), *found, strict=True)))


def _collected(found: list[Pairs], n: int, m: int, true: Tensor) -> Tensor:
    """The pairs that were found, (n, m) bool; asserts that none is found twice and that bounds hold."""
    pairs = _joined(found)
    is_found = torch.zeros(n, m, dtype=torch.bool)
    is_found[pairs.i, pairs.j] = True
    assert is_found.sum() == len(pairs.i)
    assert (pairs.sq_lower <= true[pairs.i, pairs.j]).all()
    assert (true[pairs.i, pairs.j] <= pairs.sq_upper).all()
    return is_found


def _mixed_reaches(true: Tensor, rng: np.random.Generator) -> Tensor:
    """Reach of each row of (n, m): the exact distance to one column, almost 0, far too large, none or infinite."""
    n, m = true.shape
    sq_reach = true[torch.arange(n), torch.from_numpy(rng.integers(0, m, n))]
    kind = torch.from_numpy(rng.integers(0, 8, n))
    sq_reach = sq_reach * torch.where(kind == 0, 1e6, torch.where(kind == 1, 1e-6, 1.0))
    return sq_reach.masked_fill(kind == 2, -torch.inf).masked_fill(kind == 3, 0.0)


def _assert_within(found: Tensor, true: Tensor, sq_reach: Tensor) -> None:
    """Assert that each unordered pair within reach is found, at most once, and no row with itself."""
    assert not found.diagonal().any()
    assert not (found & found.T).any()
    expected = true <= torch.maximum(sq_reach[:, None], sq_reach)
    assert (found | found.T)[expected.fill_diagonal_(False)].all()


@kinds
def test_ranks_together_find_all_pairs(kind, rng, monkeypatch):
    torch.set_num_threads(1)  # as on a GPU, where what some tiles leave waits for the next
    x, y = place(*feature_cases.make("off_center"), kind=kind)
    true, between = _true("off_center", "within"), _true("off_center", "between")
    sq_reach, communicator, found = _mixed_reaches(true, rng), Communicator(), ([], [])
    reaches = _mixed_reaches(between, rng), _mixed_reaches(between.T, rng)
    monkeypatch.setattr(Search, "broadcast", lambda _self, tensors: tensors)
    for communicator.rank in range(3):
        communicator.size = 3
        with Engine(7, 64, lambda: communicator).search(CPU) as search:
            found[0].extend(sweep(x, sq_reach, search, lambda pairs: pairs))
            found[1].extend(sweep(x, reaches[0], search, lambda pairs: pairs, (y, reaches[1])))
    _assert_within(_collected(found[0], *true.shape, true), true, sq_reach)
    is_found = _collected(found[1], *between.shape, between)
    assert is_found[between <= torch.maximum(reaches[0][:, None], reaches[1])].all()


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(2))
def test_all_pairs_within_and_between_sets_are_found_once(case, kind, engine, rng):
    x, y = place(*feature_cases.make(case), kind=kind)
    true = _true(case, "within")
    sq_reach = _mixed_reaches(true, rng)
    _assert_within(_collected(_pairs_within(x, sq_reach, ENGINES[engine]), *true.shape, true), true, sq_reach)
    true = _true(case, "between")
    reaches = _mixed_reaches(true, rng), _mixed_reaches(true.T, rng)
    found = _collected(_pairs_between(x, y, *reaches, ENGINES[engine]), *true.shape, true)
    assert found[true <= torch.maximum(reaches[0][:, None], reaches[1])].all()
    assert not found[(reaches[0] == -torch.inf)[:, None] & (reaches[1] == -torch.inf)].any()


@searches
def test_reach_of_one_set_may_be_empty(kind, engine, rng):
    x, y = place(_clusters(rng), _clusters(rng, 150), kind=kind)
    true = sq_distances(x.features, y.features)
    reaches = true.kthvalue(3, dim=1).values, true.kthvalue(3, dim=0).values
    nothing = torch.full((200,), -torch.inf).double(), torch.full((150,), -torch.inf).double()
    found = _collected(_pairs_between(x, y, reaches[0], nothing[1], engine), 200, 150, true)
    assert found[true <= reaches[0][:, None]].all()
    found = _collected(_pairs_between(x, y, nothing[0], reaches[1], engine), 200, 150, true)
    assert found[true <= reaches[1]].all()


@functools.cache
def _true(case: str, which: str) -> Tensor:
    real, fake = feature_cases.make(case)
    return sq_distances(real, real if which == "within" else fake)


def _clusters(rng: np.random.Generator, n: int = 200, d: int = 24) -> np.ndarray:
    places = 20 * rng.normal(size=(6, d))
    return (places[rng.integers(0, 6, n)] + rng.normal(size=(n, d))).astype(np.float32)


@searches
def test_few_pairs_beyond_reach_are_found(kind, engine, rng):
    features = _clusters(rng)
    (points,) = place(features, kind=kind)
    true = sq_distances(features, features)
    sq_reach = true.kthvalue(6, dim=1).values
    found = _collected(_pairs_within(points, sq_reach, engine), 200, 200, true)
    expected = (true <= torch.maximum(sq_reach[:, None], sq_reach)).triu(diagonal=1).sum()
    in_all_coordinates = kind in ("all coordinates", "clusters")
    assert expected <= found.sum() <= (1.02 if in_all_coordinates else 15) * expected


@searches
def test_infinite_reach_finds_all_pairs(kind, engine, rng):
    features = _clusters(rng, n=90)
    features[5] = 1e30
    x, y = place(features, features[:40], kind=kind)
    true = sq_distances(features, features)
    everything = torch.full((90,), torch.inf).double()
    found = _collected(_pairs_within(x, everything, engine), 90, 90, true)
    assert (found | found.T).sum() == 90 * 89
    found = _collected(_pairs_between(x, y, everything, -everything[:40], engine), 90, 40, true[:, :40])
    assert found.all()


@searches
@pytest.mark.parametrize("n", [1, 2, 3])
def test_sets_of_one_to_three_rows(kind, engine, n, rng):
    features = rng.normal(size=(n, 4)).astype(np.float32)
    (points,) = place(features, kind=kind)
    true = sq_distances(features, features)
    found = _collected(_pairs_within(points, torch.full((n,), 1e9).double(), engine), n, n, true)
    assert found.sum() == n * (n - 1) // 2
    nothing = torch.full((n,), -torch.inf).double()
    assert not _collected(_pairs_within(points, nothing, engine), n, n, true).any()
    assert not _collected(_pairs_between(points, points, nothing, nothing, engine), n, n, true).any()


@pytest.mark.parametrize("kind", SEARCH_KINDS)
@pytest.mark.parametrize("engine", TILES[:2], ids=["7 x 64", "33 x 20"])
def test_reach_may_shrink_between_portions(kind, engine, rng, set_sizes):
    set_sizes(min_pairs=50)
    features = _clusters(rng)
    (points,) = place(features, kind=kind)
    true = sq_distances(features, features)
    final = true.kthvalue(4, dim=1).values / 4
    final = final.masked_fill(torch.arange(200) % 9 == 0, -torch.inf)
    sq_reach = torch.full_like(final, 1e3)

    def shrink(pairs: Pairs) -> Pairs:
        rows = torch.from_numpy(rng.integers(0, 200, 100))
        sq_reach[rows] = torch.maximum(final[rows], sq_reach[rows] / 20)
        return pairs

    found = _collected(_pairs_within(points, sq_reach, engine, shrink), 200, 200, true)
    _assert_within(found, true, final)
    at_first = torch.full_like(final, 1e3)
    assert found.sum() < 0.8 * len(_joined(_pairs_within(points, at_first, engine)).i)


@kinds
def test_portions_change_nothing_and_are_as_small_as_tiles_allow(kind, rng, set_sizes):
    (points,) = place(_clusters(rng), kind=kind)
    sq_reach = torch.full((200,), 60.0).double()
    engine = Engine(16, 16)

    def run(portion):
        set_sizes(min_pairs=portion)
        portions = _pairs_within(points, sq_reach, engine)
        joined = _joined(portions)
        order = (joined.i * 200 + joined.j).argsort()
        return joined.at(order), max(len(pairs.i) for pairs in portions)

    (whole, _), (parts, largest) = run(10**9), run(300)
    for name in ("i", "j", "sq_lower", "sq_upper"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
    assert len(whole.i) > 1000
    assert largest <= 300 + 16 * 16


@kinds
@pytest.mark.parametrize("limit", [1, 7, 64, 1000])
def test_blocks_partition_rows_and_each_is_in_one_cluster(kind, limit, rng):
    (points,) = place(_clusters(rng), kind=kind)
    sq_reach = torch.from_numpy(rng.gamma(1, size=200))
    every = torch.arange(200)
    blocks = [every[block] for block in row_blocks(points, sq_reach, limit)]
    assert torch.cat(blocks).sort().values.tolist() == list(range(200))
    assert 1 <= min(map(len, blocks)) <= max(map(len, blocks)) <= limit
    if points.clusters is not None:
        assert all(len(points.clusters.label[block].unique()) == 1 for block in blocks)


def test_steps_that_exceed_memory_are_repeated():
    done = []

    def work(part):
        if part.stop - part.start > 3:
            raise torch.OutOfMemoryError
        done.extend(range(20)[part])

    list(in_steps(work, 20, 16, CPU))
    assert done == list(range(20))
