import functools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from search_cases import sq_radii
from torch import Tensor
from trained_features import features_of_crops

from genpr.neighbors import index
from genpr.neighbors.index import Projection, choose_projection, is_suitable, principal_directions

N, D = 4000, 256  # enough rows and columns for a choice


@functools.cache
def _directions() -> NDArray:
    return np.random.default_rng(5).normal(size=(8, D)) / np.sqrt(8)


@functools.cache
def _learned(seed: int, n: int = N) -> Tensor:
    """Features like those of networks: 8 intrinsic dimensions, far from the origin, and 1 % noise in all directions."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(
        rng.normal(size=(n, 8)) @ _directions() + 3 + 0.01 * rng.normal(size=(n, D))
    ).float()


@functools.cache
def _isotropic() -> Tensor:
    return torch.from_numpy(np.random.default_rng(6).normal(size=(N, D))).float()


@functools.cache
def _projection_of_learned() -> Projection:
    return choose_projection(_learned(1), 5)


def _share_within(basis: Tensor, rows: Tensor) -> float:
    """Share of the variance within a basis."""
    moved = rows.double() - rows.double().mean(dim=0)
    return float((moved @ basis).square().sum() / moved.square().sum())


def test_few_directions_and_clusters_are_chosen_if_they_cover_most_variance():
    projection = _projection_of_learned()
    assert projection.basis.shape[0] == D
    assert 8 <= projection.basis.shape[1] <= D // 2
    assert _share_within(projection.basis, _learned(1)) > 0.999
    assert 1 < len(projection.centers) <= N // 50
    assert projection.centers.shape[1] == projection.basis.shape[1] + 1
    eye = torch.eye(projection.basis.shape[1], dtype=torch.float64)
    assert (projection.basis.T @ projection.basis - eye).abs().max() < 1e-12


@pytest.mark.slow
def test_directions_and_clusters_are_chosen_for_trained_features():
    features = features_of_crops(3000)
    projection = choose_projection(features, 5)
    assert 32 <= projection.basis.shape[1] <= features.shape[1] // 2
    assert 0.9 < _share_within(projection.basis, features) < 0.999
    assert 1 < len(projection.centers) <= len(features) // 50
    points = projection.place(features)
    assert is_suitable(points, 5)
    assert torch.equal(
        sq_radii(points, [1, 5]), sq_radii(Projection.around(features).place(features), [1, 5])
    )


@pytest.mark.parametrize(("free", "clusters"), [(0, 1), (N * 8 * 8 * 3, 3)])
def test_distances_to_centers_take_little_of_the_free_memory(free, clusters, monkeypatch):
    monkeypatch.setattr("genpr.neighbors.index.free_memory", lambda _device: free)
    assert len(choose_projection(_learned(1), 5).centers) == clusters


def test_all_clusters_are_used_and_none_has_almost_all_rows():
    clusters = _projection_of_learned().place(_learned(1)).clusters
    sizes = clusters.label.bincount(minlength=len(clusters.sq_distances))
    assert sizes.min() > 0
    assert sizes.max() < N / 2


@pytest.mark.parametrize("case", ["isotropic", "few rows", "fewer rows", "few columns", "one row"])
def test_all_coordinates_are_chosen_if_directions_do_not_reduce_cost(case):
    few = {"few rows": _learned(1, 500), "fewer rows": _learned(1)[:50], "few columns": _learned(1)[:, :100]}
    features = {"isotropic": _isotropic(), "one row": torch.ones(1, 4), **few}[case]
    projection, plain = choose_projection(features, 5), Projection.around(features)
    assert projection.basis is None
    assert len(projection.centers) == 0
    assert torch.equal(projection.center, plain.center)
    assert projection.scale == plain.scale


def test_no_directions_are_fitted_to_rows_that_are_spread_over_many(monkeypatch):
    monkeypatch.setattr(index, "_cheapest_basis", lambda *_: pytest.fail("it takes longer than the search"))
    assert choose_projection(_isotropic(), 5).basis is None
    with pytest.raises(pytest.fail.Exception):
        choose_projection(_learned(1), 5)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e12, 1e36])
def test_outliers_do_not_change_directions(size, rng):
    features = _learned(1).clone()
    features[::80] = torch.from_numpy(size * rng.normal(size=(N // 80, D))).float()
    projection = choose_projection(features, 5)
    assert projection.basis is not None
    assert _share_within(projection.basis, _learned(1)) > 0.999
    assert projection.basis.shape == _projection_of_learned().basis.shape


@pytest.mark.parametrize("value", [0.0, 3.7])
@pytest.mark.parametrize("step", [2, 10, N])
def test_projection_of_mostly_copies_is_valid(value, step):
    features = torch.full((N, D), value)
    features[::step] = _learned(1)[::step]
    points = choose_projection(features, 5).place(features)
    assert points.coordinates.values.isfinite().all()
    assert points.coordinates.slack.isfinite().all()
    assert points.projection.centers.isfinite().all()


@pytest.mark.parametrize("features", [_learned(1), _isotropic()], ids=["learned", "isotropic"])
def test_choice_is_deterministic_and_uses_no_global_random_state(features):
    projection = choose_projection(features, 5)
    torch.manual_seed(12)
    before = torch.get_rng_state()
    again = choose_projection(features.clone(), 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert projection.scale == again.scale
    for name in ("center", "basis", "centers"):
        one, other = getattr(projection, name), getattr(again, name)
        assert (one is None and other is None) or torch.equal(one, other)


def test_chosen_projection_changes_no_radius():
    features = _learned(1)
    projection = _projection_of_learned()
    found = sq_radii(projection.place(features), [1, 5])
    assert torch.equal(found, sq_radii(Projection.around(features).place(features), [1, 5]))
    halves = features.half()
    found = sq_radii(choose_projection(halves, 5).place(halves), [5])
    assert torch.equal(found, sq_radii(Projection.around(halves).place(halves), [5]))


def _collapsed(place: float, spread: float) -> Tensor:
    noise = torch.from_numpy(np.random.default_rng(8).normal(size=(N, D))).float()
    return _learned(1)[:1] + place + spread * noise


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (_learned(2), True),
        (_learned(2) + 0.01, True),
        (torch.cat([_learned(2)[: N // 2], _learned(1)[: N // 2]]), True),
        (_collapsed(100, 1e-3), False),  # far away, where float32 coordinates cannot distinguish rows
        (_collapsed(0, 1e-4), False),  # near copies that differ only in the residual
        (_isotropic() * 3, False),
        (_learned(2)[:500], False),  # nothing to gain
    ],
    ids=["like the reals", "near the reals", "some of them", "far away", "near copies", "other", "few"],
)
def test_projection_of_other_data_is_suitable_for_similar_data(features, expected):
    assert is_suitable(_projection_of_learned().place(features), 5) is expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [(_isotropic(), False), (_isotropic()[:500], True), (_isotropic()[:500] + 20, False)],
    ids=["many", "few", "far away"],
)
def test_projection_with_all_coordinates_is_reused_for_few_rows_around_its_center(features, expected):
    assert is_suitable(Projection.around(_isotropic()).place(features), 5) is expected


@pytest.mark.parametrize("count", [1, 8, 24])
def test_principal_directions_equal_those_of_the_svd(count):
    rows = _learned(1)[:1000]
    rows = rows - rows.mean(dim=0)
    basis = principal_directions(rows, count)
    assert basis.shape == (D, count)
    assert basis.dtype == torch.float64
    assert (basis.T @ basis - torch.eye(count, dtype=torch.float64)).abs().max() < 1e-12
    singular = np.linalg.svd(rows.double().numpy(), compute_uv=False)
    held = (rows.double() @ basis).square().sum()
    best = (singular[:count] ** 2).sum()
    assert (1 - 1e-4) * best < held < (1 + 1e-9) * best
    first = (rows.double() @ basis).square().sum(dim=0).sqrt().numpy()[:8]
    assert first == pytest.approx(singular[: len(first)], rel=1e-3)
