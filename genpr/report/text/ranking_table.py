"""A ranking as a table that fits 80 columns."""

from __future__ import annotations

from rich.table import Table

from genpr.checkpoints.criterion import PARETO
from genpr.checkpoints.rank import Ranking
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.report.text.layout import number, plain_table, render, wrapped

_LONG = 9  # characters of a column's name, beyond which it stands only above the table
_MOST_NAMES = 3


def ranking_table(ranking: Ranking) -> str:
    """One row per checkpoint, the best first, then what came out in a sentence."""
    title = f"{len(ranking.entries)} checkpoints by {ranking.by}"
    if ranking.by == PARETO:
        title = f"{len(ranking.entries)} checkpoints by their Pareto front of precision and recall"
        rows = _front_rows(ranking)
    else:
        title, rows = f"{title}, {ranking.better} is better", _rows(ranking)
    lines = [wrapped(title), "", rows, "", wrapped(ranking.summary)]
    lines += [wrapped(remark) for remark in ranking.remarks]
    lines += [wrapped(f"left out: {reason}") for reason in ranking.left_out.values()]
    return "\n".join(lines)


def _rows(ranking: Ranking) -> str:
    shown = [name for name in F_SCORE_METRICS if name != ranking.by and _is_known(ranking, name)]
    value = ranking.by if len(ranking.by) <= _LONG else "value"
    columns = ["", "checkpoint", *shown, value, "95 % interval", "to the winner"]
    table = plain_table(*columns)
    for entry in ranking.entries:
        others = [number(ranking.results[entry.name][name]) for name in shown]
        own = [_text(entry.value), _ends(entry.interval)]
        mark = "*" if entry.is_contender else " "
        to_winner = "" if entry.name == ranking.winner else _difference(entry.difference, entry.bounds)
        table.add_row(_place(entry.rank, mark), entry.name, *others, *own, to_winner)
    return _fitted(table, texts=1)


def _front_rows(ranking: Ranking) -> str:
    columns = ["", "checkpoint"]
    for name in F_SCORE_METRICS:
        columns += [name, "95 % interval"]
    table = plain_table(*columns, "beaten by")
    for entry in ranking.entries:
        metrics = ranking.results[entry.name].metrics
        values = []
        for name in F_SCORE_METRICS:
            found = metrics.get(name)
            ends = None if found is None or found.interval is None else Interval(*found.interval)
            values += [_text(None if found is None else found.value), _ends(ends)]
        by = ", ".join(entry.dominated_by[:_MOST_NAMES])
        more = len(entry.dominated_by) - _MOST_NAMES
        table.add_row(
            _place(entry.rank, "*" if entry.is_contender else " "),
            entry.name,
            *values,
            by + (f" and {more} more" if more > 0 else ""),
        )
    return _fitted(table, texts=2)


def _is_known(ranking: Ranking, name: str) -> bool:
    return all(name in result.metrics for result in ranking.results.values())


def _fitted(table: Table, *, texts: int) -> str:
    """Numbers stay whole and stand to the right; names, and of two texts the last column, are folded to fit."""
    names = [table.columns[1], *([table.columns[-1]] if texts == 2 else [])]
    for column in table.columns:
        if column in names:
            column.overflow = "fold"
        else:
            column.justify, column.no_wrap = "right", True
    return render(table)


def _place(rank: int | None, mark: str) -> str:
    return f"{'-' if rank is None else rank} {mark}"


def _text(value: float | None) -> str:
    return "-" if value is None else number(value)


def _ends(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.low:.3f} - {interval.high:.3f}"


def _difference(value: float | None, bounds: Interval | None) -> str:
    """With half the width of its bounds, which lie evenly about it."""
    if value is None:
        return "-"
    if bounds is None:
        return f"{'-' if value < 0 else '+'}{number(abs(value))}"
    return f"{value:+.3f} ± {(bounds.high - bounds.low) / 2:.3f}"
