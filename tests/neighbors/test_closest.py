import feature_cases
import numpy as np
import pytest
import torch
from search_cases import sq_distances
from torch import Tensor

from genpr.neighbors.search import ClosestPairs, Pairs

cases = pytest.mark.parametrize("case", feature_cases.names())


def _bounded(i: Tensor, j: Tensor, true: Tensor) -> Pairs:
    return Pairs(i, j, true[i, j] * (1 - 1e-6), true[i, j] * (1 + 1e-6))


def _add_everything(kept: ClosestPairs, true: Tensor, rng: np.random.Generator, portions: int = 7) -> None:
    i, j = torch.triu_indices(len(true), len(true), offset=1)
    order = torch.from_numpy(rng.permutation(len(i)))
    for part in order.chunk(portions):
        kept.add(_bounded(i[part], j[part], true))


@cases
@pytest.mark.parametrize("portion", [2**17, 500])
def test_all_closest_pairs_are_kept(case, portion, rng, set_sizes):
    set_sizes(min_held=portion)
    real, _ = feature_cases.make(case)
    true = sq_distances(real, real)
    k = min(4, len(real) - 1)
    sq_reach = torch.full((len(real),), torch.inf).double()
    kept = ClosestPairs.empty(sq_reach, k)
    _add_everything(kept, true, rng)
    pairs = kept.pairs()
    kth = true.fill_diagonal_(torch.inf).kthvalue(k, dim=1).values
    is_kept = torch.zeros_like(true, dtype=torch.bool)
    is_kept[pairs.i, pairs.j] = is_kept[pairs.j, pairs.i] = True
    assert is_kept[true <= kth[:, None]].all()
    assert len(set(zip(pairs.i.tolist(), pairs.j.tolist(), strict=True))) == len(pairs.i)
    assert torch.equal(pairs.sq_upper, true[pairs.i, pairs.j] * (1 + 1e-6))
    assert (kept.smallest.diff(dim=1) >= 0).all()
    assert (kth <= kept.smallest[:, -1]).all()
    assert kept.sq_reach is sq_reach
    assert (kth <= sq_reach).all()


def _random(rng: np.random.Generator, n: int = 200) -> Tensor:
    features = rng.normal(size=(n, 20)).astype(np.float32)
    return sq_distances(features, features)


def test_reach_shrinks_to_the_kth_distance_and_few_other_pairs_are_kept(rng, set_sizes):
    set_sizes(min_held=1000)
    true = _random(rng)
    sq_reach = torch.full((200,), torch.inf).double()
    kept = ClosestPairs.empty(sq_reach, 5)
    _add_everything(kept, true, rng, 20)
    assert sq_reach.isfinite().all()  # before pairs are requested
    pairs = kept.pairs()
    smallest = true.fill_diagonal_(torch.inf).sort(dim=1).values[:, :5]
    torch.testing.assert_close(kept.smallest, smallest * (1 + 1e-6), rtol=1e-12, atol=0)
    torch.testing.assert_close(sq_reach, smallest[:, -1] * (1 + 1e-6), rtol=1e-12, atol=0)
    assert len(pairs.i) <= 200 * 5


@pytest.mark.parametrize(("free", "is_merged"), [(0, True), (2**40, False)])
def test_pairs_are_merged_earlier_with_little_memory(free, is_merged, rng, set_sizes, monkeypatch):
    monkeypatch.setattr("genpr.memory.free_memory", lambda _device=None: free)
    monkeypatch.setattr("genpr.neighbors.search.ALWAYS_HELD", 0)
    set_sizes(min_held=1000, held_per_row=10**6)
    sq_reach = torch.full((200,), torch.inf).double()
    _add_everything(ClosestPairs.empty(sq_reach, 5), _random(rng), rng, 20)
    assert bool(sq_reach.isfinite().all()) == is_merged
