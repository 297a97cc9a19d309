"""Principal components of both sets: the definition, whatever the sizes, the blocks and the order of rows."""

from __future__ import annotations

import numpy as np
import pytest

from genpr.errors import FeatureError, UsageError
from genpr.metrics import blocks, projection
from genpr.metrics.projection import project


def by_svd(real, fake):
    """Center, axes (2, d) of either sign and shares of variance, by numpy from rows that weigh the same per side."""
    real, fake = (np.asarray(side, np.float32).astype(np.float64) for side in (real, fake))
    center = (real.mean(axis=0) + fake.mean(axis=0)) / 2
    rows = np.vstack([(real - center) / len(real) ** 0.5, (fake - center) / len(fake) ** 0.5])
    _, values, axes = np.linalg.svd(rows, full_matrices=False)
    return center, axes[:2], (values**2 / (values**2).sum())[:2]


def integers(rng, d):
    """Sums over these are exact, since the counts are powers of two."""
    return rng.integers(-50, 50, (64, d)) * 2 ** np.arange(d)[::-1].clip(max=4)


def spread(rng, n, d, shift=0.0):
    return (rng.normal(size=(n, d)) * np.linspace(5, 1, d) + shift).astype(np.float32)


@pytest.mark.parametrize(
    ("n", "m", "d"), [(120, 80, 7), (30, 500, 2), (6, 9, 40), (1, 12, 5), (3, 2, 300), (64, 64, 128)]
)
def test_axes_are_those_of_the_definition(rng, n, m, d):
    real, fake = spread(rng, n, d), spread(rng, m, d, shift=0.5)
    found = project(real, fake)
    center, axes, shares = by_svd(real, fake)
    expected = (np.vstack([real, fake]).astype(np.float64) - center) @ axes.T
    signs = np.sign((found.places * expected).sum(axis=0))
    assert found.places == pytest.approx(expected * signs, abs=1e-9)
    assert found.explained == pytest.approx(shares, abs=1e-12)
    assert (found.n_real, found.n_fake) == (n, m)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("d", [3, 90])
def test_the_largest_component_of_an_axis_is_positive(seed, d):
    rng = np.random.default_rng(seed)
    both = spread(rng, 40, d)
    found = project(both, both)
    components = (both - both.mean(axis=0)).T @ found.places[:40]  # proportional to the axes
    largest = np.abs(components).argmax(axis=0)
    assert (components[largest, [0, 1]] > 0).all()


@pytest.mark.parametrize("direction", [(1, -1, 0), (-1, 1, 0), (0, -2, 2)])
@pytest.mark.parametrize("scale", [1, 0.1, 3e5])
def test_of_components_of_one_size_the_first_is_positive(rng, direction, scale):
    along = (rng.normal(size=(30, 1)) * np.array(direction) * scale).astype(np.float32)
    first = next(column for column in range(3) if direction[column])
    found = project(along[:15], along[15:])
    assert np.corrcoef(found.places[:, 0], along[:, first])[0, 1] == pytest.approx(1)


def test_both_sides_weigh_the_same_however_many_rows_they_have(rng):
    real, fake = spread(rng, 40, 4), spread(rng, 40, 4)[:, ::-1] * 2
    once, often = project(real, fake), project(real, np.tile(fake, (9, 1)))
    assert often.places[:40] == pytest.approx(once.places[:40], abs=1e-9)
    assert often.explained == pytest.approx(once.explained)


@pytest.mark.parametrize(
    ("n", "m", "most", "drawn"),
    [
        (100, 100, 50, (25, 25)),
        (100, 100, 51, (26, 25)),
        (100, 10, 50, (40, 10)),
        (10, 100, 50, (10, 40)),
        (10, 10, 50, (10, 10)),
        (100, 1, 2, (1, 1)),
        (30, 25, 50, (25, 25)),
    ],
)
def test_half_of_each_side_is_drawn_or_more_of_one(rng, n, m, most, drawn):
    found = project(rng.normal(size=(n, 3)), rng.normal(size=(m, 3)), most=most)
    assert (int(found.is_real.sum()), int((~found.is_real).sum())) == drawn
    for side, size in ((found.rows[found.is_real], n), (found.rows[~found.is_real], m)):
        assert (np.diff(side) > 0).all()
        assert 0 <= side.min() <= side.max() < size
    assert found.is_real[: drawn[0]].all()


def test_points_lie_where_their_rows_lie_whichever_are_drawn(rng):
    real, fake = spread(rng, 300, 6), spread(rng, 200, 6)
    everything, part = project(real, fake), project(real, fake, most=70, seed=3)
    numbers = np.where(part.is_real, part.rows, 300 + part.rows)
    assert np.array_equal(part.places, everything.places[numbers])  # bit for bit
    assert np.array_equal(part.explained, everything.explained)


@pytest.mark.parametrize("d", [5, 200])
def test_of_integers_the_blocks_do_not_change_a_bit(rng, monkeypatch, d):
    real, fake = integers(rng, d), integers(rng, d)
    found = project(real, fake)
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", 7 * d)
    assert np.array_equal(project(real, fake).places, found.places)


def test_axes_of_large_sets_are_those_of_a_random_part(rng, monkeypatch):
    real, fake = spread(rng, 400, 5), spread(rng, 30, 5)
    monkeypatch.setattr(projection, "_FITTED", 50)
    found = project(real, fake, most=20, seed=4)
    part = real[np.random.default_rng(4).permutation(400)[:50]]
    center, axes, shares = by_svd(part, fake)
    expected = (real[found.rows[found.is_real]] - center) @ axes.T
    assert np.abs(found.places[found.is_real]) == pytest.approx(np.abs(expected), abs=1e-9)
    assert found.explained == pytest.approx(shares)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e30, 1e-40])
@pytest.mark.parametrize("d", [1, 3, 50])
def test_features_that_do_not_vary_lie_at_one_point(value, d):
    found = project(np.full((7, d), value, np.float32), np.full((13, d), value, np.float32))
    assert not found.places.any()
    assert not found.explained.any()


@pytest.mark.parametrize("d", [1, 3, 50])
def test_features_that_vary_in_one_direction_lie_on_the_first_axis(rng, d):
    along = rng.integers(-99, 99, (21, 1)) / 16
    rows = along * np.arange(1, d + 1) + np.arange(d) - 4
    found = project(rows[:9], rows[9:])
    assert found.explained == pytest.approx([1, 0])
    assert not found.places[:, 1].any()
    assert np.corrcoef(found.places[:, 0], along[:, 0])[0, 1] == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_neither_small_nor_large_features_lose_the_axes(rng, scale):
    real, fake = spread(rng, 50, 6).astype(np.float64), spread(rng, 40, 6).astype(np.float64)
    found, scaled = project(real, fake), project(real * scale, fake * scale)
    assert scaled.places / scale == pytest.approx(found.places, abs=1e-5)
    assert scaled.explained == pytest.approx(found.explained, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "code"),
    [
        (((5, 3), (5, 4)), {}, FeatureError, "width-mismatch"),
        (((0, 3), (5, 3)), {}, FeatureError, "too-few"),
        (((5, 3), (0, 3)), {}, FeatureError, "too-few"),
        (((5, 3), (5, 3)), {"most": 1}, UsageError, "bad-option"),
        (((5, 3), (5, 3)), {"seed": -1}, UsageError, "bad-option"),
    ],
)
def test_what_cannot_be_projected_is_refused(arguments, options, error, code):
    with pytest.raises(error) as caught:
        project(*(np.ones(shape) for shape in arguments), **options)
    assert caught.value.code == code
