"""Which setting is best at what; front and area, on points whose answers follow by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.checkpoints.criterion import pareto_front
from genpr.checkpoints.rank import Objective
from genpr.errors import UsageError

VALUES = [
    {"precision": 0.9, "recall": 0.1, "density": 2.0},
    {"precision": 0.8, "recall": 0.5, "density": 1.0},
    {"precision": 0.5, "recall": 0.8, "density": 0.6},
]


@pytest.fixture(scope="module")
def results():
    """A result with other values in it."""
    rng = np.random.default_rng(0)
    made = genpr.score(*rng.normal(size=(2, 30, 3)), metrics=list(VALUES[0]), control=False)

    def with_values(values):
        metrics = {name: replace(made.metrics[name], value=value) for name, value in values.items()}
        return replace(made, metrics=metrics)

    return list(map(with_values, VALUES))


@pytest.mark.parametrize(
    ("objective", "best"),
    [
        (Objective(), 1),
        (Objective("f2"), 2),
        (Objective("f0.25"), 1),
        (Objective("precision"), 0),
        (Objective("precision", {"recall": 0.5}), 1),
        (Objective("precision", {"recall": 0.51}), 2),
        (Objective("f1", {"recall": 0.8, "precision": 0.5}), 2),
        (Objective("recall", {"f1": 0.615}), 2),
        (Objective("density", {"recall": 0.9}), None),
    ],
)
def test_the_best_for_an_objective(objective, best, results):
    assert objective.best(results) == best
    assert Objective("precision").best([results[1], results[0], results[0]]) == 1
    for order in itertools.permutations(results):
        place = objective.best(order)
        assert place is None if best is None else objective.maximize == "f1" or order[place] is results[best]


@pytest.fixture(scope="module")
def scored():
    """Three generators on the same latents, two of them alike, and one that is shrunken."""
    rng = np.random.default_rng(4)
    real, latents = rng.normal(size=(2, 200, 4))
    evaluator = genpr.Evaluator(real, metrics=["precision", "recall", "fd"], control=False)
    return [evaluator.score(psi * latents) for psi in (0.4, 1.0, 0.98)]


@pytest.mark.parametrize(
    ("objective", "places"),
    [
        (Objective(), (1, 2)),
        (Objective("recall"), (1, 2)),
        (Objective("precision"), (0,)),
        (Objective("precision", {"recall": 0.5}), (1, 2)),
        (Objective("recall", {"recall": 2.0}), ()),
    ],
)
def test_who_cannot_be_told_from_the_best(objective, places, scored):
    assert objective.contenders(scored) == places
    assert objective.contenders(scored[::-1]) == tuple(2 - place for place in places[::-1])


def test_without_replicates_or_alike_results_nothing_is_claimed(scored):
    bare = {name: replace(metric, replicates=None) for name, metric in scored[1].metrics.items()}
    silent = replace(scored[1], metrics=bare)
    assert Objective().contenders([scored[0], silent]) is None
    assert Objective("precision", {"recall": 0.5}).contenders([silent, scored[2]]) is None
    assert Objective("precision", {"recall": 0.5}).contenders([scored[0], scored[2]]) == (1,)
    fewer = replace(scored[2], fake=replace(scored[2].fake, n=199))
    assert Objective().contenders([scored[1], fewer]) is None
    assert Objective().contenders([scored[1], replace(scored[2], ties="strict")]) is None


def test_what_has_no_value_is_out(scored):
    without = {name: metric for name, metric in scored[1].metrics.items() if name != "recall"}
    results = [scored[0], replace(scored[1], metrics=without, undefined=("recall",)), scored[2]]
    assert Objective("recall").best(results) == 2
    assert Objective("recall").contenders(results) == (2,)


@pytest.mark.parametrize(
    ("objective", "code"),
    [
        (Objective("coverage"), "not-computed"),
        (Objective("recall", {"density": 1}), "not-computed"),
        (Objective("fid"), "no-order"),
        (Objective("f1", {"fid": 3}), "no-order"),
        (Objective("pareto"), "no-order"),
        (Objective("beauty"), "unknown-metric"),
    ],
)
def test_objectives_that_cannot_be_met_are_refused(objective, code):
    with raising(UsageError, code):
        objective.check(["precision", "recall", "fid"])


@pytest.mark.parametrize("seed", range(30))
def test_the_front_is_of_all_that_nothing_beats(seed):
    # Hundredths, coarse in half of the sets so that ties occur.
    drawn = np.random.default_rng(seed).integers(0, 5 + 96 * (seed % 2), (1 + seed % 9, 2)) / 100
    points = [tuple(point) for point in drawn.tolist()]
    front = pareto_front(points)
    beaten = [any(a >= r and b >= p and (a, b) != (r, p) for a, b in points) for r, p in points]
    assert sorted(front) == [place for place, is_beaten in enumerate(beaten) if not is_beaten]
    assert [points[place][0] for place in front] == sorted(points[place][0] for place in front)
