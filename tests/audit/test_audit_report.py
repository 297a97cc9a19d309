"""The reports hold every cell, and nothing of a name can break them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from genpr.audit.checks import CHECKS, cases
from genpr.audit.matrix import agreement, judge, markdown
from genpr.audit.page import Line, html_page, plot
from genpr.audit.runner import Results, Run, Spread

HOSTILE = "<script>\"&'|*~"


def measured(kinds, checks=("std", "invention"), mean=0.5):
    results = Results(Run("quick", 3, 0))
    for case in cases(checks, "quick"):
        results.add(case, {name: Spread(mean, 0.001) for name in kinds})
    return judge(results, kinds), results


class Tags(HTMLParser):
    """Fails where tags are not closed in order; keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.counts, self.text = [], {}, ""

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parsed(page):
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert not tags.open
    return tags


def test_page_shows_a_plot_for_each_setting_and_kind_and_needs_no_other_file():
    matrix, results = measured({"precision": "fidelity", "recall": "diversity"}, tuple(CHECKS))
    page = html_page(matrix, results)
    tags = parsed(page)
    assert tags.counts["figure"] == 2 * sum(len(check.settings) for check in CHECKS.values())
    assert tags.counts["td"] == 2 * (31 * 2)
    assert "script" not in tags.counts
    assert "http" not in page
    assert " src=" not in page


def test_hostile_names_stay_text():
    matrix, results = measured({HOSTILE: "fidelity"})
    tags = parsed(html_page(matrix, results))
    assert "script" not in tags.counts
    assert HOSTILE in tags.text
    header = next(line for line in markdown(matrix, results.run).splitlines() if line.startswith("| check"))
    assert header == "| check | <script>\"&'\\|\\*\\~ |"


def test_markdown_tables_have_equal_rows():
    matrix, results = measured({"precision": "fidelity", "recall": "diversity", "mine": "diversity"})
    text = markdown(matrix, results.run)
    assert "quick grids, 3 draws per point, seed 0" in text
    widths = {}
    for line in text.splitlines():
        if line.startswith("|"):
            widths.setdefault(line.count("|"), []).append(line)
    assert set(widths) == {3, 4}  # one fidelity metric, two of diversity and the agreement
    assert "**0 of 4**" in text


def test_agreement_counts_cells_as_published():
    matrix, results = measured({"precision": "fidelity", "mine": "fidelity"})
    ((metric, column, same, count),) = agreement(matrix)
    assert (metric, column, count) == ("precision", "I-Prec", 4)
    assert same == 1  # std / bounds: the others are published as passes, and .5 everywhere fails them
    assert markdown(matrix, results.run).count("F here, T published") == 3


def test_metric_without_values_is_reported_without_numbers():
    matrix, results = measured({"mine": "fidelity"}, mean=math.nan)
    assert "no finite value" in html_page(matrix, results)
    assert "-inf" not in markdown(matrix, results.run)


def points_of(svg):
    root = ET.fromstring(svg)
    return [
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
        for line in root.iter("polyline")
    ]


def test_plot_places_values_and_cuts_at_the_edge():
    ((low, middle, high),) = points_of(plot("a < b", "x & y", [Line("m", 0, (0, 1, 2), (0.0, 0.5, 1.0))]))
    assert low[0] < middle[0] < high[0]
    assert middle[0] - low[0] == pytest.approx(high[0] - middle[0])
    assert low[1] > middle[1] > high[1]
    assert low[1] - middle[1] == pytest.approx(middle[1] - high[1], abs=0.2)
    ((_, edge),) = points_of(plot("t", "x", [Line("m", 0, (0, 1), (0.0, 1.1))]))
    ((_, beyond),) = points_of(plot("t", "x", [Line("m", 0, (0, 1), (-3.0, 200.0))]))
    assert beyond == edge


def test_plot_is_logarithmic_where_asked():
    ((low, middle, high),) = points_of(plot("t", "x", [Line("m", 0, (1, 10, 100), (0, 0, 0))], log_x=True))
    assert middle[0] - low[0] == pytest.approx(high[0] - middle[0], abs=0.11)


def test_plot_leaves_gaps_where_there_are_no_values():
    line = Line("m", 0, (0, 1, 2, 3, 4), (0.1, 0.2, math.nan, 0.4, math.inf))
    runs = points_of(plot("t", "x", [line]))
    assert [len(run) for run in runs] == [2, 2]
    assert runs[1][0] == runs[1][1]  # a lone point


def test_lines_of_one_plot_can_be_told_apart():
    lines = [Line(str(i), i, (0, 1), (0.0, 1.0)) for i in range(16)]
    root = ET.fromstring(plot("t", "x", lines))
    looks = {(line.get("stroke"), line.get("stroke-dasharray")) for line in root.iter("polyline")}
    assert len(looks) == 16


def test_cells_that_change_with_the_seed_are_listed_with_the_seeds_that_pass():
    runs = []
    for seed, value in enumerate((0.96, 0.5, 0.97)):
        results = Results(Run("quick", 3, seed))
        for case in cases(("invention",), "quick"):
            spread = Spread({1: value, 10: 0.5}.get(int(case.x), 0.99), 0.001)
            results.add(case, {"precision": spread, HOSTILE: Spread(0.5, 0.001)})
        runs.append(results)
    matrix = judge(runs[0], {"precision": "fidelity", HOSTILE: "fidelity"}, *runs[1:])
    text, page = markdown(matrix, runs[0].run), parsed(html_page(matrix, runs[0])).text
    for report in (text, page):
        assert "seeds 0 to 2" in report
        assert "Cells whose outcome changes with the seed" in report
        assert "precision, invention / bounds: passes with 2 of 3 seeds (0, 2)" in report
        assert "T 2/3" in report
    assert "2 of 4 cells pass with some of 3 seeds" in text
    assert "changes with the seed" not in markdown(judge(runs[0], matrix.kinds), runs[0].run)
