import feature_cases
import pytest
import torch
from search_cases import all_pairs

from genpr.neighbors.bounds import bounds_by_product, bounds_of_differences
from genpr.neighbors.distance import sq_differences_at, sq_distances_at

cases = pytest.mark.parametrize("case", feature_cases.names())


def _assert_hold(lower, upper, true):
    assert (lower <= true).all()
    assert (true <= upper).all()


@cases
def test_bounds_of_differences_hold_and_are_tight(case):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    i, j = all_pairs(len(real), len(fake))
    d = real.shape[1]
    lower, upper = bounds_of_differences(sq_differences_at(real, fake, i, j), d)
    true = sq_distances_at(real, fake, i, j)
    assert (lower <= true).all()
    assert (true <= upper).all()
    assert (lower >= 0).all()
    known = upper.isfinite()
    assert known[true < 1e38].all()
    wide = 5 * (d + 10) * 2.0**-24 * true + 3 * d * 2.0**-124
    assert (upper - lower <= wide)[known].all()


def test_overflow_and_underflow_of_differences_give_infinite_bounds():
    lower, upper = bounds_of_differences(torch.tensor([torch.inf, torch.nan, 0.0]), 10)
    assert lower.tolist() == [0, 0, 0]
    assert upper[:2].isinf().all()
    assert 10 * 2.0**-126 < upper[2] < 1e-30
    lower, upper = bounds_of_differences(torch.tensor([0.0, 1.0]), 2**23)  # more terms than gamma is for
    assert not lower.any()
    assert upper.isinf().all()


@cases
def test_bounds_by_product_hold_and_are_tight(case):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    i, j = all_pairs(len(real), len(fake))
    lower, upper = bounds_by_product(real, fake, i, j)
    _assert_hold(lower, upper, sq_distances_at(real, fake, i, j))
    largest = torch.cat([real, fake]).double().sub(real[0]).square().sum(dim=1).max()
    assert (upper - lower).max() <= 1e-11 * largest


def test_bounds_by_product_do_not_apply_to_scattered_pairs():
    x = torch.arange(200.0).view(200, 1)
    i = torch.arange(200)
    assert bounds_by_product(x, x, i, i.flip(0)) is None
    assert bounds_by_product(x, x, i[:0], i[:0]) is None


def test_bounds_by_product_find_some_rows_among_many(rng):
    x, y = torch.from_numpy(rng.normal(size=(2, 300, 5))).float()
    rows, columns = torch.tensor([299, 3, 50]), torch.tensor([7, 0])
    i, j = rows.repeat_interleave(2), columns.repeat(3)
    lower, upper = bounds_by_product(x, y, i, j)
    _assert_hold(lower, upper, sq_distances_at(x, y, i, j))
    assert (upper - lower).max() < 1e-11
