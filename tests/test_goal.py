"""Which setting is best at what."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import genpr
from genpr.errors import UsageError
from genpr.goal import Goal

VALUES = [
    {"precision": 0.9, "recall": 0.1, "density": 2.0},
    {"precision": 0.8, "recall": 0.5, "density": 1.0},
    {"precision": 0.5, "recall": 0.8, "density": 0.6},
]


@pytest.fixture(scope="module")
def results():
    """A result with other values in it."""
    rng = np.random.default_rng(0)
    made = genpr.score(
        *rng.normal(size=(2, 30, 3)), metrics=["precision", "recall", "density"], control=False
    )
    return [
        replace(
            made, metrics={name: replace(made.metrics[name], value=number) for name, number in values.items()}
        )
        for values in VALUES
    ]


@pytest.mark.parametrize(
    ("goal", "best"),
    [
        (Goal(), 1),
        (Goal("f2"), 2),
        (Goal("f0.25"), 1),
        (Goal("precision"), 0),
        (Goal("precision", {"recall": 0.5}), 1),
        (Goal("precision", {"recall": 0.51}), 2),
        (Goal("f1", {"recall": 0.8, "precision": 0.5}), 2),
        (Goal("recall", {"f1": 0.615}), 2),
        (Goal("density", {"recall": 0.9}), None),
    ],
)
def test_the_best_for_a_goal(goal, best, results):
    assert goal.best(results) == best
    for order in itertools.permutations(results):
        place = goal.best(order)
        assert place is None if best is None else goal.maximize == "f1" or order[place] is results[best]


def test_the_first_of_equals_is_best(results):
    assert Goal("precision").best([results[1], results[0], results[0]]) == 1


def test_goals_are_said_in_words():
    assert str(Goal("precision", {"recall": 0.5})) == "highest precision with recall at least 0.5"
    assert str(Goal()) == "highest f1"


@pytest.mark.parametrize(
    ("goal", "says", "code"),
    [
        (
            Goal("coverage"),
            "coverage needs coverage, but computed are precision, recall, fid",
            "goal-not-computed",
        ),
        (Goal("recall", {"density": 1}), "density needs density", "goal-not-computed"),
        (Goal("fid"), "wants much of fid, which is a number of which less is better", "goal-not-higher"),
        (Goal("f1", {"fid": 3}), "wants much of fid", "goal-not-higher"),
        (Goal("pareto"), "no single number", "goal-not-higher"),
        (Goal("beauty"), "unknown", "unknown-metric"),
    ],
)
def test_goals_that_cannot_be_judged_are_refused(goal, says, code):
    with pytest.raises(UsageError, match=says) as error:
        goal.check(["precision", "recall", "fid"])
    assert error.value.code == code


def test_f_scores_need_precision_and_recall():
    with pytest.raises(UsageError, match="f1 needs precision, recall"):
        Goal().check(["density"])
