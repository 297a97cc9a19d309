"""Rankings of checkpoints by an F-score, a metric or the Pareto front, with simultaneous bounds."""

import json
from dataclasses import replace

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.checkpoints.rank import rank_checkpoints, rank_results
from genpr.errors import DataError, UsageError
from genpr.evaluation.compare import compare
from genpr.metrics.f_beta import f_beta
from genpr.report.compare_tables import ranking_table

N = 200


@pytest.fixture(scope="module")
def real():
    return np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def fakes():
    rng = np.random.default_rng(1)
    noisy = rng.normal(size=(N, 4))
    noisy[: N // 2] *= 6
    return {
        "narrow": 0.2 * rng.normal(size=(N, 4)),
        "good": rng.normal(size=(N, 4)),
        "alike": rng.normal(size=(N, 4)),
        "noisy": noisy,
        "far": 20 + 0.1 * rng.normal(size=(N, 4)),
    }


@pytest.fixture(scope="module")
def evaluator(real):
    return genpr.Evaluator(real, control=False)


@pytest.fixture(scope="module")
def results(evaluator, fakes):
    return {name: evaluator.score(fake) for name, fake in fakes.items()}


def with_value(result, metric, value, **changed):
    found = replace(result.metrics[metric], value=value, **changed)
    return replace(result, metrics={**result.metrics, metric: found})


def names(ranking):
    return [each.name for each in ranking.entries]


@pytest.mark.parametrize(("by", "beta"), [("f1", 1.0), ("f0.5", 0.5), ("f2", 2.0), ("f8", 8.0)])
def test_f_score_ranks_by_precision_and_recall(results, by, beta):
    ranking = rank_results(results, by=by)
    expected = {name: f_beta(each["precision"], each["recall"], beta) for name, each in results.items()}
    assert names(ranking) == sorted(expected, key=expected.get, reverse=True)
    assert [each.rank for each in ranking.entries] == [1, 2, 3, 4, 5]
    for each in ranking.entries:
        assert each.value == expected[each.name]
        assert each.difference == each.value - expected[ranking.winner]
        assert each.value in each.interval
    for each in rank_results(results, by="coverage").entries:
        found = results[each.name].metrics["coverage"]
        assert (each.value, (each.interval.low, each.interval.high)) == (found.value, found.interval)
    assert (ranking.better, ranking.has_bounds) == ("higher", True)


def test_two_checkpoints_are_distinguished_as_by_compare(results):
    for other in ("alike", "narrow", "noisy"):
        pair = {name: results[name] for name in ("good", other)}
        for metric in ("precision", "recall", "density", "coverage"):
            ranking, contrast = rank_results(pair, by=metric), compare(pair).contrast(other, metric)
            loser = ranking.entries[1]
            sign = 1 if loser.name == other else -1
            assert loser.difference == pytest.approx(sign * contrast.value)
            half = (contrast.interval.high - contrast.interval.low) / 2
            assert (loser.bounds.high - loser.bounds.low) / 2 == pytest.approx(half)
            assert loser.is_contender is (contrast.verdict == "not distinguishable")


def test_equal_generators_are_contenders_and_bad_ones_are_not(results):
    ranking = rank_results(results)
    assert set(ranking.contenders) == {"good", "alike"}
    assert ranking["far"].bounds.high < 0
    assert 0 in ranking["alike"].bounds or 0 in ranking["good"].bounds


def test_bounds_of_distances_hold_how_much_larger_they_are(real, fakes):
    ranking = rank_checkpoints(genpr.Evaluator(real, metrics=["fd"], control=False), fakes, by="fd")
    assert ranking["narrow"].bounds.low > 0
    assert all(each.difference in each.bounds for each in ranking.entries[1:])


def test_distances_rank_ascending_and_without_intervals_have_no_bounds(real, fakes):
    evaluator = genpr.Evaluator(real, metrics=["fd"], control=False, intervals=False)
    ranking = rank_checkpoints(evaluator, fakes, by="fd")
    values = [each.value for each in ranking.entries]
    assert values == sorted(values)
    assert ranking.better == "lower"
    assert {each.difference >= 0 for each in ranking.entries} == {True}
    with pytest.raises(KeyError):
        ranking["missing"]
    assert {(each.bounds, each.is_contender, each.interval) for each in ranking.entries} == {(None,) * 3}
    assert (ranking.has_bounds, ranking.contenders) == (False, ())
    assert ranking.remarks[0].startswith("no bounds: ")
    assert "no confidence bounds" in ranking.summary


def test_pareto_rank_counts_dominating_checkpoints(results):
    middle = with_value(with_value(results["good"], "precision", 0.5), "recall", 0.5)
    layers = rank_results({"low": results["far"], "middle": middle, "high": results["good"]}, by="pareto")
    assert [(each.name, each.rank) for each in layers.entries] == [("high", 1), ("middle", 2), ("low", 3)]
    lines = ranking_table(layers).splitlines()[4:7]
    assert [line.partition("0.")[0].split() for line in lines] == [
        ["1", "*", "high"],
        ["2", "middle"],
        ["3", "low"],
    ]
    assert [line.partition("   ")[2].split("  ")[-1] for line in lines[1:]] == ["high", "middle, high"]
    ranking = rank_results(results, by="pareto")
    pairs = {name: (each["precision"], each["recall"]) for name, each in results.items()}
    for each in ranking.entries:
        dominating = {
            name
            for name, pair in pairs.items()
            if pair != pairs[each.name] and all(a >= b for a, b in zip(pair, pairs[each.name], strict=True))
        }
        assert set(each.dominated_by) == dominating
        assert (each.rank == 1) is (not dominating)
        assert (each.value, each.interval, each.difference, each.bounds) == (None,) * 4
    assert ranking["narrow"].rank == 1
    assert "far" not in ranking.contenders
    assert {"narrow", "good", "alike"} <= set(ranking.contenders)


@pytest.mark.parametrize(
    ("by", "code"),
    [
        *[("f0", "bad-beta"), ("rarity", "no-order"), ("fid", "not-computed")],
        *[(by, "unknown-metric") for by in ("best", "", "f1_8")],
    ],
)
def test_metrics_that_cannot_rank_are_errors(results, evaluator, by, code):
    with raising(UsageError, code):
        rank_results(results, by=by)
    with raising(UsageError, code):
        rank_checkpoints(evaluator, {"a": None}, by=by)  # before anything is scored


def test_checkpoint_without_a_value_is_last_and_has_no_rank(results):
    good = results["good"]
    metrics = {name: each for name, each in good.metrics.items() if name != "coverage"}
    without = replace(good, metrics=metrics, undefined=("coverage",))
    ranking = rank_results({"none": without, **results}, by="coverage")
    last = ranking.entries[-1]
    assert (last.name, last.rank, last.value, last.is_contender, last.difference) == ("none", *(None,) * 4)
    assert "coverage has no value with these images: none" in ranking.remarks
    assert ranking.has_bounds
    assert "none" not in ranking.contenders
    with raising(DataError, "undefined"):
        rank_results({"none": without}, by="coverage")


def test_results_of_different_recipes_are_errors(results, real, fakes):
    other = genpr.score(real, fakes["alike"], k=4, control=False)
    with raising(DataError, "not-alike"):
        rank_results({**results, "other": other})
    special = with_value(results["good"], "coverage", 0.5, variant="special")  # which is not ranked by
    assert rank_results({"good": special, "narrow": results["narrow"]}, by="f1").has_bounds
    forced = rank_results({**results, "other": other}, force=True)
    assert any("k of precision is 4" in remark for remark in forced.remarks)
    assert not forced.has_bounds
    assert forced.remarks[-1].startswith("no bounds: ")


def test_different_reals_are_an_error_and_if_forced_bounds_are_unpaired(results, fakes):
    other_real = np.random.default_rng(9).normal(size=(N, 4)).astype(np.float32)
    other = genpr.score(other_real, fakes["alike"], control=False)
    pair = {"good": results["good"], "other": other}
    with pytest.raises(DataError, match="the real set of other"):
        rank_results(pair)
    ranking = rank_results(pair, by="recall", force=True)
    contrast = compare(pair, force=True).contrast("other", "recall")
    assert contrast.pairing == "unpaired"
    bounds = ranking.entries[1].bounds
    assert bounds.high - bounds.low == pytest.approx(contrast.interval.high - contrast.interval.low)


def test_unequal_numbers_of_fakes_are_an_error(evaluator, fakes):
    sets = {"a": fakes["good"], "b": fakes["alike"][:150], "c": fakes["narrow"]}
    with raising(DataError, "not-alike", "150 fake images in b, 200 in a"):
        rank_checkpoints(evaluator, sets)
    ranking = rank_checkpoints(evaluator, sets, force=True)
    assert any("150 fake images in b" in remark for remark in ranking.remarks)
    assert ranking.has_bounds


@pytest.mark.parametrize(
    ("checkpoints", "code"),
    [
        ({}, "no-checkpoints"),
        *[(each, "bad-checkpoints") for each in ("folder", [np.zeros((5, 4))], ["a.npy", "./a.npy"])],
    ],
    ids=str,
)
def test_checkpoints_without_unique_names_are_errors(evaluator, checkpoints, code):
    with raising(UsageError, code):
        rank_checkpoints(evaluator, checkpoints)
    with pytest.raises(UsageError, match="at least one"):
        rank_results({})


def test_single_and_equal_checkpoints_are_contenders(results):
    twice = {"a": results["narrow"], "b": results["good"], "c": results["good"], "d": results["far"]}
    ranking = rank_results(twice)
    assert [(each.name, each.rank) for each in ranking.entries] == [("b", 1), ("c", 1), ("a", 3), ("d", 4)]
    assert set(ranking.contenders) == {"b", "c"}
    assert ranking.summary.startswith("b and c are first by f1")
    for by in ("f1", "pareto"):
        ranking = rank_results({"good": results["good"]}, by=by)
        assert (ranking.winner, ranking.contenders) == ("good", ("good",))
        equal = rank_results({"a": results["good"], "b": results["good"]}, by=by)
        assert [each.rank for each in equal.entries] == [1, 1]
        assert equal.contenders == ("a", "b")
        record = json.loads(rank_results(results, by=by).to_json())
        assert [each["name"] for each in record["checkpoints"]] == list(record["results"])
    assert rank_results(results) == rank_results(results, by="f1")
