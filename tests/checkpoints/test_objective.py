"""Best settings and Pareto fronts of points with known answers."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.checkpoints.rank import pareto_front
from genpr.checkpoints.sweep import Objective, Sweep, SweepPoint
from genpr.errors import UsageError

VALUES = [
    {"precision": 0.9, "recall": 0.1, "density": 2.0},
    {"precision": 0.8, "recall": 0.5, "density": 1.0},
    {"precision": 0.5, "recall": 0.8, "density": 0.6},
]


def best(objective, results):
    """Index of the best of several results."""
    found = swept(results).best(objective)
    return None if found is None else found.setting


def contenders(objective, results):
    found = swept(results).contenders(objective)
    return None if found is None else tuple(point.setting for point in found)


def swept(results):
    return Sweep("psi", tuple(SweepPoint(index, result) for index, result in enumerate(results)))


@pytest.fixture(scope="module")
def results():
    """Results with given values."""
    rng = np.random.default_rng(0)
    made = genpr.score(*rng.normal(size=(2, 30, 3)), metrics=list(VALUES[0]), control=False)

    def with_values(values):
        metrics = {name: replace(made.metrics[name], value=value) for name, value in values.items()}
        return replace(made, metrics=metrics)

    return list(map(with_values, VALUES))


@pytest.mark.parametrize(
    ("objective", "expected"),
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
def test_best_setting_for_an_objective(objective, expected, results):
    assert best(objective, results) == expected
    assert best(Objective("precision"), [results[1], results[0], results[0]]) == 1
    for order in itertools.permutations(results):
        index = best(objective, order)
        right = None if expected is None else results[expected]
        assert index is None if right is None else objective.maximize == "f1" or order[index] is right


def test_objectives_need_no_other_metrics(results):
    alone = [replace(each, metrics={"density": each.metrics["density"]}) for each in results]
    assert best(Objective("density"), alone) == 0
    assert swept(alone).points[0].values == {"density": 2.0}
    with raising(UsageError, "not-computed"):
        best(Objective("density", {"f1": 0.1}), alone)


@pytest.fixture(scope="module")
def scored():
    """Scores of three generators on the same latents, two of them similar, and one with less variance."""
    rng = np.random.default_rng(4)
    real, latents = rng.normal(size=(2, 200, 4))
    evaluator = genpr.Evaluator(real, metrics=["precision", "recall", "fd"], control=False)
    return [evaluator.score(psi * latents) for psi in (0.4, 1.0, 0.98)]


@pytest.mark.parametrize(
    ("objective", "indices"),
    [
        (Objective(), (1, 2)),
        (Objective("recall"), (1, 2)),
        (Objective("precision"), (0,)),
        (Objective("precision", {"recall": 0.5}), (1, 2)),
        (Objective("recall", {"recall": 2.0}), ()),
    ],
)
def test_contenders_are_statistically_tied_with_the_best(objective, indices, scored):
    assert contenders(objective, scored) == indices
    assert contenders(objective, scored[::-1]) == tuple(2 - index for index in indices[::-1])


def test_contenders_need_replicates_and_comparable_results(scored):
    bare = {name: replace(metric, replicates=None) for name, metric in scored[1].metrics.items()}
    without_replicates = replace(scored[1], metrics=bare)
    assert contenders(Objective(), [scored[0], without_replicates]) is None
    assert contenders(Objective("precision", {"recall": 0.5}), [without_replicates, scored[2]]) is None
    assert contenders(Objective("precision", {"recall": 0.5}), [scored[0], scored[2]]) == (1,)
    fewer = replace(scored[2], fake=replace(scored[2].fake, n=199))
    assert contenders(Objective(), [scored[1], fewer]) is None
    assert contenders(Objective(), [scored[1], replace(scored[2], ties="strict")]) is None


def test_results_without_a_value_are_not_contenders(scored):
    without = {name: metric for name, metric in scored[1].metrics.items() if name != "fd"}
    rows = [replace(each, metrics={**each.metrics, "coverage": each.metrics["fd"]}) for each in scored]
    rows[1] = replace(scored[1], metrics=without, undefined=("coverage",))
    assert best(Objective("coverage"), rows) == 0
    assert best(Objective("recall", {"coverage": 0.0}), rows) == 2


@pytest.mark.parametrize(
    ("objective", "code"),
    [
        *[(each, "not-computed") for each in (Objective("coverage"), Objective("recall", {"density": 1}))],
        *[
            (each, "no-order")
            for each in (Objective("fid"), Objective("f1", {"fid": 3}), Objective("pareto"))
        ],
        (Objective("beauty"), "unknown-metric"),
    ],
)
def test_invalid_objectives_are_errors(objective, code):
    with raising(UsageError, code):
        objective.check(["precision", "recall", "fid"])


@pytest.mark.parametrize("seed", range(30))
def test_front_contains_all_points_that_are_not_dominated(seed):
    # Hundredths, coarse in half of the sets so that ties occur.
    drawn = np.random.default_rng(seed).integers(0, 5 + 96 * (seed % 2), (1 + seed % 9, 2)) / 100
    points = [tuple(point) for point in drawn.tolist()]
    front = pareto_front(points)
    dominated = [any(a >= r and b >= p and (a, b) != (r, p) for a, b in points) for r, p in points]
    assert sorted(front) == [index for index, is_dominated in enumerate(dominated) if not is_dominated]
    assert [points[index][0] for index in front] == sorted(points[index][0] for index in front)
