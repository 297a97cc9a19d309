import feature_cases
import numpy as np
import pytest
import torch
from search_cases import KINDS, frame_of, sq_distances

from genpr.neighbors.bounds import NO_FLOOR, represent
from genpr.neighbors.index import Frame

TENSORS = ("coordinates", "half_floors", "slack", "residual")
kinds = pytest.mark.parametrize("kind", [kind for kind in KINDS if "codes" not in kind])


def test_frame_is_centered_on_the_data(rng):
    frame = Frame.around(torch.from_numpy(rng.normal(1000, 1e-3, (300, 16))).float())
    assert (frame.center - 1000).abs().max() < 1e-3
    assert 2.0**6 < frame.scale < 2.0**10
    assert np.log2(frame.scale) == round(np.log2(frame.scale))
    assert frame.basis is None
    assert len(frame.centers) == 0


def test_outliers_move_the_frame_little(rng):
    features = torch.from_numpy(rng.normal(5, 0.05, (500, 8))).float()
    before = Frame.around(features)
    features[::50] = 1e30
    after = Frame.around(features)
    assert (after.center - before.center).abs().max() < 0.05
    assert after.scale == before.scale


def test_frame_follows_most_distinct_rows_even_among_copies(rng):
    features = torch.full((300, 4), 2.5)
    features[::10] += torch.from_numpy(rng.normal(0, 1e-3, (30, 4))).float()
    assert 2.0**7 < Frame.around(features).scale < 2.0**11


@pytest.mark.parametrize("case", feature_cases.names())
@kinds
def test_scales_are_powers_of_two_and_coordinates_are_finite(case, kind):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    frame = frame_of(real, kind)
    assert np.frexp(frame.scale)[0] == 0.5
    assert frame.center.dtype == torch.float32
    for features in (real, fake):
        points = frame.place(features)
        assert points.view.coordinates.shape == (len(features), points.view.width)
        assert points.view.coordinates.isfinite().all()
        assert points.view.residual.isfinite().all()
        assert (points.view.residual >= 0).all()
        assert (points.view.slack >= 0).all()
        assert not points.view.slack.isnan().any()
        assert (points.view.half_floors >= NO_FLOOR / 2).all()
        assert (points.cells is None) == (len(frame.centers) == 0)


@kinds
@pytest.mark.parametrize("elements", [1, 30])
def test_rows_have_the_same_coordinates_in_pieces(kind, elements, rng, set_sizes):
    features = torch.from_numpy(rng.normal(5, 1, (50, 9))).float()
    features[7] = 1e30
    frame = frame_of(features, kind)
    whole = frame.place(features)
    set_sizes(piece=elements)
    in_pieces = frame.place(features)
    for name in TENSORS:
        torch.testing.assert_close(
            getattr(in_pieces.view, name), getattr(whole.view, name), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("value", [5, 1e-30, 1e30, 3e38])
def test_recomputed_coordinates_equal_those_that_slack_covers(value, rng, set_sizes):
    features = torch.from_numpy(rng.normal(5, 1e-3, (50, 9))).float()
    features[:, 3] = (
        value  # of every row: its moved value is zero, where that of the center overflows in the scale
    )
    features[7] = 1e30
    view = frame_of(features).place(features).view
    set_sizes(passed=40)
    rows = torch.tensor([7, 49, 0, 7, 12, 13, 14, 15, 16])
    expected = represent(features[rows], view.center, view.scale, None)
    assert torch.equal(view.left(rows)[:, :-2], expected.coordinates)
    assert torch.equal(view.slack[rows], expected.slack)


@kinds
def test_product_of_left_and_right_gives_keys(kind, rng):
    features = torch.from_numpy(rng.normal(5, 1, (30, 6))).float()
    points = frame_of(features, kind).place(features)
    rows = torch.arange(30)
    left, right = points.view.left(rows), points.view.right(rows)
    true = sq_distances(features, features)
    lower = points.sq_lower(left @ right.T)
    assert (lower <= true).all()
    assert (true <= lower + points.sq_gap(rows[:, None], points, rows)).all()
    before = {name: getattr(points.view, name).clone() for name in TENSORS}
    left.zero_()
    right.zero_()
    for name, tensor in before.items():
        assert torch.equal(getattr(points.view, name), tensor)
