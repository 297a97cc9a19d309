"""The table and the page of a panel."""

import base64
from dataclasses import replace

from page_results import a_result, a_side, elements, text_of

from genpr.evaluation.panel import PanelResult
from genpr.metrics.metric import Control, MetricValue
from genpr.report.compare_page import panel_report
from genpr.report.compare_tables import panel_text

VALUES = {"precision": 1.0, "recall": 0.5}
VALUES_OF_A = {"precision": MetricValue(0.5, 3)}


def a_row(fd, *, half=None, **changes):
    """A result with precision, recall and FD, whose control has the given FD."""
    result = a_result(VALUES, **changes)
    control = None if half is None else Control(500, 499, {"precision": 0.9, "fd": half}, {})
    distance = MetricValue(fd, None, null=half, null_source=None if half is None else "real halves")
    return replace(result, metrics={**result.metrics, "fd": distance}, control=control)


def words(panel):
    return [line.split() for line in panel_text(panel).splitlines()]


def test_rows_of_a_panel_are_followed_by_their_references():
    panel = PanelResult({"a": a_row(3.0, half=2.0), "b": a_row(5.0, half=0.0)}, {})
    found = words(panel)
    assert "real v. real: 500 of the reals against the other 499" in panel_text(panel)
    assert found[0] == ["representation", "precision", "recall", "fd", "fd/halves"]
    assert found[2:8] == [
        ["a", "0.9000", "0.4500", "3.0000", "1.5000"],
        ["null", "0.9000", "0.9000", "-", "-"],
        ["real", "v.", "real", "0.9000", "-", "2.0000", "-"],
        ["b", "0.9000", "0.4500", "5.0000", "-"],
        ["null", "0.9000", "0.9000", "-", "-"],
        ["real", "v.", "real", "0.9000", "-", "0.0000", "-"],
    ]


def test_held_out_reals_have_a_row_and_normalize_fd():
    kept = {"a": replace(a_row(1.5), fake=a_side("kept", 700), n_shared=3)}
    fid, fid_kept = (replace(a_row(1.0), metrics={"fid": MetricValue(each, None)}) for each in (7.0, 6.0))
    panel = PanelResult({"a": a_row(3.0, half=2.0)}, kept, fid, fid_kept)
    found = words(panel)
    assert found[2] == ["a", "0.9000", "0.4500", "3.0000", "2.0000"]
    assert ["held-out", "reals", "0.9000", "0.4500", "1.5000", "-"] in found
    start = found.index(["representation", "fid"])
    assert found[start + 2 : start + 4] == [["other", "features", "7.0000"], ["held-out", "reals", "6.0000"]]
    text = panel_text(panel)
    assert "held-out  700 images of kept, 3 of which are among the reals" in text
    assert "they are fewer than the fakes" in " ".join(text.split())


def test_differences_between_representations_name_them():
    rows = {name: a_row(3.0, half=2.0) for name in "abc"}
    rows["a"] = replace(rows["a"], metrics=VALUES_OF_A, undefined=("fd",))
    rows["b"].metrics["kd"] = MetricValue(1.0, None, variant="one subset")
    rows["c"].metrics["kd"] = MetricValue(1.0, None, variant="two subsets")
    text = panel_text(PanelResult(rows, {}))
    assert text.split()[:6] == ["representation", "precision", "recall", "fd", "kd", "fd/halves"]
    assert "kd: one subset (b)\nkd: two subsets (c)" in text
    assert "fd: no value with these images (a)" in text
    assert "a: gabor (736-d, resize bicubic)" in text


def test_page_has_a_row_per_representation_with_its_references():
    panel = PanelResult({name: a_row(3.0, half=2.0) for name in ("pixels", "gabor")}, {})
    page = panel_report(panel)
    rows = [[text_of(cell) for cell in row] for row in elements(page, "tr")]
    heads = ["precision higher", "recall higher", "fd lower", "fd/halves lower"]
    assert rows[0] == ["result", *(f"{head} is better" for head in heads)]
    assert [row[0] for row in rows[1:]] == ["pixels", "gabor"]
    assert rows[1][1:] == [
        "0.9000 [0.8730, 0.9270] null 0.9000 real v. real 0.9000",
        "0.4500 [0.4230, 0.4770] null 0.9000",
        "3.0000 real v. real 2.0000",
        "1.5000",
    ]
    assert base64.b64encode(panel.to_json().encode()).decode() in page
