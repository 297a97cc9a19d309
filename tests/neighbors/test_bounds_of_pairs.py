import feature_cases
import numpy as np
import pytest
import torch
from search_cases import all_pairs

from genpr.neighbors.bounds import bounds_of_differences, bounds_of_pairs, tight_bounds_of_pairs
from genpr.neighbors.distance import (
    of_pairs,
    sq_differences_at,
    sq_distances,
)


def _of_differences(x, y, i, j):
    return bounds_of_differences(sq_differences_at(x, y, i, j), x.shape[1])


@pytest.mark.parametrize("case", feature_cases.names())
def test_bounds_hold_and_are_tight(case, rng):
    x, y = map(torch.from_numpy, feature_cases.make(case))
    (i, j), d = all_pairs(len(x), len(y)), x.shape[1]
    true = of_pairs(sq_distances, x, y, i, j)
    of_differences = 5 * (d + 10) * 2.0**-24 * true + 3 * d * 2.0**-124
    widths = {
        _of_differences: of_differences,
        tight_bounds_of_pairs: of_differences,
        bounds_of_pairs: 1e-11 * torch.cat([x, y]).double().sub(x[0]).square().sum(dim=1).max(),
    }
    for bounds, width in widths.items():
        lower, upper = bounds(x, y, i, j)
        assert (lower <= true).all()
        assert (true <= upper).all()
        assert upper.isfinite()[true < 1e38].all()
        assert (upper - lower <= width)[upper.isfinite()].all()
    assert upper.isfinite().all()
    few = torch.from_numpy(rng.integers(0, len(i), min(len(x), len(y)) // 2))
    lower, upper = bounds_of_pairs(x, y, i[few], j[few])
    assert (lower <= true[few]).all()
    assert (true[few] <= upper).all()
    assert upper.isfinite().all()


@pytest.mark.parametrize(
    ("d", "width"), [(64, 64), (100, 50), (127, 127), (130, 26), (512, 64), (1030, 10), (2048, 64)]
)
def test_sums_over_parts_of_rows_have_the_error_of_a_part(d, width, rng):
    x, y = torch.from_numpy(rng.normal(3, 1, (2, 60, d)).astype(np.float32))
    i, j = (torch.from_numpy(rng.integers(0, 60, 500)) for _ in range(2))
    true = of_pairs(sq_distances, x, y, i, j)
    lower, upper = tight_bounds_of_pairs(x, y, i, j)
    assert (lower <= true).all()
    assert (true <= upper).all()
    assert (upper - lower <= 5 * (width + 10) * 2.0**-24 * true).all()


def test_overflow_of_float32_squares_is_resolved_by_the_definition(monkeypatch):
    x = torch.tensor([[1e30, 0], [0, 0], [1, 1]])
    i, j = torch.tensor([0, 1]), torch.tensor([1, 2])
    monkeypatch.setattr("genpr.neighbors.bounds._PAIRS_PER_PRODUCT", 0)
    lower, upper = bounds_of_pairs(x, x, i, j)
    assert lower[0] == upper[0] == of_pairs(sq_distances, x, x, i, j)[0]
    assert lower[1] < 2 < upper[1]


def test_overflow_and_underflow_of_differences_give_infinite_bounds():
    lower, upper = bounds_of_differences(torch.tensor([torch.inf, torch.nan, 0.0]), 10)
    assert lower.tolist() == [0, 0, 0]
    assert upper[:2].isinf().all()
    assert 10 * 2.0**-126 < upper[2] < 1e-30
    lower, upper = bounds_of_differences(torch.tensor([0.0, 1.0]), 2**23)  # more terms than gamma is for
    assert not lower.any()
    assert upper.isinf().all()


def test_scattered_pairs_are_bounded_by_differences():
    x, i = torch.arange(200.0).view(200, 1), torch.arange(200)
    assert all(map(torch.equal, bounds_of_pairs(x, x, i, i.flip(0)), _of_differences(x, x, i, i.flip(0))))
    assert [len(bound) for bound in bounds_of_pairs(x, x, i[:0], i[:0])] == [0, 0]


def test_bounds_by_product_find_some_rows_among_many(rng):
    x, y = torch.from_numpy(rng.normal(size=(2, 300, 5))).float()
    rows, columns = torch.tensor([299, 3, 50]), torch.tensor([7, 0])
    i, j = rows.repeat_interleave(2), columns.repeat(3)
    lower, upper = bounds_of_pairs(x, y, i, j)
    true = of_pairs(sq_distances, x, y, i, j)
    assert ((lower <= true) & (true <= upper)).all()
    assert (upper - lower).max() < 1e-11
