"""The page of several results: intervals of differences, rankings and plots."""

import re
from dataclasses import replace
from unittest.mock import Mock

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from page_results import HOSTILE, a_result, a_scored, a_side, elements, pair, section, text_of

from genpr.checkpoints.rank import rank_results
from genpr.checkpoints.sweep import Objective, Sweep, SweepPoint
from genpr.errors import UsageError
from genpr.evaluation.compare import compare
from genpr.report.compare_page import compare_report, lines_of, nulls_of
from genpr.report.compare_tables import ranking_table, side_by_side_table
from genpr.report.plots import metric_curve, plane, sweep_plot

EVEN = {"precision": 0.8, "recall": 0.8}


def summary_of(results, **options):
    return section(compare_report(compare(results, **options)), "summary")


def test_table_marks_distinguishable_differences():
    results = pair({"precision": 0.6, "recall": 0.8}, {"precision": 0.7, "recall": 0.8005})
    comparison = compare(results)
    numbers = section(compare_report(comparison), "numbers")
    for metric, word in (("precision", "higher (better)"), ("recall", "not distinguishable")):
        known = comparison.contrast("b.json", metric)
        half = (known.interval.high - known.interval.low) / 2
        assert f"+{known.value:.4f} ± {half:.4f} {word}" in numbers
    assert re.search(r"^precision +\+.* higher \(better\)$", side_by_side_table(comparison), re.MULTILINE)
    first, other = lines_of(comparison)
    assert not any(cell.below or cell.verdict for cell in first["cells"])
    assert [cell.verdict for cell in other["cells"]] == ["higher", "not distinguishable"]
    low, high = results["b.json"].metrics["precision"].interval
    assert other["cells"][0].interval == f"{low:.4f}, {high:.4f}"


@pytest.mark.parametrize(
    ("metric", "first", "other", "verdict", "quality"),
    [
        ("precision", 0.7, 0.5, "lower", "worse"),
        ("density", 4.0, 1.2, "lower", ""),  # both beyond a perfect generator
        ("density", 4.0, 0.5, "lower", "worse"),
        ("density", 0.5, 4.0, "higher", "better"),
        ("authenticity", 0.4, 0.8, "higher", ""),  # best at its null
        ("fid", 0.4, 0.8, "higher", "worse"),
        ("fid", 0.8, 0.4, "lower", "better"),
    ],
)
def test_better_and_worse_follow_the_direction_of_the_metric(metric, first, other, verdict, quality):
    (cell,) = lines_of(compare(pair({metric: first}, {metric: other}, nulls={metric: 1.0})))[1]["cells"]
    assert (cell.verdict, cell.quality) == (verdict, quality)


def test_ranking_shows_the_null_of_its_criterion_if_all_checkpoints_have_the_same():
    results = pair({"precision": 0.5, "recall": 0.5}, {"precision": 0.7, "recall": 0.4})
    values = {"f1": 0.9, "recall": 0.9, "precision": 0.9}
    for by, null in values.items():
        assert f"{by} of a perfect generator: {null:.4f}" in ranking_table(rank_results(results, by=by))
    other = a_scored(EVEN, nulls={"precision": 0.9, "recall": 0.8})
    table = ranking_table(rank_results({**results, "b.json": other}))
    assert "perfect generator" not in table
    unknown = {
        name: replace(result, metrics={key: replace(each, null=None) for key, each in result.metrics.items()})
        for name, result in results.items()
    }
    assert "perfect generator" not in ranking_table(rank_results(unknown))


def test_nulls_are_shown_if_they_are_equal():
    results = pair(EVEN, EVEN)
    assert nulls_of(compare(results)) == ["0.9000"] * 2
    other = a_scored(EVEN, nulls={"precision": 0.9, "recall": 0.8})
    assert nulls_of(compare({**results, "b.json": other})) == ["0.9000", "–"]


def test_every_result_has_a_row_a_summary_and_its_own_warnings():
    names = [*HOSTILE[:4], *(f"step-{step}" for step in range(8))]
    results = {
        name: a_scored(EVEN, seed=seed, codes=["shrinkage"] * (seed == 5)) for seed, name in enumerate(names)
    }
    page = compare_report(compare(results))
    assert (
        len([each for each in elements(page, "tr") if "step-7" in text_of(each)]) == 2
    )  # values and ranking
    assert "12 step-7" in section(page, "figures")
    assert len(elements(page, "details")) == 12
    assert "step-1:" in section(page, "warnings")
    (heading,) = elements(page, "h1")
    assert text_of(heading) == f"{HOSTILE[0]} and 11 other results"
    (heading,) = elements(compare_report(compare(pair({"coverage": 0.5}, {"coverage": 0.5}))), "h1")
    assert text_of(heading) == "b.json against a.json"


@pytest.mark.parametrize("n", [2, 3])
def test_copies_of_reals_come_first_in_the_summary(n):
    levels = {"a": 0.6, "b": 0.9, "c": 0.3}
    results = {
        name: a_scored(
            {"precision": level, "recall": level}, seed=seed, codes=["copied-reals"] * (name == "b")
        )
        for seed, (name, level) in enumerate(list(levels.items())[:n])
    }
    results["b"] = replace(results["b"], n_shared=500)
    assert summary_of(results).startswith("Summary The values of b are not reliable")


def test_summary_of_three_is_that_of_the_ranking():
    results = {
        "a": a_scored({"precision": 0.5, "recall": 0.5}),
        "b": a_scored({"precision": 0.8, "recall": 0.8}, seed=2),
        "c": a_scored({"precision": 0.799, "recall": 0.799}, seed=3),
    }
    page = compare_report(compare(results))
    assert rank_results(results).summary in section(page, "summary")
    ranking = section(page, "details")
    assert all(row in ranking for row in ("1 * b 0.7200", "2 * c 0.7191", "3 a 0.4500"))


def test_ranking_is_by_the_requested_metric():
    results = pair({"precision": 0.9, "recall": 0.3}, {"precision": 0.5, "recall": 0.8})
    by_precision, by_f1 = (compare_report(compare(results), by=by) for by in ("precision", "f1"))
    assert "1 * a.json 0.2700 0.8100" in section(by_precision, "details")
    assert "1 * b.json 0.4500 0.7200 0.5538" in section(by_f1, "details")
    with pytest.raises(UsageError):
        compare_report(compare(results), by="pareto")


def test_results_of_different_recipes_are_shown_with_differences_and_not_ranked():
    results = pair(EVEN, {"precision": 0.4, "recall": 0.4})
    other = replace(a_side("other"), content="e" * 64, order="f" * 64)
    results["b.json"] = replace(results["b.json"], real=other)
    page = compare_report(compare(results, force=True))
    assert "the real set of b.json (other) differs from that of a.json" in section(page, "unlike")
    assert section(page, "details") is None
    assert page.index('id="unlike"') < page.index('id="summary"')


def test_metrics_of_different_variants_are_not_subtracted():
    results = pair(EVEN, {"precision": 0.4, "recall": 0.4})
    recall = replace(results["b.json"].metrics["recall"], k=7)
    results["b.json"] = replace(results["b.json"], metrics={**results["b.json"].metrics, "recall": recall})
    precision, recall = lines_of(compare(results, force=True))[1]["cells"]
    assert precision.verdict == "lower"
    assert (recall.below, recall.verdict, recall.quality) == ((), "not the same metric", "")


def test_precision_recall_plot_numbers_the_results_and_draws_the_front():
    results = [(1, a_result(EVEN)), (3, a_result({"precision": 0.9, "recall": 0.3}))]
    svg = plane(results)
    assert "1: precision 0.720, recall 0.720; 3: precision 0.810, recall 0.270" in svg
    assert len(re.findall(r">3</text>", svg)) == 1
    near = [(number, a_result({"precision": 0.5, "recall": 0.5 + 0.01 * number})) for number in (1, 2, 4)]
    assert len(re.findall(r">1, 2, 4</text>", plane(near))) == 1


def test_null_and_control_are_drawn_at_recall_and_precision(monkeypatch):
    plotted = Mock(wraps=Axes.plot)
    monkeypatch.setattr(Axes, "plot", lambda self, *args, **options: plotted(self, *args, **options))
    result = a_result(EVEN, nulls={"precision": 0.9, "recall": 0.7})
    control = replace(result.control, values={"precision": 0.8, "recall": 0.6})
    plane([(1, replace(result, control=control))])
    drawn = {call.kwargs.get("label"): call.args[1:] for call in plotted.call_args_list}
    assert drawn["perfect generator"] == ([0.7], [0.9])
    assert drawn["real v. real"] == ([0.6], [0.8])


CONFIGURED = {
    "text.usetex": True,  # starts latex
    "axes.grid": True,
    "lines.linewidth": 7.0,
    "figure.dpi": 37.0,
    "savefig.bbox": "tight",
    "svg.image_inline": False,
    "axes.titlesize": 30.0,
    "font.family": ["monospace"],
}


RESULTS = list(pair({"precision": 1.0, "recall": 0.5}, {"precision": 0.6, "recall": 0.9}).values())
SWEEP = Sweep("psi", tuple(SweepPoint(place, each) for place, each in zip((0.5, 1.0), RESULTS, strict=True)))
PLOTS = {
    "numbered plane": lambda: plane(list(enumerate(RESULTS, 1))),
    "metric_curve": lambda: metric_curve("recall", RESULTS),
    "sweep": lambda: sweep_plot(SWEEP, Objective("precision")),
}


@pytest.mark.parametrize("name", PLOTS)
def test_plots_do_not_depend_on_or_change_the_configuration(name):
    expected = PLOTS[name]()
    with mpl.rc_context(CONFIGURED):
        before = {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"}
        assert PLOTS[name]() == expected
        assert {key: mpl.rcParams[key] for key in mpl.rcParams if key != "backend"} == before


def test_curve_has_a_line_for_a_known_null_and_none_for_a_score_of_halves():
    def curve(**changes):
        made = a_result(EVEN)
        metric = replace(made.metrics["recall"], **changes)
        results = [replace(made, metrics=made.metrics | {"recall": metric})] * 2
        return metric_curve("recall", results)

    without = curve(null=None, null_source=None)
    assert curve() != without
    assert curve(null_source="real halves") == without
