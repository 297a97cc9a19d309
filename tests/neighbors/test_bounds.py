from dataclasses import replace

import feature_cases
import numpy as np
import pytest
import torch
from search_cases import (
    KINDS,
    augmented,
    principal_directions,
    projection_of,
    random_directions,
    residual_of,
    sq_distances,
    with_basis,
)
from torch import Tensor

from genpr.neighbors.bounds import basis_tolerance, slack_factor, sq_norms_of
from genpr.neighbors.index import IndexedPoints, Projection

cases = pytest.mark.parametrize("case", feature_cases.names())
kinds = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if "clusters" not in kind and "rounded" not in kind]
)


def _one_augmented_product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.T


def _product_and_subtractions(left: Tensor, right: Tensor) -> Tensor:
    return left[:, :-2] @ right[:, :-2].T + left[:, -2, None] + right[:, -1]


def _floors_first(left: Tensor, right: Tensor) -> Tensor:
    return (left[:, -2, None] + right[:, -1]) + left[:, :-2] @ right[:, :-2].T


def _one_term_after_the_other(left: Tensor, right: Tensor) -> Tensor:
    """The order of summation whose error grows fastest."""
    keys = torch.zeros(len(left), len(right))
    for column in range(left.shape[1]):
        keys = keys + left[:, column, None] * right[:, column]
    return keys


_ORDERS = [_one_augmented_product, _product_and_subtractions, _floors_first, _one_term_after_the_other]


def _limits(x: IndexedPoints, y: IndexedPoints, keys_of=_one_augmented_product) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds on all squared distances, (n, m)."""
    rows, columns = torch.arange(len(x.features)), torch.arange(len(y.features))
    lower = x.coordinates.sq_lower(keys_of(augmented(x.coordinates)[0], augmented(y.coordinates)[1]))
    return lower, lower + x.coordinates.sq_gap(rows[:, None], y.coordinates, columns)


def _assert_bounds_hold(x: IndexedPoints, y: IndexedPoints) -> None:
    true = sq_distances(x.features, y.features)
    for keys_of in _ORDERS:
        lower, upper = _limits(x, y, keys_of)
        assert not (lower > true).any(), keys_of.__name__
        assert not (upper < true).any(), keys_of.__name__
        assert not (lower.isnan() | upper.isnan()).any(), keys_of.__name__


@cases
@kinds
def test_bounds_hold_on_every_case(case, kind):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    projection = projection_of(real, kind)
    x, y = projection.place(real), projection.place(fake)
    _assert_bounds_hold(x, y)
    _assert_bounds_hold(y, y)


_FAMILIES = ["signs", "offset", "wide", "same_rounding"]


def _adversarial(family: str, d: int, rng: np.random.Generator) -> Tensor:
    shape = (40, d)
    rows = {
        # all products of one size: nothing averages out but the signs
        "signs": rng.choice([-1.0, 1.0], shape) * (1 + 2.0**-12),
        "offset": 1e4 + rng.normal(size=shape),
        "wide": rng.normal(size=shape) * 10.0 ** rng.uniform(-8, 8, shape),
        # products that all round in the same direction when they are added up
        "same_rounding": np.full(shape, 1 + 2.0**-11) * 10.0 ** rng.integers(0, 3, (40, 1)),
    }[family]
    return torch.from_numpy(rows).float()


@pytest.mark.parametrize("d", [2, 64, 3000])
@pytest.mark.parametrize("family", _FAMILIES)
@kinds
def test_bounds_hold_on_adversarial_rows(d, family, kind, rng):
    features = _adversarial(family, d, rng)
    projection = projection_of(features[:20], kind)
    x, y = projection.place(features[:20]), projection.place(features[20:])
    _assert_bounds_hold(x, y)
    _assert_bounds_hold(y, y)


def _in_span(d: int, width: int, exactly: bool, rng: np.random.Generator) -> tuple[Projection, Tensor]:
    """Rows in the span of `width` directions, exactly or up to float32 rounding."""
    latent = torch.from_numpy(rng.normal(size=(60, width)))
    basis = torch.eye(d, dtype=torch.float64)[:, :width] if exactly else random_directions(d, width)
    features = (latent @ basis.T).float()
    projection = Projection(torch.zeros(d), 1.0, None, torch.empty(0, d, dtype=torch.float64))
    return with_basis(projection, basis), features


@pytest.mark.parametrize(("d", "width"), [(1, 1), (2, 1), (5, 3), (64, 3), (64, 63), (64, 64), (1000, 2)])
@pytest.mark.parametrize("exactly", [True, False])
def test_bounds_hold_for_rows_in_the_span_of_directions(d, width, exactly, rng):
    projection, features = _in_span(d, width, exactly, rng)
    points = projection.place(features)
    _assert_bounds_hold(points, points)
    lower, upper = _limits(points, points)
    assert (upper - lower).max() < 1e-4 * sq_norms_of(features).max()
    if exactly:
        assert residual_of(points.coordinates).max() < 1e-5 * sq_norms_of(features).max().sqrt()


def test_residual_of_directions_counts_fully():
    # Orthogonal to the kept direction, opposite rows have equal coordinates; the squared distance is the full bound 4 r r'.
    projection = Projection(torch.zeros(2), 1.0, None, torch.empty(0, 2, dtype=torch.float64))
    points = with_basis(projection, torch.tensor([[1.0], [0.0]]).double()).place(
        torch.tensor([[0.0, 3], [0, -3], [0, 5]])
    )
    lower, upper = _limits(points, points)
    assert upper[0, 1] == pytest.approx(36, rel=1e-5)
    assert upper[0, 1] >= 36
    assert lower[0, 1] == pytest.approx(0, abs=1e-4)
    assert lower[0, 2] == pytest.approx(4, abs=1e-4)
    _assert_bounds_hold(points, points)


@kinds
def test_outlier_does_not_increase_the_slack_of_other_rows(kind, rng):
    clean = torch.from_numpy(rng.normal(5, 0.05, (500, 64))).float()
    with_outlier = clean.clone()
    with_outlier[7] = 1e6
    projection = projection_of(clean, kind)
    before = projection.place(clean)
    after = replace(
        Projection.around(with_outlier), basis=projection.basis, centers=projection.centers
    ).place(with_outlier)
    others = torch.arange(500) != 7
    slacks = [points.coordinates.slack[others] / points.projection.scale**2 for points in (before, after)]
    assert (slacks[1] <= 1.5 * slacks[0]).all()
    assert after.coordinates.slack[7] > 1e6 * after.coordinates.slack[others].max()


@pytest.mark.parametrize("value", [0.0, 3.7, 1e-45, 1e-42, 3e38, 3.4e38])
@kinds
def test_copies_of_the_center_have_no_slack(value, kind):
    features = torch.full((10, 3), value)
    projection = projection_of(features, "all coordinates")
    assert torch.equal(projection.center, features[0])
    assert 0 < projection.scale < torch.inf
    if kind != "all coordinates":
        projection = with_basis(projection, random_directions(3, 2))
    points = projection.place(features)
    assert not points.coordinates.slack.any()
    assert not residual_of(points.coordinates).any()
    assert not points.coordinates.values.any()


@pytest.mark.parametrize("kind", ["all coordinates", "one direction", "three directions"])
def test_rows_that_underflow_in_the_projection_have_slack(kind):
    features = torch.zeros(300, 2)
    features[1:200] = 1e36
    features[::3] = torch.tensor([1e-44, 0.0])  # less than float32 holds at the scale of the others
    projection = projection_of(features, kind)
    points = projection.place(features)
    vanished = ~points.coordinates.values.any(dim=1) & (features != projection.center).any(dim=1)
    assert vanished.any()
    assert points.coordinates.slack[vanished].min() > 0
    _assert_bounds_hold(points, points)


@kinds
def test_rows_beyond_the_projection_have_infinite_slack(kind):
    features = torch.ones(100, 4)
    features[:90] = torch.arange(360).view(90, 4) * 1e-10
    features[95:98] = torch.tensor([1e25, 3e38, -3e38])[:, None]
    projection = Projection.around(features)
    if kind != "all coordinates":
        projection = with_basis(projection, principal_directions(projection, features[:90], 2))
    points = projection.place(features)
    assert points.coordinates.slack[95:98].isinf().all()
    assert not points.coordinates.values[95:98].any()
    assert not residual_of(points.coordinates)[95:98].any()
    assert points.coordinates.slack[:95].isfinite().all()
    assert points.coordinates.values.isfinite().all()
    assert points.coordinates.half_floors.isfinite().all()
    _assert_bounds_hold(points, points)


def test_nonorthonormal_basis_increases_slack(rng):
    features = torch.from_numpy(rng.normal(size=(60, 32))).float()
    projection = Projection.around(features)
    basis = random_directions(32, 32)
    assert basis_tolerance(basis) < 1e-12
    bent = basis * torch.linspace(1, 1 + 1e-3, 32)
    assert basis_tolerance(bent) >= torch.linalg.matrix_norm(bent.T @ bent - torch.eye(32), ord=2) > 1e-3
    points = with_basis(projection, bent).place(features)
    _assert_bounds_hold(points, points)


def test_slack_is_infinite_beyond_proven_dimensions():
    assert slack_factor(8) == pytest.approx(16 * 2.0**-24, rel=1e-5)
    assert slack_factor(2**23) == float("inf")
