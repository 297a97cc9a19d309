from __future__ import annotations

import feature_cases
import numpy as np
import pytest
import torch
from torch import Tensor

from genpr.neighbours.bounds import Frame, Placed, tight_bounds
from genpr.neighbours.torch_tiles import TorchTiles
from genpr.neighbours.verify import sq_distances_at


def _all_pairs(n: int, m: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n).repeat_interleave(m), torch.arange(m).repeat(n)


def _keys_as_product_and_subtractions(x: Placed, y: Placed) -> Tensor:
    return x.coordinates @ y.coordinates.T - x.half_floors[:, None] - y.half_floors


def _keys_as_one_augmented_product(x: Placed, y: Placed) -> Tensor:
    ones = torch.ones(len(x), 1), torch.ones(len(y), 1)
    left = torch.cat([x.coordinates, x.half_floors[:, None], -ones[0]], dim=1)
    right = torch.cat([y.coordinates, -ones[1], y.half_floors[:, None]], dim=1)
    return left @ right.T


def _keys_one_term_after_the_other(x: Placed, y: Placed) -> Tensor:
    """The order of summation whose error grows fastest."""
    keys = torch.zeros(len(x), len(y))
    for column in range(x.coordinates.shape[1]):
        keys = keys + x.coordinates[:, column, None] * y.coordinates[:, column]
    return keys - x.half_floors[:, None] - y.half_floors


_WAYS = [_keys_as_product_and_subtractions, _keys_as_one_augmented_product, _keys_one_term_after_the_other]


def _assert_bounds_hold(real: Tensor, fake: Tensor, ways=_WAYS) -> None:
    frame = Frame.fit(real)
    x, y = frame.place(real), frame.place(fake)
    i, j = _all_pairs(len(x), len(y))
    true = sq_distances_at(real, fake, i, j)
    for keys_of in ways:
        lower = x.sq_lower(keys_of(x, y)[i, j])
        upper = lower + 2 * (x.sq_slack(i) + y.sq_slack(j))
        assert not (lower > true).any(), keys_of.__name__
        assert not (upper < true).any(), keys_of.__name__


@pytest.mark.parametrize("name", feature_cases.names())
def test_bounds_hold_on_every_case(name):
    real, fake = map(torch.from_numpy, feature_cases.make(name))
    _assert_bounds_hold(real, fake)
    _assert_bounds_hold(real, real)


@pytest.mark.parametrize("d", [1, 2, 7, 64, 1000, 4096])
@pytest.mark.parametrize("family", ["signs", "offset", "wide", "same_rounding"])
def test_bounds_hold_on_adversarial_rows(d, family, rng):
    shape = (40, d)
    rows = {
        # all products of one size: nothing averages out but the signs
        "signs": rng.choice([-1.0, 1.0], shape) * (1 + 2.0**-12),
        "offset": 1e4 + rng.normal(size=shape),
        "wide": rng.normal(size=shape) * 10.0 ** rng.uniform(-8, 8, shape),
        # products that all round in the same direction when they are added up
        "same_rounding": np.full(shape, 1 + 2.0**-11) * 10.0 ** rng.integers(0, 3, (40, 1)),
    }[family]
    features = torch.from_numpy(rows).float()
    _assert_bounds_hold(features[:20], features[20:])
    _assert_bounds_hold(features, features)


def test_the_error_that_slack_covers_is_real(rng):
    features = torch.from_numpy(rng.normal(size=(100, 1000))).float()
    points = Frame.fit(features).place(features)
    i, j = _all_pairs(100, 100)
    keys = _keys_one_term_after_the_other(points, points)[i, j]
    middle = points.sq_lower(keys) + points.sq_slack(i) + points.sq_slack(j)
    error = (middle - sq_distances_at(features, features, i, j)).abs()
    share = error / (points.sq_slack(i) + points.sq_slack(j))
    assert 1e-4 < share.max() < 0.5


def test_slack_is_of_the_size_of_rounding_errors(rng):
    features = torch.from_numpy(rng.normal(5, 0.05, (500, 2048))).float()
    points = Frame.fit(features).place(features)
    sq_norms = points.coordinates.double().square().sum(dim=1)
    assert (points.slack <= 2.1 * 2048 * 2.0**-24 * sq_norms).all()


def test_one_outlier_widens_nobody_elses_slack(rng):
    clean = torch.from_numpy(rng.normal(5, 0.05, (500, 64))).float()
    with_outlier = clean.clone()
    with_outlier[7] = 1e6
    before, after = (Frame.fit(x).place(x) for x in (clean, with_outlier))
    others = torch.arange(500) != 7
    assert (after.sq_slack(others) <= 1.5 * before.sq_slack(others)).all()
    assert after.slack[7] > 1e6 * after.slack[others].max()


def test_the_frame_is_where_the_data_is(rng):
    frame = Frame.fit(torch.from_numpy(rng.normal(1000, 1e-3, (300, 16))).float())
    assert (frame.centre - 1000).abs().max() < 1e-3
    assert 2.0**6 < frame.scale < 2.0**10
    assert np.log2(frame.scale) == round(np.log2(frame.scale))


@pytest.mark.parametrize("value", [0.0, 3.7, 1e-42, 3e38])
def test_copies_of_the_centre_have_no_slack(value):
    features = torch.full((10, 3), value)
    points = Frame.fit(features).place(features)
    assert not points.slack.any()
    assert not points.coordinates.any()


def test_rows_that_vanish_in_the_frame_but_differ_from_its_centre_have_slack():
    features = torch.zeros(300, 2)
    features[1:200] = 1e36
    features[::3] = torch.tensor([1e-44, 0.0])  # less than float32 holds at the scale of the others
    points = Frame.fit(features).place(features)
    vanished = ~points.coordinates.any(dim=1) & (features != Frame.fit(features).centre).any(dim=1)
    assert vanished.any()
    assert points.slack[vanished].min() > 0


def test_rows_beyond_the_frame_are_left_to_verification():
    features = torch.ones(100, 4)
    features[:90] = torch.arange(360).view(90, 4) * 1e-10
    features[95] = 1e25
    features[96] = 3e38
    features[97] = -3e38
    points = Frame.fit(features).place(features)
    assert points.slack[95:98].isinf().all()
    assert not points.coordinates[95:98].any()
    assert points.slack[:95].isfinite().all()
    assert points.augmented.isfinite().all()


def test_placing_keeps_the_features_themselves(rng):
    features = torch.from_numpy(rng.normal(size=(20, 4))).float()
    before = features.clone()
    points = Frame.fit(features).place(features)
    assert points.features is features
    assert torch.equal(features, before)


@pytest.mark.parametrize("name", feature_cases.names())
def test_tight_bounds_hold_and_are_tight(name):
    real, fake = map(torch.from_numpy, feature_cases.make(name))
    i, j = _all_pairs(len(real), len(fake))
    bounds = tight_bounds(real, fake, i, j)
    assert bounds is not None
    lower, upper = bounds
    true = sq_distances_at(real, fake, i, j)
    assert (lower <= true).all()
    assert (true <= upper).all()
    largest = torch.cat([real, fake]).double().sub(real[0]).square().sum(dim=1).max()
    assert (upper - lower).max() <= 1e-11 * largest


def test_tight_bounds_leave_scattered_pairs_alone():
    x = torch.arange(200.0).view(200, 1)
    i = torch.arange(200)
    assert tight_bounds(x, x, i, i.flip(0)) is None
    assert tight_bounds(x, x, i[:0], i[:0]) is None


def test_engines_count_on_keys_that_grow_as_rows_come_closer(rng):
    features = torch.from_numpy(rng.normal(size=(60, 5))).float()
    points = Frame.fit(features).place(features)
    near = TorchTiles().nearest(points, 59)
    assert (near.sq_lower.diff(dim=1) >= 0).all()
