from dataclasses import replace

import feature_cases
import numpy as np
import oracle
import pytest
import torch
from search_cases import (
    ENGINES,
    SEARCH_KINDS,
    combinations,
    is_beyond,
    place,
    projection_of,
    sq_radii,
    truth,
    with_clusters,
)

from genpr.neighbors import nearest
from genpr.neighbors.balls import BallKind
from genpr.neighbors.counts import Neighborhood, sq_radii_of
from genpr.neighbors.distance import near_sq_distances
from genpr.neighbors.engine import CPU, ENGINE, Engine

BALLS = (BallKind(1), BallKind(3), BallKind(5), BallKind(3, clipped=True), BallKind(5, clipped=True))
TIES = ("closed", "strict")
kinds = pytest.mark.parametrize("kind", SEARCH_KINDS)
precise = pytest.mark.parametrize("kind", [kind for kind in SEARCH_KINDS if kind != "rounded to float16"])


def clipped(radii: np.ndarray) -> np.ndarray:
    low, high = sorted(radii)[(len(radii) - 1) // 2], sorted(radii)[len(radii) // 2]
    return np.minimum(radii, low if low == high else ((np.sqrt(low) + np.sqrt(high)) / 2) ** 2)


def in_degrees(sq: np.ndarray, ascending: np.ndarray, ball: BallKind, limit: float, ties: str) -> list[int]:
    """In-degrees with each row left out in turn: its k-th neighbor is the next one for rows that have it as a neighbor."""
    kth, following = ascending[:, ball.k - 1, None], ascending[:, ball.k, None]
    radii = np.where(sq <= kth, following, kth).clip(max=limit if ball.clipped else None)  # (other, row)
    inside = sq <= radii if ties == "closed" else sq < radii
    return (inside & ~np.eye(len(sq), dtype=bool)).sum(axis=0).tolist()


def check(features: np.ndarray, points, *, keep: int, engine=ENGINE) -> None:
    sq = oracle.sq_distances(features, features)
    others = np.sort(np.where(np.eye(len(sq), dtype=bool), np.inf, sq), axis=1)
    radii = {
        ball: clipped(others[:, ball.k - 1]) if ball.clipped else others[:, ball.k - 1] for ball in BALLS
    }

    for ties in TIES:
        found = Neighborhood.from_points(points, BALLS, ties=ties, keep=keep, engine=engine)
        assert (found.sq_radii.dtype, found.in_degrees.dtype) == (torch.float64, torch.int64)
        for ball, of_ball, in_ball in zip(BALLS, found.sq_radii, found.in_degrees, strict=True):
            assert of_ball.tolist() == radii[ball].tolist()
            assert in_ball.tolist() == in_degrees(sq, others, ball, radii[ball].max(), ties)
        lists = found.lists
        assert lists.index.shape[1] == min(keep, len(features) - 1)
        np.testing.assert_allclose(lists.sq, others[:, : lists.index.shape[1]], rtol=1e-5, atol=1e-30)
        listed = np.take_along_axis(sq, lists.index.numpy(), axis=1)
        np.testing.assert_allclose(lists.sq, listed, rtol=1e-5, atol=1e-30)
        assert all(len({i, *row}) == lists.index.shape[1] + 1 for i, row in enumerate(lists.index.tolist()))


def check_radii(features: np.ndarray, points, ks: list[int], engine=ENGINE) -> None:
    assert sq_radii(points, ks, engine=engine).tolist() == oracle.kth_sq_distances(features, ks).tolist()


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(2))
def test_everything_equals_the_oracle(case, kind, engine):
    expected = truth(case)
    x, y = place(expected.real, expected.fake, kind=kind)  # the reals' projection may serve the fakes badly
    for features, points in ((expected.real, x), (expected.fake, y)):
        check(features, points, keep=9, engine=ENGINES[engine])


@pytest.mark.parametrize("keep", [0, 1, 64, 1000])
def test_any_number_of_neighbors_can_be_listed(keep):
    expected = truth("off_center")
    check(expected.real, place(expected.real)[0], keep=keep, engine=Engine(8, 8))


@pytest.mark.parametrize(("n", "copies"), [(60, 4), (60, 6), (60, 7), (60, 40), (6, 6)])
def test_copies_are_in_the_balls_of_each_other(rng, n, copies):
    features = rng.integers(0, 4, (n, 3)).astype(np.float32)
    features[rng.permutation(n)[:copies]] = features[0]
    features[0, features[0] == 0] = -0.0
    check(features, place(features)[0], keep=5, engine=Engine(8, 8))


def test_equal_distances_are_equal_in_the_lists(rng):
    features = rng.integers(-3, 4, (50, 40)).astype(np.float32)
    (points,) = place(features)
    sq = Neighborhood.from_points(points, [BallKind(1)], keep=49).lists.sq
    assert sq.tolist() == np.sort(oracle.sq_distances(features, features), axis=1)[:, 1:].tolist()


def test_median_radius_excludes_points_on_its_sphere():
    sq = torch.tensor([2.0, 3.0, 3.0, 5.0], dtype=torch.float64)
    assert sq_radii_of(BallKind(1, clipped=True), sq).tolist() == [2.0, 3.0, 3.0, 3.0]
    sq = torch.tensor([1.0, 9.0, 4.0, 16.0], dtype=torch.float64)
    assert sq_radii_of(BallKind(1, clipped=True), sq).tolist() == [1.0, 6.25, 4.0, 6.25]
    assert sq_radii_of(BallKind(1), sq).tolist() == [1.0, 9.0, 4.0, 16.0]


@pytest.mark.parametrize("case", ["off_center", "near_duplicates", "duplicates"])
@pytest.mark.parametrize("masses", [30, 10**9])
def test_number_of_threads_changes_no_radius(case, masses, monkeypatch):
    monkeypatch.setattr(nearest, "_MASSES", masses)
    torch.set_num_threads(3)  # the fixture for all tests puts the number back
    features = truth(case).real
    check_radii(features, *place(features, kind="principal directions and clusters"), [2, 5], Engine(40, 64))
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("differences_from", [0, 1, 64])
def test_many_pairs_within_reach_by_rounded_rows_change_no_radius(
    differences_from, rng, monkeypatch, set_sizes
):
    set_sizes(differences_from=differences_from)
    for name in ("_MASSES", "_SPREAD_JOINED"):
        monkeypatch.setattr(nearest, name, 0)
    features = rng.normal(size=(500, 4)).astype(np.float32)
    check_radii(features, *place(features, kind="rounded to float16"), [1])


@kinds
def test_k_may_be_in_any_order_up_to_all_other_rows(kind, rng):
    for features, ks in (
        (rng.integers(0, 4, (40, 3)), ([1], [5, 3, 5], [20], [39, 1])),
        (rng.normal(size=(2, 4)), ([1],)),
        (rng.normal(size=(7, 4)), ([1], [6])),
        (rng.normal(size=(2, 4)).repeat(3, axis=0), ([1], [5])),
    ):
        (x,) = place(features.astype(np.float32), kind=kind)
        for each in ks:
            for engine in (ENGINE, Engine(8, 5)):
                check_radii(features.astype(np.float32), x, each, engine)


@kinds
def test_float16_features_equal_their_float32_radii(kind, rng):
    halves = torch.from_numpy(rng.normal(5, 0.1, (150, 40))).half()
    check_radii(halves.float().numpy(), projection_of(halves.float(), kind).place(halves), [1, 4])


@precise
def test_rows_at_the_limit_of_a_projection_have_exact_radii(kind, rng):
    usual = torch.from_numpy(rng.normal(size=(110, 6))).float()
    projection = projection_of(usual, kind)
    far = (
        2.0**60
        / projection.scale
        / np.sqrt(6)
        * (1 + 0.02 * torch.from_numpy(rng.normal(size=(40, 6)))).float()
    )
    if "clusters" in kind:
        inside = with_clusters(projection, far, 8).centers
        projection = replace(
            projection, centers=torch.cat([projection.centers, inside[inside.norm(dim=1) > 0]])
        )
    features = torch.cat([far, usual])
    points = projection.place(features)
    assert 5 < is_beyond(points.coordinates).sum() <= 35
    check_radii(features.numpy(), points, [1, 5])


@pytest.mark.parametrize(
    "changed",
    [
        {"bounds._PAIRS_PER_PRODUCT": 0},
        {"nearest._MARGIN": 1},
        {"nearest._SPREAD_ROWS": 1},
        {"engine.CPU": replace(CPU, min_held=100, verified=7), "nearest._MASSES": 30},
    ],
    ids=lambda changed: next(iter(changed)),
)
@pytest.mark.parametrize("case", ["near_duplicates", "scales_no_float32_square_can_hold"])
def test_shortcuts_change_no_radius(changed, case, monkeypatch):
    for name, value in changed.items():
        monkeypatch.setattr(f"genpr.neighbors.{name}", value)
    features = feature_cases.make(case)[0]
    for kind in ("all coordinates", "principal directions and clusters"):
        check_radii(features, *place(features, kind=kind), [1, 3, 5], Engine(7, 64))


@kinds
@pytest.mark.parametrize("engine", [ENGINE, Engine(64, 7)], ids=["default", "64 x 7"])
def test_few_pairs_are_verified(kind, engine, rng, verified):
    features = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 60)) + 0.01 * rng.normal(size=(500, 60))
    sq_radii(*place(features.astype(np.float32), kind=kind), [5], engine=engine)
    assert sum(verified) < 1.5 * 500


@precise
def test_copies_are_resolved_without_verification(kind, rng, verified):
    features = np.full((900, 16), 2.5, dtype=np.float32)
    features[::3] += rng.normal(20, 1, size=(300, 16)).astype(np.float32)
    (x,) = place(features, kind=kind)
    found = sq_radii(x, [5])
    assert sum(verified) < 4 * 900  # of 600 x 600 pairs of copies
    assert (found[0] == 0).tolist() == [i % 3 != 0 for i in range(900)]
    verified.clear()
    (x,) = place(rng.normal(size=(6, 50)).astype(np.float32).repeat(20, axis=0), kind=kind)
    assert not sq_radii(x, [5]).any()
    assert sum(verified) < 3 * 120 * 7


@pytest.mark.parametrize("plan", ["all pairs", "sweep"])
def test_rows_without_coordinates_cost_only_their_own_distances(plan, rng, verified, recorded):
    computed = recorded(2, "nearest.bounds_of_pairs")
    features = rng.normal(size=(300, 8)).astype(np.float32)
    features[:5] = 1e30
    (points,) = place(features)
    assert torch.equal(
        sq_radii(points, [3], engine=Engine(plan=plan))[:, 5:],
        torch.from_numpy(oracle.kth_sq_distances(features, [3])[:, 5:]),
    )
    assert sum(verified) + sum(computed) < 30 * 300


@pytest.mark.parametrize("plan", ["all pairs", "sweep"])
def test_rows_without_coordinates_are_neighbors_where_no_others_are(plan, rng):
    features = rng.normal(size=(12, 8)).astype(np.float32)
    features[::3] *= 1e30
    (points,) = place(features)
    assert points.coordinates.slack.isinf().sum() == 4
    found = sq_radii(points, [5, 8, 10], engine=Engine(plan=plan))
    assert found.tolist() == oracle.kth_sq_distances(features, [5, 8, 10]).tolist()


@pytest.mark.parametrize("plan", ["all pairs", "sweep"])
def test_all_rows_at_the_distance_of_the_kth_are_kept_where_there_are_many(plan, monkeypatch):
    monkeypatch.setattr(nearest, "_CROWD", 10)
    features = np.eye(60, dtype=np.float32)  # all equally far from each other
    check(features, place(features)[0], keep=9, engine=Engine(8, 8, plan=plan))


@pytest.mark.parametrize("plan", ["all pairs", "sweep"])
def test_lists_hold_the_nearest_by_their_own_distances(plan, rng):
    features = rng.normal(size=(400, 64))
    features *= 1 + 1e-7 * rng.normal(size=(400, 1))
    features /= np.linalg.norm(features, axis=1, keepdims=True)  # all almost equally far from the first
    features[0] = 0
    (points,) = place(features.astype(np.float32))
    lists = Neighborhood.from_points(points, [BallKind(3)], keep=20, engine=Engine(plan=plan)).lists
    sq = near_sq_distances(points.features, points.features, torch.zeros(399).long(), torch.arange(1, 400))
    assert lists.sq[0].tolist() == sq.sort().values[:20].tolist()
