"""Front, area, knee and goals, on points whose answers follow by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genpr.errors import UsageError
from genpr.tradeoff import Goal, dominated_area, f_beta, knee, pareto_front

SHARES = st.floats(0, 1).map(lambda x: round(x, 2))
POINTS = st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=9)


def is_beaten(point, points):
    return any(all(np.array(other) >= point) and other != point for other in points)


@given(POINTS)
def test_the_front_holds_what_nothing_beats(points):
    front = pareto_front(points)
    assert sorted(front) == [place for place, point in enumerate(points) if not is_beaten(point, points)]
    recalls = [points[place][0] for place in front]
    assert recalls == sorted(recalls)


@given(POINTS)
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


@pytest.mark.parametrize(
    ("precision", "recall", "beta", "expected"),
    [(1, 1, 1, 1), (0.5, 1, 1, 2 / 3), (0, 0, 1, 0), (1, 0, 1, 0), (0.5, 1, 2, 5 / 6), (1, 0.5, 2, 5 / 9)],
)
def test_f_beta(precision, recall, beta, expected):
    assert f_beta(precision, recall, beta) == pytest.approx(expected)


VALUES = [
    {"precision": 0.9, "recall": 0.1, "f1": 0.18, "density": 2.0},
    {"precision": 0.8, "recall": 0.5, "f1": 0.615, "density": 1.0},
    {"precision": 0.5, "recall": 0.8, "f1": 0.615, "density": 0.6},
]


@pytest.mark.parametrize(
    ("goal", "best"),
    [
        (Goal(), 1),
        (Goal("precision"), 0),
        (Goal("precision", {"recall": 0.5}), 1),
        (Goal("precision", {"recall": 0.51}), 2),
        (Goal("f1", {"recall": 0.8, "precision": 0.5}), 2),
        (Goal("density", {"recall": 0.9}), None),
    ],
)
def test_the_best_for_a_goal(goal, best):
    assert goal.best(VALUES) == best
    assert all(goal.best(list(order)) is None for order in itertools.permutations(VALUES)) == (best is None)


def test_goals_are_said_in_words():
    assert str(Goal("precision", {"recall": 0.5})) == "highest precision with recall at least 0.5"
    assert str(Goal()) == "highest f1"


def test_goals_that_cannot_be_judged_are_refused():
    computed = ["precision", "recall", "fid"]
    Goal().check(computed)
    Goal("recall", {"precision": 0.1}).check(computed)
    with pytest.raises(UsageError, match="the goal needs density, but computed are precision") as error:
        Goal("density").check(computed)
    assert error.value.code == "goal-not-computed"
    with pytest.raises(UsageError, match="needs precision, recall"):
        Goal().check(["density"])
    with pytest.raises(UsageError, match="wants much of fid, of which lower is better") as error:
        Goal("f1", {"fid": 3}).check(computed)
    assert error.value.code == "goal-not-higher"
