"""The scores of a training run, one row per source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genpr.report.text import number, plain_table, render, wrapped
from genpr.score_lines import direction

if TYPE_CHECKING:
    from genpr.score_lines import Record

_MOST_METRICS = 5  # that fit 80 columns


def score_line(record: Record, by: str, *, is_best: bool) -> str:
    """One score in one line, what is best last."""
    values = ", ".join(f"{name} {number(record['metrics'][name])}" for name in _shown([record], by))
    return f"{record['name']}: {values}" + " (best so far)" * is_best


def watched_table(records: Sequence[Record], best: Record | None, by: str) -> str:
    """Every source that was recorded, in the order of the file, and which is best.

    Args:
        records: What was scored or given up.
        best: The best of them.
        by: The metric that says so.
    """
    scored = [record for record in records if record["status"] == "scored"]
    names = _shown(scored, by)
    table = plain_table("source", "images", *names, "")
    for record in records:
        if record["status"] == "failed":
            table.add_row(_plain(record["name"]), "-", *("-" for _ in names), record["error"]["code"])
            continue
        known = record["metrics"]
        values = [number(known[name]) if name in known else "-" for name in names]
        table.add_row(_plain(record["name"]), f"{record['n_fake']:,}", *values, "best" * (record is best))
    for column in table.columns:
        column.overflow = "fold"
    for column in table.columns[1:-1]:
        column.justify = "right"
    lines = [render(table)]
    if best is not None:
        lines.append(
            wrapped(
                f"best by {by} ({direction(by)} is better): {best['name']}, {number(best['metrics'][by])}"
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


def _shown(records: Sequence[Record], by: str) -> list[str]:
    """The first metrics that any record has, and the one that decides."""
    names = list(dict.fromkeys(name for record in records for name in record["metrics"]))
    others = [name for name in names if name != by]
    return [*others[: _MOST_METRICS - 1], *([by] if by in names else [])]


def _plain(name: str) -> str:
    """Names of files may hold line breaks."""
    return "".join(c if c.isprintable() else "?" for c in name)
