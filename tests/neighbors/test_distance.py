import numpy as np
import oracle
import pytest
import torch

from genpr.neighbors.distance import of_pairs, sq_distances


@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 100, 1000, 1025, 2048])
def test_every_bit_equals_pairwise_halving(rng, d):
    x, y = rng.normal(5, 1, (2, 200, d)).astype(np.float32)
    expected = [oracle.sq_distance(a, b) for a, b in zip(x, y, strict=True)]
    assert sq_distances(torch.from_numpy(x), torch.from_numpy(y)).tolist() == expected


def test_element_i_is_added_to_element_i_plus_half():
    # 1 absorbs one small square, and then the other; added to each other first, they would not be lost.
    x = torch.tensor([[1.0, 1.25 * 2.0**-27, 1.25 * 2.0**-27]])
    assert sq_distances(x, torch.zeros_like(x)).item() == 1.0
    assert sq_distances(x[:, [1, 0, 2]], torch.zeros_like(x)).item() == 1.0 + 2.0**-52


@pytest.mark.parametrize("value", [3.4e38, 1e-45])
def test_distances_do_not_overflow_or_underflow(value):
    x = torch.full((1, 4), value)
    expected = 4 * (2 * x[0, 0].double().item()) ** 2
    assert sq_distances(x, -x).item() == expected > 0


@pytest.mark.parametrize("elements", [1, 100, 10**6])
def test_gathering_in_chunks_changes_nothing(rng, set_sizes, elements):
    set_sizes(elements=elements)
    x, y = (torch.from_numpy(rng.normal(size=(n, 37))).float() for n in (30, 20))
    i, j = torch.from_numpy(rng.integers(0, 20, (2, 333)))
    assert torch.equal(of_pairs(sq_distances, x, y, i, j), sq_distances(x[i], y[j]))
