from dataclasses import replace

import feature_cases
import numpy as np
import pytest
import torch
from search_cases import KINDS, projection_of, residual_of

from genpr.neighbors.bounds import NO_FLOOR, represent
from genpr.neighbors.index import Projection

TENSORS = ("values", "half_floors", "slack")
kinds = pytest.mark.parametrize("kind", [kind for kind in KINDS if "rounded" not in kind])


def test_projection_is_centered_on_the_data(rng):
    projection = Projection.around(torch.from_numpy(rng.normal(1000, 1e-3, (300, 16))).float())
    assert (projection.center - 1000).abs().max() < 1e-3
    assert 2.0**6 < projection.scale < 2.0**10
    assert np.log2(projection.scale) == round(np.log2(projection.scale))
    assert projection.basis is None
    assert len(projection.centers) == 0


def test_outliers_move_the_projection_little(rng):
    features = torch.from_numpy(rng.normal(5, 0.05, (500, 8))).float()
    before = Projection.around(features)
    features[::50] = 1e30
    after = Projection.around(features)
    assert (after.center - before.center).abs().max() < 0.05
    assert after.scale == before.scale


def test_projection_follows_most_distinct_rows_even_among_copies(rng):
    features = torch.full((300, 4), 2.5)
    features[::10] += torch.from_numpy(rng.normal(0, 1e-3, (30, 4))).float()
    assert 2.0**7 < Projection.around(features).scale < 2.0**11


@pytest.mark.parametrize("case", feature_cases.names())
@kinds
def test_scales_are_powers_of_two_and_coordinates_are_finite(case, kind):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    projection = projection_of(real, kind)
    assert np.frexp(projection.scale)[0] == 0.5
    assert projection.center.dtype == torch.float32
    for features in (real, fake):
        points = projection.place(features)
        assert points.coordinates.values.shape == (len(features), points.coordinates.width)
        assert points.coordinates.values.isfinite().all()
        assert residual_of(points.coordinates).isfinite().all()
        assert (residual_of(points.coordinates) >= 0).all()
        assert (points.coordinates.slack >= 0).all()
        assert not points.coordinates.slack.isnan().any()
        assert (points.coordinates.half_floors >= NO_FLOOR / 2).all()
        assert (points.clusters is None) == (len(projection.centers) == 0)


@kinds
@pytest.mark.parametrize("elements", [1, 30])
def test_rows_have_the_same_coordinates_in_pieces(kind, elements, rng, set_sizes):
    features = torch.from_numpy(rng.normal(5, 1, (50, 9))).float()
    features[7] = 1e30
    projection = projection_of(features, kind)
    whole = projection.place(features)
    set_sizes(elements=elements)
    in_pieces = projection.place(features)
    for name in TENSORS:
        torch.testing.assert_close(
            getattr(in_pieces.coordinates, name), getattr(whole.coordinates, name), rtol=1e-6, atol=1e-6
        )
    torch.testing.assert_close(residual_of(in_pieces.coordinates), residual_of(whole.coordinates))


@pytest.mark.parametrize("value", [5, 1e-30, 1e30, 3e38])
def test_recomputed_coordinates_equal_those_that_slack_covers(value, rng, set_sizes):
    features = torch.from_numpy(rng.normal(5, 1e-3, (50, 9))).float()
    features[:, 3] = (
        value  # of every row: its moved value is zero, where that of the center overflows in the scale
    )
    features[7] = 1e30
    coordinates = projection_of(features).place(features).coordinates
    recomputed = replace(coordinates, rounded_rows=coordinates.rounded_rows[:0])
    set_sizes(recomputed=40)
    for rows in (torch.tensor([7, 49, 0, 7, 12, 13, 14, 15, 16]), slice(5, 31)):
        expected = represent(features[rows], coordinates.center, coordinates.scale, None)
        for each in (coordinates, recomputed):
            assert torch.equal(each.at(rows), expected.coordinates)
        assert torch.equal(coordinates.slack[rows], expected.slack)
