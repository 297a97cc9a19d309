"""Bars in a line of text: their scale, and that chance draws no mountains."""

from __future__ import annotations

import io
import sys

import pytest

from genpr.metrics.value import MetricValue
from genpr.report.text.sparklines import ASCII_BARS, BARS, Series, bars, sparklines


def series(*values, null=None, half=None):
    ends = tuple(None if half is None or v is None else (v - half, v + half) for v in values)
    return Series("recall", values, ends, null)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (series(0.0, 0.5, 1.0), "▁▅█"),
        (series(*(i / 8 for i in range(8)), null=1.0), BARS),
        (series(0.4, 0.2, null=0.8), "▅▃"),
        (series(0.9, 0.45, null=0.8), "█▅"),
        (series(0.90, 0.93, 0.91, null=0.92), "███"),
        (series(10.2, 10.4, 10.1), "███"),
        (series(-1.0, 0.0, 1.0), "▁▅█"),
        (series(-2.0, -1.0), "▁▅"),
        (series(0.0, 0.0, null=0.0), "▁▁"),
        (series(0.0, 0.0), "▁▁"),
        (series(0.1, None, 0.8), "▂ █"),
        (series(None, None), "  "),
    ],
)
def test_bars_start_at_zero_and_are_full_at_the_null_or_the_most(found, expected):
    assert bars(found) == expected


@pytest.mark.parametrize("half", [0.011, 0.5, 3.0])
def test_what_intervals_cannot_tell_from_a_constant_is_level(half):
    found = series(0.49, 0.51, 0.5, null=0.5, half=half)
    assert found.is_flat
    assert len(set(bars(found))) == 1
    spread = series(-0.01, 0.01, 0.0, half=half)  # about 0, where any scale is of their own size
    assert len(set(bars(spread))) == 1


def test_what_intervals_tell_apart_is_not_level():
    found = series(0.1, 0.5, 0.9, null=0.9, half=0.2)
    assert not found.is_flat
    assert len(set(bars(found))) == 3


def test_without_all_intervals_nothing_is_called_level():
    assert not series(0.5, 0.5).is_flat
    assert not Series("recall", (0.1, 0.5), ((0.0, 0.9), None), None).is_flat
    assert Series("recall", (0.1, None), ((0.0, 0.9), None), None).is_flat


def test_level_bars_skip_what_is_missing():
    assert bars(series(0.5, None, 0.52, null=1.0, half=0.3)) == "▅ ▅"


def test_each_line_names_the_smallest_and_the_largest():
    metrics = [MetricValue(0.25, 3, null=0.9), None, MetricValue(0.75, 3, null=0.8)]
    (head, line) = sparklines([Series.of("recall", metrics)], along="psi = 0 to 1")
    assert head == "along psi = 0 to 1; a full bar: the null, or the most if that is more"
    assert line == "recall  ▃ ▇  0.2500 to 0.7500"


def test_names_bars_and_numbers_stand_below_each_other():
    other = Series("density", (0.5, 0.5), ((0.4, 0.6), (0.4, 0.6)), 1.0)
    lines = sparklines([series(0.2, 0.4), other], along="psi")
    assert lines[1:] == [
        "recall   ▅█  0.2000 to 0.4000",
        "density  ▅▅  0.5000 to 0.5000, level within its intervals",
    ]


def test_a_single_value_is_no_course():
    assert sparklines([series(0.5), series(None, 0.5)], along="psi") == []
    assert sparklines([], along="psi") == []


def test_many_values_share_bars_and_the_line_above_says_so():
    found = series(*([0.0] * 50 + [1.0] * 50))
    head, line = sparklines([found], along="psi = 0 to 1")
    assert head.startswith("along psi = 0 to 1, a bar for each 4; ")
    assert bars(found) == "▁" * 12 + "▅" + "█" * 12
    assert len(line) <= 80


def test_of_values_that_share_a_bar_the_missing_do_not_count():
    assert bars(series(*([None, 1.0] * 32)))[0] == "█"


@pytest.mark.parametrize(
    ("encoding", "marks"), [("utf-8", BARS), ("ascii", ASCII_BARS), ("cp1252", ASCII_BARS)]
)
def test_marks_that_stdout_holds(monkeypatch, encoding, marks):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert bars(series(*(i / 8 for i in range(8)), null=1.0)) == marks
