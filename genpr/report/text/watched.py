"""The scores of a training run, one row per source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from genpr.checkpoints.criterion import number_of
from genpr.report.text.layout import number, plain_table, render, wrapped
from genpr.report.text.sparklines import Series, sparklines

if TYPE_CHECKING:
    from genpr.checkpoints.score_log import Record

_MOST_METRICS = 5  # that fit 80 columns
_FEWEST = 3


def score_line(record: Record, by: str, *, is_best: bool) -> str:
    """One score in one line, what is best last."""
    values = _values(record, by)
    shown = ", ".join(f"{name} {number(values[name])}" for name in _shown([values], by))
    return f"{record['name']}: {shown}" + " (best so far)" * is_best


def watched_table(records: Sequence[Record], best: Record | None, by: str) -> str:
    """Every source that was recorded, in the order of the file, and which is best.

    Args:
        records: What was scored or given up.
        best: The best of them.
        by: The metric that says so.
    """
    scored = [record for record in records if record["status"] == "scored"]
    names = _shown([_values(record, by) for record in scored], by)
    table = plain_table("source", "images", *names, "")
    for record in records:
        if record["status"] == "failed":
            table.add_row(record["name"], "-", *("-" for _ in names), record["error"]["code"])
            continue
        known = _values(record, by)
        values = [number(known[name]) if name in known else "-" for name in names]
        table.add_row(record["name"], f"{record['n_fake']:,}", *values, "best" * (record is best))
    for column in table.columns:
        column.overflow = "fold"
    for column in table.columns[1:-1]:
        column.justify = "right"
    lines = [render(table), *_along(scored, names, by)]
    if best is not None:
        lines.append(
            wrapped(
                f"best by {by} ({number_of(by).better} is better): {best['name']}, {number(_values(best, by)[by])}"
            )
        )
    sizes = sorted({record["n_fake"] for record in scored})
    if len(sizes) > 1:
        lines.append(
            wrapped(
                f"sources of {sizes[0]:,} to {sizes[-1]:,} images: recall and coverage depend on how many there are"
            )
        )
    return "\n".join(lines)


def _along(scored: Sequence[Record], names: Sequence[str], by: str) -> list[str]:
    """How the metrics of the table went; two scores are no course."""
    if len(scored) < _FEWEST:
        return []
    values, ends = (
        [_values(record, by) for record in scored],
        [record.get("intervals", {}) for record in scored],
    )
    series = [
        Series(
            name,
            tuple(each.get(name) for each in values),
            tuple(tuple(each[name]) if name in each else None for each in ends),
        )
        for name in names
    ]
    return sparklines(series, along="the sources")


def _values(record: Record, by: str) -> dict[str, float]:
    """By metric, with the number that decides."""
    value = number_of(by).value_in(record["metrics"])
    return {**record["metrics"], **({} if value is None else {by: value})}


def _shown(values: Sequence[Mapping[str, float]], by: str) -> list[str]:
    """The first metrics that any record has, and the one that decides."""
    names = list(dict.fromkeys(name for each in values for name in each))
    others = [name for name in names if name != by]
    return [*others[: _MOST_METRICS - 1], *([by] if by in names else [])]
