"""Front, area and knee, on points whose answers follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from genpr.checkpoints.criterion import dominated_area, knee, pareto_front

# Hundredths, coarse in half of the sets so that ties occur.
SETS = [
    [
        tuple(map(float, point))
        for point in np.random.default_rng(seed).integers(0, 5 + 96 * (seed % 2), (1 + seed % 9, 2)) / 100
    ]
    for seed in range(30)
]


def is_beaten(point, points):
    return any(all(np.array(other) >= point) and other != point for other in points)


@pytest.mark.parametrize("points", SETS)
def test_the_front_holds_what_nothing_beats(points):
    front = pareto_front(points)
    assert sorted(front) == [place for place, point in enumerate(points) if not is_beaten(point, points)]
    recalls = [points[place][0] for place in front]
    assert recalls == sorted(recalls)


@pytest.mark.parametrize("points", SETS)
def test_the_area_is_that_of_all_that_some_point_reaches(points):
    # On a grid of hundredths the area is the share of cells whose upper corner is reached.
    corners = np.arange(1, 101) / 100 - 1e-9
    recall, precision = np.meshgrid(corners, corners)
    reached = np.zeros_like(recall, dtype=bool)
    for r, p in points:
        reached |= (recall <= r) & (precision <= p)
    assert dominated_area(points) == pytest.approx(reached.mean(), abs=1e-9)


def test_area_by_hand():
    assert dominated_area([(0.5, 0.8)]) == pytest.approx(0.4)
    assert dominated_area([(0.5, 0.8), (1.0, 0.2), (0.4, 0.7)]) == pytest.approx(0.5)
    assert dominated_area([(1.0, 1.0), (0.3, 0.3)]) == 1


def test_the_knee_bulges_most():
    points = [(0.0, 1.0), (0.5, 0.95), (0.7, 0.8), (0.9, 0.3), (1.0, 0.0)]
    assert knee(points) == 2
    assert knee(points[::-1]) == 2
    assert knee([(0.0, 0.5), (0.45, 0.475), (0.7, 0.4), (1.0, 0.0)]) == 2, "both axes count alike"


@pytest.mark.parametrize(
    "points",
    [[(0.5, 0.5)], [(0.2, 0.8), (0.8, 0.2)], [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)], [(0.5, 0.5), (0.5, 0.5)]],
)
def test_without_a_bulge_there_is_no_knee(points):
    assert knee(points) is None
