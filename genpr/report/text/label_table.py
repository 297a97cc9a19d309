"""Requested against recognised labels as text: the worst classes, and what is taken for what."""

from __future__ import annotations

from genpr.evaluation.result import LabelRow, LabelSummary
from genpr.report.text.class_table import label_lines
from genpr.report.text.layout import WIDTH, plain_table, render, shortened, wrapped

_MOST_ROWS, _MOST_CONFUSIONS = 12, 3
_NARROWEST, _WIDEST, _GAP, _NAMED = 6, 30, 2, 24

Ends = tuple[float, float] | None


def label_table(found: LabelSummary) -> str:
    """Classes down, the worst first and at most 12; then the most frequent confusions, and how to read all that."""
    rows = found.rows[:_MOST_ROWS]
    has_null = any(row.null_recall is not None for row in rows)
    heads = ["class, worst first", "asked", "others", "precision", "recall", "F1", *["perfect"] * has_null]
    cells = [_cells(row, has_null=has_null) for row in rows]
    columns = list(zip(heads[1:], *cells, strict=True))
    width = min(max(WIDTH - sum(max(map(len, column)) + _GAP for column in columns), _NARROWEST), _WIDEST)
    table = plain_table(shortened(heads[0], width), *heads[1:])
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for row, texts in zip(rows, cells, strict=True):
        table.add_row(shortened(row.label, width), *texts)
    return "\n".join([render(table), *map(wrapped, _lines(found, has_null=has_null))])


def _cells(row: LabelRow, *, has_null: bool) -> list[str]:
    null = [f"{_share(row.null_precision)} {_share(row.null_recall)}"] if has_null else []
    return [
        f"{row.n:,}",
        f"{row.fp:,}",
        _share(row.precision, row.precision_interval),
        _share(row.recall, row.recall_interval),
        _share(row.f1),
        *null,
    ]


def _share(value: float | None, ends: Ends = None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if ends is None else f"{value:.2f} ±{(ends[1] - ends[0]) / 2:.2f}"


def _lines(found: LabelSummary, *, has_null: bool) -> list[str]:
    more = len(found.rows) - _MOST_ROWS
    lines = [f"and {more:,} more classes, all in --json"] if more > 0 else []
    lines += [
        f"asked for {shortened(each.asked, _NAMED)}, recognised {shortened(each.recognised, _NAMED)}: {each.n:,}"
        for each in found.confusions[:_MOST_CONFUSIONS]
    ]
    perfect = "; perfect: precision and recall of a perfect generator" if has_null else ""
    lines.append(f"others: images of other classes that are seen as this one{perfect}")
    if any(row.recall_interval is not None for row in found.rows[:_MOST_ROWS]):
        lines.append("± is half the 95 % interval of one class: of many, some look bad by chance alone")
    lines += found.undefined
    votes = "" if found.k is None else f", {found.k:,} voters"
    return [
        *lines,
        f"recognised by: {found.recogniser}{votes}",
        *label_lines(found.origins, found.unlabelled),
    ]
