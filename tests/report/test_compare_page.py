"""The page of several results: whole, self-contained, true to the intervals, and deaf to hostile names."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import unescape

import html5lib
import numpy as np
import pytest
from compare_results import a_scored, pair
from page_results import HOSTILE, a_result, a_side, picture

from genpr.checkpoints.rank import rank_results
from genpr.errors import UsageError
from genpr.evaluation.compare import compare, load_results
from genpr.metrics.uncertainty import difference
from genpr.metrics.value import Control
from genpr.notices import Notice
from genpr.report.pages.compare_page import compare_report
from genpr.report.pages.compare_parts import columns_of, lines_of, places_of
from genpr.report.pages.gallery import Gallery, Picture
from genpr.report.plots.compare_plots import numbered_plane
from genpr.report.plots.result_axis import axis_of, short_names
from genpr.report.plots.tradeoff_plot import draw_front
from genpr.report.verdict import judge_contrasts, side_of

EVEN = {"precision": 0.8, "recall": 0.8}


def parsed(page):
    """The document; anything that the HTML standard calls an error is one."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def elements(tree, name):
    return [each for each in tree.iter() if isinstance(each.tag, str) and each.tag.rsplit("}", 1)[-1] == name]


def text_of(tree):
    return " ".join("".join(tree.itertext()).split())


def section(page, name):
    """The text of one section; None if the page has none of that name."""
    found = [each for each in elements(parsed(page), "section") if each.get("id") == name]
    return text_of(found[0]) if found else None


def verdict_of(results, *, force=False):
    comparison = compare(results, force=force)
    has_plane = {"precision", "recall"} <= set(comparison.metrics) and not comparison.differences
    return judge_contrasts(comparison, rank_results(results) if has_plane else None)


@pytest.fixture(scope="module")
def full():
    """Twelve results, eight of them of hostile names, with pictures and warnings."""
    names = [*HOSTILE, *(f"step-{step:05d}.json" for step in range(400, 2000, 400))]
    results = {
        name: a_scored(
            {"precision": 0.5 + 0.04 * place, "recall": 0.8},
            seed=place,
            real=a_side(HOSTILE[0]),
            fake=a_side(name),
            notices=(Notice("x", "warning", name, name), *[Notice("y", "note", "all have this")] * 2),
        )
        for place, name in enumerate(names)
    }
    rows = tuple(Picture(picture(), name, group=group) for group in HOSTILE[:2] for name in names)
    return compare_report(compare(results), [Gallery(HOSTILE[0], HOSTILE[5], rows)])


def test_the_page_is_valid_html_with_ids_of_its_own(full):
    tree = parsed(full)
    ids = [each.get("id") for each in tree.iter() if isinstance(each.tag, str) and each.get("id")]
    assert len(ids) == len(set(ids))
    labelled = [each.get("aria-labelledby") for each in tree.iter() if isinstance(each.tag, str)]
    used = set(re.findall(r"url\(#([^)]+)\)", full)) | set(re.findall(r'href="#([^"]+)"', full))
    assert used | {each for each in labelled if each} <= set(ids)


def test_the_page_needs_nothing_else(full):
    addresses = re.findall(r"(?:src|href|action|data)=\"([^\"]*)\"", full)
    assert all(each.startswith(("data:", "#")) for each in addresses)
    assert "@import" not in full
    assert not re.search(r"url\((?!#)", full)


def test_hostile_names_do_no_harm(full):
    tree = parsed(full)
    assert len(elements(tree, "script")) == 1
    assert len(elements(tree, "img")) == 24
    assert not [
        each
        for each in tree.iter()
        if isinstance(each.tag, str) and any(name.startswith("on") for name in each.attrib)
    ]
    assert not set(full) & {"\x1b", "\x07", "\u202e"}
    assert HOSTILE[0] in unescape(full)  # still to be read
    assert "x" * 1001 not in full
    full.encode()


def test_only_the_pages_own_script_may_run(full):
    import hashlib

    tree = parsed(full)
    (script,) = elements(tree, "script")
    (policy,) = [each.get("content") for each in elements(tree, "meta") if each.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_result_has_a_row_a_reading_a_record_and_its_own_warnings(full):
    tree = parsed(full)
    rows = [each for each in elements(tree, "tr") if "step-01600.json" in text_of(each)]
    assert len(rows) == 2  # of all numbers, and by F1
    assert "11 step-01200.json 1,000 images" in section(full, "figures")
    assert len(elements(tree, "details")) == 13  # and the folded lines
    warnings = section(full, "warnings")
    assert "step-00800.json: step-00800.json What to do: step-00800.json" in warnings
    assert warnings.count("all have this") == 1
    assert "Note all results: all have this" in warnings


def test_the_record_holds_all_results_by_their_own_names(full, tmp_path):
    (address,) = re.findall(r'href="data:application/json;base64,([^"]+)"', full)
    path = tmp_path / "saved.json"
    path.write_bytes(base64.b64decode(address))
    found = load_results(path)
    assert list(found)[: len(HOSTILE)] == list(HOSTILE)
    assert found[HOSTILE[1]]["precision"] == pytest.approx(0.9 * 0.54)
    assert found[HOSTILE[1]].metrics["recall"].replicates is not None
    assert compare(found).metrics == ("precision", "recall")


def test_the_table_says_no_more_than_the_intervals():
    results = pair({"precision": 0.6, "recall": 0.8}, {"precision": 0.7, "recall": 0.8005})
    comparison = compare(results)
    page = compare_report(comparison)
    for metric, word in (("precision", "higher (better)"), ("recall", "not distinguishable")):
        known = comparison.contrast("b.json", metric)
        half = (known.interval.high - known.interval.low) / 2
        assert f"+{known.value:.4f} ± {half:.4f} {word}" in section(page, "numbers")
    first, other = lines_of(comparison)
    assert {cell.difference for cell in first.cells} == {""}
    assert [cell.verdict for cell in other.cells] == ["higher", "not distinguishable"]
    low, high = results["b.json"].metrics["precision"].interval
    assert other.cells[0].half == f"{(high - low) / 2:.4f}"


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
def test_better_and_worse_follow_the_metric(metric, first, other, verdict, quality):
    nulls = {metric: 1.0}
    (cell,) = lines_of(compare(pair({metric: first}, {metric: other}, nulls=nulls)))[1].cells
    assert (cell.verdict, cell.quality) == (verdict, quality)


def test_what_a_perfect_generator_scores_is_shown_where_all_say_the_same():
    results = pair(EVEN, EVEN)
    assert [(column.null, column.control) for column in columns_of(compare(results))] == [
        ("0.9000", "0.8800")
    ] * 2
    other = a_scored(EVEN, nulls={"precision": 0.9, "recall": 0.8})
    other = replace(other, control=Control(9, 9, {"precision": 0.88, "recall": 0.5}, {}))
    columns = columns_of(compare({**results, "b.json": other}))
    assert [(column.null, column.control) for column in columns] == [("0.9000", "0.8800"), ("–", "–")]


def test_two_results_are_told_apart_in_a_sentence():
    results = pair(
        {"precision": 0.8, "recall": 0.8, "coverage": 0.9}, {"precision": 0.9, "recall": 0.6, "coverage": 0.9}
    )
    reading = verdict_of(results)
    assert (
        reading.sentence == "b.json has higher precision and lower recall than a.json; coverage is not "
        "distinguishable."
    )
    assert reading.grounds[0].startswith("a.json is first by f1, and the others are not as good")
    assert "Each of the 3 differences" in reading.grounds[1]
    assert reading.cautions == ()


def test_the_heading_names_both_of_two_and_counts_more(full):
    (heading,) = elements(parsed(full), "h1")
    assert text_of(heading) == f"{HOSTILE[0]} and 11 others"
    (heading,) = elements(parsed(compare_report(compare(pair({"coverage": 0.5}, {"coverage": 0.5})))), "h1")
    assert text_of(heading) == "b.json against a.json"


def test_results_that_cannot_be_told_apart_are_not():
    reading = verdict_of(pair(EVEN, {"precision": 0.801, "recall": 0.799}))
    assert (
        reading.sentence == "Nothing tells b.json from a.json: precision and recall are not distinguishable."
    )


def test_all_metrics_are_said_in_one_word():
    reading = verdict_of(pair(EVEN, {"precision": 0.9, "recall": 0.9}))
    assert reading.sentence == "b.json has higher values of all 2 metrics than a.json."


def test_of_three_the_contenders_are_named_by_bounds_for_all_at_once():
    results = {
        "a": a_scored({"precision": 0.5, "recall": 0.5}),
        "b": a_scored({"precision": 0.8, "recall": 0.8}, seed=2),
        "c": a_scored({"precision": 0.799, "recall": 0.799}, seed=3),
    }
    reading = verdict_of(results)
    assert reading.sentence.startswith("b is first by f1, but c cannot be told from the best: with 95 %")
    assert [line[:6] for line in reading.grounds[:2]] == ["b has ", "c has "]
    ranking = rank_results(results)
    places = places_of(ranking, list(results))
    assert [(place.number, place.mark) for place in places] == [(2, "*"), (3, "*"), (1, "")]
    bounds = ranking["a"].bounds
    assert places[2].difference.endswith(f"± {(bounds.high - bounds.low) / 2:.4f}")
    assert [place.difference for place in places].count("") == 1


def test_the_standing_is_by_what_was_asked_for():
    results = pair({"precision": 0.9, "recall": 0.3}, {"precision": 0.5, "recall": 0.8})
    standing = section(compare_report(compare(results), by="precision"), "standing")
    assert "Standing by precision" in standing
    assert "1 a.json * 1 0.8100" in standing
    assert "harmonic" not in standing
    assert "2 b.json * 1 0.5538" in section(compare_report(compare(results)), "standing")
    with pytest.raises(UsageError, match="names no best one"):
        compare_report(compare(results), by="pareto")


def test_of_three_without_precision_the_differing_ones_are_named():
    results = {
        name: a_scored({"coverage": value}, seed=seed)
        for seed, (name, value) in enumerate([("a", 0.8), ("b", 0.9), ("c", 0.8)], 1)
    }
    assert verdict_of(results).sentence == "b differs from a; c cannot be told from it."
    alike = {**results, "b": a_scored({"coverage": 0.8005}, seed=9)}
    assert (
        verdict_of(alike).sentence
        == "Nothing tells the other 2 from a: no difference to it can be told from none."
    )


def test_without_intervals_nobody_can_tell():
    reading = verdict_of({"a": a_result(EVEN, arm=None), "b": a_result({"precision": 0.1, "recall": 0.1})})
    assert reading.sentence.startswith("No interval of a difference is known here")
    assert "b against a: no interval of a difference is known." in reading.grounds


def test_metrics_without_intervals_are_named_beside_those_that_have_some():
    results = pair(
        {"precision": 0.5, "fid": 0.5}, {"precision": 0.8, "fid": 0.8}, nulls={"precision": 0.9, "fid": 1}
    )
    bare = {
        name: replace(
            result, metrics={**result.metrics, "fid": replace(result.metrics["fid"], replicates=None)}
        )
        for name, result in results.items()
    }
    assert (
        verdict_of(bare).sentence == "b.json has higher precision than a.json; no interval is known for fid."
    )


def test_unpaired_differences_are_said_to_be():
    results = pair(EVEN, {"precision": 0.5, "recall": 0.5})
    results["b.json"] = replace(results["b.json"], seed=7)  # other halves
    (caution,) = verdict_of(results).cautions
    assert caution.startswith("The differences of b.json are unpaired")


def test_a_side_is_said_only_where_the_whole_interval_is_on_it():
    from genpr.evaluation.compare import resampled

    results = pair({"precision": 0.8}, {"precision": 0.8})
    found = difference(*(resampled(result, "precision") for result in results.values()))
    assert side_of(found) == "not distinguishable"
    assert side_of(None) == "no interval"
    assert side_of(replace(found, value=-1.0, verdict="distinguishable")) == "lower"


def test_unlike_results_are_shown_with_what_differs_and_not_ranked():
    results = pair(EVEN, {"precision": 0.4, "recall": 0.4})
    results["b.json"] = replace(
        results["b.json"], real=replace(a_side("other"), content="e" * 64, order="f" * 64)
    )
    page = compare_report(compare(results, force=True))
    assert "the real set of b.json (other) is not that of a.json" in section(page, "unlike")
    assert "These results were not made alike" in section(page, "reading")
    assert section(page, "standing") is None
    assert page.index('id="unlike"') < page.index('id="reading"')


def test_metrics_found_in_another_way_are_not_subtracted():
    results = pair(EVEN, {"precision": 0.4, "recall": 0.4})
    recall = replace(results["b.json"].metrics["recall"], k=7)
    results["b.json"] = replace(results["b.json"], metrics={**results["b.json"].metrics, "recall": recall})
    precision, recall = lines_of(compare(results, force=True))[1].cells
    assert precision.verdict == "lower"
    assert (recall.difference, recall.verdict, recall.quality) == ("", "not the same metric", "")


def test_a_page_of_one_metric_without_intervals_and_of_no_shares():
    results = {
        name: a_result({"fid": value}, nulls={"fid": 10.0}, arm=None, control=False)
        for name, value in (("a", 0.5), ("b", 0.7))
    }
    page = compare_report(compare(results))
    assert section(page, "standing") is None
    assert section(page, "unlike") is None
    assert section(page, "galleries") is None
    assert "no interval" in section(page, "numbers")
    assert len(elements(parsed(page), "svg")) == 1  # a curve, and no plane
    assert "±" not in section(page, "numbers").split("Each value with")[0]


def test_the_page_keeps_its_size_by_leaving_out_pictures():
    results = {name: a_result({"coverage": 0.5}) for name in "ab"}
    pictures = tuple(Picture(picture(), "1 a", group=f"row {row}") for row in range(40))
    gallery = Gallery("Side by side", "Rows.", pictures)
    bare = len(compare_report(compare(results), [replace(gallery, pictures=())]).encode())
    page = compare_report(compare(results), [gallery], most_bytes=bare + 25_000)
    assert len(page.encode()) < bare + 25_000
    shown = len(elements(parsed(page), "img"))
    assert 0 < shown < 40
    assert f"{40 - shown} more are not shown" in section(page, "galleries")


@pytest.mark.parametrize(
    ("names", "label", "places"),
    [
        (["step-00400.json", "step-00800.json"], "step", (400, 800)),
        (["run3/psi=0.5", "run3/psi=1"], "psi", (0.5, 1)),
        (["2.json", "1.json"], "number in the name", (2, 1)),
        (["a1-b1", "a2-b2"], "result", (1, 2)),  # two numbers differ
        (["x1", "y2"], "result", (1, 2)),  # more than the number differs
        (["s1", "s01"], "result", (1, 2)),  # the same number
        (["a", "b"], "result", (1, 2)),
        ([f"s{'9' * 400}", "s1"], "result", (1, 2)),  # no number that a picture can hold
        (["$\\frac{1", "$\\frac{2"], "frac", (1, 2)),
    ],
    ids=str,
)
def test_an_axis_is_found_in_the_names(names, label, places):
    found = axis_of(names)
    assert (found.label, found.places, found.is_ordered) == (label, places, label != "result")


def test_settings_that_are_given_come_first():
    found = axis_of(["s1", "s2"], axis="guidance", settings=[3, 7])
    assert (found.label, found.places, found.is_ordered) == ("guidance", (3, 7), True)
    assert axis_of(["a", "b"], axis="$x$", settings=[3, 7]).label == "setting"
    assert not axis_of(["a", "b"], axis="guidance", settings=[3, 3]).is_ordered


def test_lines_join_values_only_along_an_axis():
    steps = {f"step-{step}.json": a_scored({"coverage": value}) for step, value in ((900, 0.5), (10, 0.1))}
    page = compare_report(compare(steps))
    assert "Along step, as the names of the results have it." in section(page, "figures")
    label = elements(parsed(page), "svg")[0].get("aria-label")
    assert label.startswith("coverage by step. 10: 0.097, 900: 0.485")
    models = dict(zip(["gan", "flow"], steps.values(), strict=True))
    assert "so no line joins them" in section(compare_report(compare(models)), "figures")


def test_names_stay_different_when_they_are_cut():
    long = ["x" * 70 + "a" + "x" * 70, "x" * 70 + "b" + "x" * 70, "c"]
    assert len(set(short_names(long))) == 3
    assert all(len(name) < 70 for name in short_names(long))
    assert short_names(["a", "b"]) == ["a", "b"]


def test_the_plane_numbers_the_results_and_borders_the_front():
    results = [(1, a_result(EVEN)), (3, a_result({"precision": 0.9, "recall": 0.3}))]
    svg = numbered_plane(results)
    assert "1: precision 0.720, recall 0.720; 3: precision 0.810, recall 0.270" in svg
    assert len(re.findall(r">3</text>", svg)) == 1
    near = [(number, a_result({"precision": 0.5, "recall": 0.5 + 0.01 * number})) for number in (1, 2, 4)]
    assert len(re.findall(r">1, 2, 4</text>", numbered_plane(near))) == 1

    class Axes:
        def step(self, *points, **_):
            self.drawn = points

    axes = Axes()
    draw_front(axes, [(0.9, 0.1), (0.2, 0.2), (0.5, 0.5), (0.1, 0.9)], colour="black")
    assert axes.drawn == ((0.1, 0.5, 0.9), (0.9, 0.5, 0.1))
    draw_front(axes, [(0.9, 0.1), (0.5, 0.5)], colour="black", to_axes=True)
    assert axes.drawn == ((0.0, 0.5, 0.9, 0.9), (0.5, 0.5, 0.1, 0.0))


def test_results_of_every_kind_of_file_are_read(tmp_path):
    results = pair(EVEN, EVEN)
    ranking = tmp_path / "ranking.json"
    ranking.write_text(rank_results(results).to_json())
    assert set(load_results(str(ranking))) == set(results)
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    points = [
        {"setting": setting, "result": result.to_dict()}
        for setting, result in zip((0.5, 1.0), results.values(), strict=True)
    ]
    (sweep / "sweep.json").write_text(json.dumps({"axis": "psi", "points": points}))
    assert list(load_results(sweep)) == list(load_results(sweep / "sweep.json")) == ["psi=0.5", "psi=1"]


def test_replicates_of_the_helpers_are_paired():
    """Else the differences above would be told by accident."""
    contrast = compare(pair(EVEN, EVEN)).contrast("b.json", "recall")
    assert contrast.pairing == "paired"
    assert np.isclose(contrast.interval.high, 0.005, atol=0.003)
