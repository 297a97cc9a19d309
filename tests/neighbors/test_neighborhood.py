from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch
from placements import ENGINES, combinations, place, truth

from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import Neighborhood, sq_radii_of
from genpr.neighbors.engine import Engine

BALLS = (Ball(1), Ball(3), Ball(5), Ball(3, clipped=True), Ball(5, clipped=True))
TIES = ("closed", "strict")


def sq_radii(features: np.ndarray, ball: Ball) -> np.ndarray:
    radii = oracle.kth_sq_distances(features, [ball.k])[0]
    if not ball.clipped:
        return radii
    low, high = sorted(radii)[(len(radii) - 1) // 2], sorted(radii)[len(radii) // 2]
    return np.minimum(radii, low if low == high else ((np.sqrt(low) + np.sqrt(high)) / 2) ** 2)


def in_degrees(sq: np.ndarray, ball: Ball, largest: float, ties: str) -> list[int]:
    """Each row left out in turn, the balls of the others drawn without it."""
    degrees = []
    for row in range(len(sq)):
        others = np.delete(np.delete(sq, row, axis=0), row, axis=1)
        np.fill_diagonal(others, np.inf)
        radii = np.sort(others, axis=1)[:, ball.k - 1]
        radii = np.minimum(radii, largest) if ball.clipped else radii
        to_row = np.delete(sq[row], row)
        degrees.append(int((to_row <= radii if ties == "closed" else to_row < radii).sum()))
    return degrees


def check(features: np.ndarray, points, *, keep: int, engine=None) -> None:
    sq = oracle.sq_distances(features, features)
    others = np.sort(np.where(np.eye(len(sq), dtype=bool), np.inf, sq), axis=1)
    for ties in TIES:
        found = Neighborhood.of(points, BALLS, ties=ties, keep=keep, engine=engine)
        for ball, radii, degrees in zip(BALLS, found.sq_radii, found.in_degrees, strict=True):
            expected = sq_radii(features, ball)
            assert radii.tolist() == expected.tolist()
            assert degrees.tolist() == in_degrees(sq, ball, expected.max(), ties)
        lists = found.lists
        assert lists.length == min(keep, len(features) - 1)
        np.testing.assert_allclose(lists.sq, others[:, : lists.length], rtol=1e-5, atol=1e-30)
        listed = np.take_along_axis(sq, lists.index.numpy(), axis=1)
        np.testing.assert_allclose(lists.sq, listed, rtol=1e-5, atol=1e-30)
        assert all(len({i, *row}) == lists.length + 1 for i, row in enumerate(lists.index.tolist()))


@pytest.mark.parametrize(("case", "kind", "engine"), combinations(2))
def test_everything_is_the_oracles(case, kind, engine):
    expected = truth(case)
    x, y = place(expected.real, expected.fake, kind=kind)
    for features, points in ((expected.real, x), (expected.fake, y)):
        check(features, points, keep=9, engine=ENGINES[engine])


engines = pytest.mark.parametrize("engine", [Engine(8, 8), ENGINES["direct"]], ids=["bounded", "direct"])


@engines
@pytest.mark.parametrize("keep", [0, 1, 64, 1000])
def test_any_number_of_neighbors_can_be_kept(keep, engine):
    expected = truth("off_center")
    check(expected.real, place(expected.real)[0], keep=keep, engine=engine)


@engines
@pytest.mark.parametrize("copies", [4, 6, 7, 40])
def test_copies_lie_in_the_balls_of_each_other(rng, copies, engine):
    features = rng.integers(0, 4, (60, 3)).astype(np.float32)
    features[rng.permutation(60)[:copies]] = features[0]
    features[0, features[0] == 0] = -0.0
    (points,) = place(features)
    check(features, points, keep=5, engine=engine)


def test_equal_distances_are_equal_in_the_lists(rng):
    features = rng.integers(-3, 4, (50, 40)).astype(np.float32)
    (points,) = place(features)
    sq = Neighborhood.of(points, [Ball(1)], keep=49).lists.sq
    assert sq.tolist() == np.sort(oracle.sq_distances(features, features), axis=1)[:, 1:].tolist()


def test_a_median_radius_leaves_points_on_its_sphere():
    sq = torch.tensor([2.0, 3.0, 3.0, 5.0], dtype=torch.float64)
    assert sq_radii_of(Ball(1, clipped=True), sq).tolist() == [2.0, 3.0, 3.0, 3.0]
    sq = torch.tensor([1.0, 9.0, 4.0, 16.0], dtype=torch.float64)
    assert sq_radii_of(Ball(1, clipped=True), sq).tolist() == [1.0, 6.25, 4.0, 6.25]
    assert sq_radii_of(Ball(1), sq).tolist() == [1.0, 9.0, 4.0, 16.0]
