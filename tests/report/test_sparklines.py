"""Bars in a line of text: their scale, and that noise looks constant."""

from __future__ import annotations

import io
import sys

import pytest

from genpr.metrics.value import MetricValue
from genpr.report.sparklines import ASCII_BARS, BARS, Series, bars, sparklines


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
        (series(-1.0, 0.0, 1.0), "▁▅█"),
        (series(-2.0, -1.0), "▁▅"),
        (series(0.0, 0.0, null=0.0), "▁▁"),
        (series(0.1, None, 0.8), "▂ █"),
        (series(None, None), "  "),
        (series(0.5, None, 0.52, null=1.0, half=0.3), "▅ ▅"),
        (series(*([0.0] * 50 + [1.0] * 50)), "▁" * 12 + "▅" + "█" * 12),
        (series(*([None, 1.0] * 32)), "█" * 32),
    ],
)
def test_bars_start_at_zero_and_are_full_at_the_null_or_the_most(found, expected):
    assert bars(found) == expected


@pytest.mark.parametrize("half", [0.011, 0.5, 3.0])
def test_a_series_that_may_be_constant_is_flat(half):
    for found in (series(0.49, 0.51, 0.5, null=0.5, half=half), series(-0.01, 0.01, 0.0, half=half)):
        assert found.is_flat
        assert len(set(bars(found))) == 1


def test_other_series_are_not_flat():
    found = series(0.1, 0.5, 0.9, null=0.9, half=0.2)
    assert not found.is_flat
    assert len(set(bars(found))) == 3
    assert not series(0.5, 0.5).is_flat, "without intervals"
    assert not Series("recall", (0.1, 0.5), ((0.0, 0.9), None), None).is_flat
    assert Series("recall", (0.1, None), ((0.0, 0.9), None), None).is_flat


def test_each_line_has_the_smallest_and_the_largest_in_aligned_columns():
    metrics = [MetricValue(0.25, 3, null=0.9), None, MetricValue(0.75, 3, null=0.8)]
    other = Series("density", (0.5, None, 0.5), ((0.4, 0.6), None, (0.4, 0.6)), 1.0)
    lines = sparklines([Series.of("recall", metrics), other], along="psi = 0 to 1")
    assert lines[1] == "recall   ▃ ▇  0.2500 to 0.7500"
    assert lines[2].startswith("density  ▅ ▅  0.5000 to 0.5000, ")
    (head, line) = sparklines([series(*([0.0] * 50 + [1.0] * 50))], along="psi = 0 to 1")
    assert "a bar for each 4" in head
    assert len(line) <= 80


def test_a_single_value_has_no_line():
    assert sparklines([series(0.5), series(None, 0.5)], along="psi") == []
    assert sparklines([], along="psi") == []


@pytest.mark.parametrize(
    ("encoding", "marks"), [("utf-8", BARS), ("ascii", ASCII_BARS), ("cp1252", ASCII_BARS)]
)
def test_marks_that_stdout_holds(monkeypatch, encoding, marks):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert bars(series(*(i / 8 for i in range(8)), null=1.0)) == marks
