"""The control: one half of the reals scored against the other."""

import json

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.evaluation import evaluator, reference
from genpr.evaluation.result import result_of
from genpr.features.options import EmbedOptions
from genpr.features.source_features import FROM_FILE, Embedder, open_input, source_features
from genpr.metrics.metric import Control
from genpr.metrics.registry import BALLS, METRICS

SOME = ["precision", "recall", "density", "coverage", "clipped_density", "authenticity", "fd", "vendi"]


def halves_of(features, seed=0):
    embedder = Embedder(EmbedOptions(device="cpu", seed=seed))
    side = source_features(open_input(features, "real"), "real", embedder, [FROM_FILE], minimum=1)
    return [half[FROM_FILE].features.numpy() for half in side.halves()]


@pytest.mark.parametrize("n", [40, 41])
def test_halves_are_a_random_partition(rng, n):
    features = rng.normal(size=(n, 3)).astype(np.float32)
    first, second = halves_of(features)
    assert (len(first), len(second)) == (n - n // 2, n // 2)
    together = np.concatenate([first, second])
    assert sorted(together.tolist()) == sorted(features.tolist())
    assert together.tolist() != features.tolist()
    assert [half.tolist() for half in halves_of(features)] == [first.tolist(), second.tolist()]
    shuffled = halves_of(rng.permutation(features), seed=1)
    assert [sorted(half.tolist()) for half in shuffled] == [sorted(first.tolist()), sorted(second.tolist())]


@pytest.mark.parametrize(("limit", "most"), [(5, 9), (9, 5)])
def test_the_smaller_of_two_limits_applies(rng, limit, most):
    opened = open_input(rng.normal(size=(20, 3)).astype(np.float32), "real")
    embedder = Embedder(EmbedOptions(device="cpu", max_images=most))
    assert source_features(opened, "real", embedder, [FROM_FILE], minimum=1, limit=limit).n == 5


def test_the_control_is_the_score_of_one_half_against_the_other(rng):
    real, fake = rng.normal(size=(61, 4)).astype(np.float32), rng.normal(2, 1, (50, 4)).astype(np.float32)
    control = genpr.score(real, fake, metrics=SOME).control
    alone = genpr.score(*halves_of(real), metrics=SOME, intervals=False, control=False)
    assert (control.n_real, control.n_fake) == (31, 30)
    assert control.values == {name: value.value for name, value in alone.metrics.items()}
    assert control.nulls == {name: value.null for name, value in alone.metrics.items()}
    assert set(control.values) == set(SOME)


def test_control_depends_only_on_the_content_of_the_reals_and_is_computed_once(rng, monkeypatch):
    real = rng.normal(size=(50, 4))
    found, control_of = [], reference.control_of
    monkeypatch.setattr(reference, "control_of", lambda *args: found.append(control_of(*args)) or found[-1])
    fitted = genpr.Evaluator(real)
    one, other = (fitted.score(fake) for fake in rng.normal(size=(2, 60, 4)))
    assert one.control == other.control == found[0]
    assert len(found) == 1
    assert genpr.score(real, rng.normal(size=(30, 4))).control == one.control
    assert genpr.score(rng.permutation(real), rng.normal(size=(30, 4)), seed=5).control == one.control
    assert one.seconds["control"] == other.seconds["control"] > 0


LEAST = {  # reals and fakes without which a metric is undefined
    "precision": (4, 2),
    "recall": (2, 4),
    "coverage": (6, 2),
    "clipped_density": (6, 2),
    "complement_precision": (2, 6),
    "symmetric_recall": (6, 6),
    "authenticity": (3, 2),
    "nn_accuracy": (2, 2),
    "rarity": (4, 2),
    "witnessed_diversity": (21, 21),
    "fd": (2, 2),
}


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("side", [0, 1])
def test_too_few_images_are_an_error_before_anything_is_computed(rng, name, side, monkeypatch):
    monkeypatch.setattr(reference, "Reference", lambda *_, **__: pytest.fail("computed"))
    monkeypatch.setattr(evaluator, "Reference", lambda *_, **__: pytest.fail("computed"))
    sizes = [*LEAST[name]]
    sizes[side] -= 1
    with raising(genpr.DataError, "too-few-images"):
        genpr.score(*(rng.normal(size=(n, 2)) for n in sizes), metrics=[name])


@pytest.fixture(scope="module")
def everything():
    real = np.random.default_rng(0).normal(size=(60, 4))
    return genpr.score(real, np.concatenate([real[:50] + 0.3, real[:3]]), metrics="all")


def test_control_is_the_null_of_metrics_without_another(everything):
    for name in ("fd", "kd", "vendi"):
        metric = everything.metrics[name]
        assert (metric.null, metric.null_source) == (everything.control.values[name], "real halves")
        assert metric.relative is None, "it is of other sizes"


def test_result_round_trips_through_json(everything):
    again = result_of(json.loads(everything.to_json()))
    assert again == everything
    assert isinstance(again.control, Control)
    precision = again.metrics["precision"]
    assert (type(precision.interval), type(precision.replicates)) == (tuple, tuple)
    assert len(precision.replicates) == 100
    assert precision.relative == everything.metrics["precision"].relative
    assert again.fingerprint == everything.fingerprint


def test_interval_contains_its_value(everything):
    with_one = {name: each for name, each in everything.metrics.items() if each.interval}
    assert set(with_one) == {name for name, each in everything.metrics.items() if each.replicates}
    of_balls = {name for name, metric in BALLS.items() if metric.halves}
    assert set(with_one) == of_balls | {"fd", "kd", "mind"}
    for name, each in with_one.items():
        low, high = each.interval
        assert low <= each.value <= high, name
        assert low >= 0 or name == "kd", name  # whose unbiased estimate may be negative
        assert low < high <= (np.inf if METRICS[name].upper is None else 1), name


def test_every_metric_has_a_value_or_is_undefined(everything, rng):
    own = {name for name, info in METRICS.items() if info.extractor is None and info.kind != "held-out"}
    assert {*everything.metrics, *everything.undefined} == own
    real = rng.normal(size=(60, 4))
    result = genpr.score(real, real + 100, metrics=["precision", "rarity"])
    assert result.undefined == ("rarity",)
    assert "rarity" not in result.metrics
    assert "rarity" in result.control.values
    assert result_of(json.loads(result.to_json())) == result
