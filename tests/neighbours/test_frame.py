from __future__ import annotations

import feature_cases
import numpy as np
import pytest
import torch
from placements import KINDS, frame_of, random_directions, with_basis

from genpr.neighbours import frame as frame_module
from genpr.neighbours.bounds import NO_FLOOR
from genpr.neighbours.frame import Frame, evenly_spaced

kinds = pytest.mark.parametrize("kind", KINDS)


def test_the_frame_is_where_the_data_is(rng):
    frame = Frame.around(torch.from_numpy(rng.normal(1000, 1e-3, (300, 16))).float())
    assert (frame.centre - 1000).abs().max() < 1e-3
    assert 2.0**6 < frame.scale < 2.0**10
    assert np.log2(frame.scale) == round(np.log2(frame.scale))
    assert frame.width == 16
    assert frame.basis is None
    assert len(frame.centres) == 0


def test_no_outlier_moves_the_frame_far(rng):
    features = torch.from_numpy(rng.normal(5, 0.05, (500, 8))).float()
    before = Frame.around(features)
    features[::50] = 1e30
    after = Frame.around(features)
    assert (after.centre - before.centre).abs().max() < 0.05
    assert after.scale == before.scale


def test_what_is_like_most_rows_shapes_the_frame_even_where_most_are_copies(rng):
    features = torch.full((300, 4), 2.5)
    features[::10] += torch.from_numpy(rng.normal(0, 1e-3, (30, 4))).float()
    assert 2.0**7 < Frame.around(features).scale < 2.0**11


@pytest.mark.parametrize("case", feature_cases.names())
@kinds
def test_scales_are_powers_of_two_and_nothing_placed_is_infinite(case, kind):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    frame = frame_of(real, kind)
    assert np.frexp(frame.scale)[0] == 0.5
    assert frame.centre.dtype == torch.float32
    for features in (real, fake):
        points = frame.place(features)
        assert points.augmented.shape == (len(features), frame.width + 2)
        assert points.augmented.isfinite().all()
        assert points.residual.isfinite().all()
        assert (points.residual >= 0).all()
        assert (points.slack >= 0).all()
        assert not points.slack.isnan().any()
        assert (points.augmented[:, -2] == -points.half_floors).all()
        assert (points.half_floors >= NO_FLOOR / 2).all()
        assert (points.cells is None) == (len(frame.centres) == 0)


@pytest.mark.parametrize("value", [0.0, 1e-45, 3.4e38])
def test_identical_rows_have_a_frame(value):
    features = torch.full((3, 2), value)
    frame = Frame.around(features)
    assert torch.equal(frame.centre, features[0])
    assert 0 < frame.scale < np.inf


def test_the_width_counts_the_length_of_the_rest(rng):
    frame = Frame.around(torch.from_numpy(rng.normal(size=(20, 7))).float())
    assert with_basis(frame, random_directions(7, 3)).width == 4


@kinds
def test_placing_keeps_the_features_themselves(kind, rng):
    features = torch.from_numpy(rng.normal(size=(20, 4))).float()
    before = features.clone()
    points = frame_of(features, kind).place(features)
    assert points.features is features
    assert torch.equal(features, before)
    assert len(points) == 20
    assert points.device == features.device


@kinds
@pytest.mark.parametrize("elements", [1, 30])
def test_rows_are_placed_alike_in_pieces(kind, elements, rng, monkeypatch):
    features = torch.from_numpy(rng.normal(5, 1, (50, 9))).float()
    features[7] = 1e30
    frame = frame_of(features, kind)
    whole = frame.place(features)
    monkeypatch.setattr(frame_module, "_CPU_PIECE", elements)
    pieces = frame.place(features)
    for name in ("slack", "residual", "half_floors", "augmented"):
        torch.testing.assert_close(getattr(pieces, name), getattr(whole, name), rtol=1e-6, atol=1e-6)


@kinds
def test_halves_are_placed_as_the_floats_they_stand_for(kind, rng):
    features = torch.from_numpy(rng.normal(5, 1, (50, 9))).half()
    frame = frame_of(features.float(), kind)
    points, floats = frame.place(features), frame.place(features.float())
    assert points.features.dtype == torch.float16
    assert torch.equal(points.augmented, floats.augmented)
    assert torch.equal(points.slack, floats.slack)
    assert torch.equal(Frame.around(features).centre, Frame.around(features.float()).centre)


def test_coordinates_that_are_too_many_to_keep_are_computed_again(rng, monkeypatch):
    features = torch.from_numpy(rng.normal(5, 1, (50, 9))).float()
    features[7] = 1e30
    frame = frame_of(features)
    kept = frame.place(features)
    monkeypatch.setattr(frame_module, "_KEPT_BYTES", 0)
    monkeypatch.setattr(frame_module, "_CPU_PIECE", 40)
    again = frame.place(features)
    assert kept.augmented is not None
    assert again.augmented is None
    rows = torch.tensor([7, 49, 0, 7, 12, 13, 14, 15, 16])
    assert torch.equal(again.left(rows), kept.left(rows))
    assert torch.equal(again.right(rows), kept.right(rows))
    assert torch.equal(again.slack, kept.slack)


@kinds
def test_left_and_right_make_keys_and_are_not_shared(kind, rng):
    features = torch.from_numpy(rng.normal(5, 1, (30, 6))).float()
    points = frame_of(features, kind).place(features)
    rows = torch.arange(30)
    left, right = points.left(rows), points.right(rows)
    coordinates = points.augmented[:, :-2]
    expected = coordinates @ coordinates.T - points.half_floors[:, None] - points.half_floors
    torch.testing.assert_close(left @ right.T, expected, rtol=1e-5, atol=1e-5)
    before = points.augmented.clone()
    left.zero_()
    right.zero_()
    assert torch.equal(points.augmented, before)


@pytest.mark.parametrize(("n", "count"), [(1, 5), (5, 5), (7, 5), (1000, 3), (3, 1)])
def test_evenly_spaced_rows_are_distinct_and_ascend(n, count):
    rows = evenly_spaced(n, count, torch.device("cpu"))
    assert len(rows) == min(n, count)
    assert rows[0] == 0
    assert rows[-1] < n
    steps = rows.diff()
    assert (steps >= 1).all()
    assert len(steps) == 0 or steps.max() - steps.min() <= 1
