"""Sweeps, rankings and watched training runs as text: one row per checkpoint or setting, then the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from genpr.checkpoints.criterion import PARETO, number_of
from genpr.checkpoints.rank import Objective, Ranking
from genpr.errors import some
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.registry import ALL_METRICS
from genpr.report.text import (
    Table,
    cut,
    interval,
    number,
    plus_minus,
    wrapped,
)

if TYPE_CHECKING:
    from genpr.checkpoints.score_log import Record
    from genpr.checkpoints.sweep import Sweep, SweepPoint

_LONG = 9  # longer names of a metric are shown only above the table


def ranking_table(ranking: Ranking) -> str:
    """One row per checkpoint, the best first, then the outcome in sentences."""
    is_front = ranking.by == PARETO
    by = (
        "their Pareto front of precision and recall"
        if is_front
        else f"{ranking.by}, {ranking.better} is better"
    )
    rows = _front_rows(ranking) if is_front else ranking_rows(ranking)
    heading = wrapped(f"{len(ranking.entries)} checkpoints by {by}")
    return "\n\n".join([heading, str(rows), wrapped(ranking.summary)])


def _mark(rank: int | None, *, is_contender: bool | None) -> str:
    return f"{'-' if rank is None else rank} {'*' if is_contender else ' '}"


def ranking_rows(ranking: Ranking) -> Table:
    """One row per checkpoint with its difference to the winner, and the value of a perfect generator if all have the same."""
    by, criterion = ranking.by, number_of(ranking.by)
    shown = [
        name
        for name in F_SCORE_METRICS
        if name != by and all(name in result.metrics for result in ranking.results.values())
    ]
    rows = []
    for entry in ranking.entries:
        difference = "-"
        if entry.difference is not None and entry.bounds is not None:
            difference = f"{entry.difference:+.3f} ± {(entry.bounds.high - entry.bounds.low) / 2:.3f}"
        elif entry.difference is not None:
            difference = f"{'-' if entry.difference < 0 else '+'}{number(abs(entry.difference))}"
        row = [_mark(entry.rank, is_contender=entry.is_contender), entry.name]
        row += [number(ranking.results[entry.name][name]) for name in shown]
        row += [number(entry.value), interval(entry.interval), difference * (entry.name != ranking.winner)]
        rows.append(row)
    bounds = ", ± its simultaneous 95 % bound" * ranking.has_bounds
    lines = [f"to the winner: {by} minus that of {ranking.winner}{bounds}"] * (len(rows) > 1)
    lines += ["*: with 95 % confidence, the true best is among these"] * ranking.has_bounds
    valued = [ranking.results[entry.name] for entry in ranking.entries if entry.value is not None]
    nulls = {number(criterion.null(result)) for result in valued} - {"-"}
    lines += [f"{by} of a perfect generator: {null}" for null in nulls if len(nulls) == 1]
    heads = [
        "rank",
        "checkpoint",
        *shown,
        by if len(by) <= _LONG else "value",
        "95 % interval",
        "to the winner",
    ]
    return Table(f"By {by}, {ranking.better} is better", heads, rows, [*lines, *ranking.remarks], {1})


def _front_rows(ranking: Ranking) -> Table:
    rows = []
    for entry in ranking.entries:
        row = [_mark(entry.rank, is_contender=entry.is_contender), entry.name]
        for name in F_SCORE_METRICS:
            found = ranking.results[entry.name].metrics.get(name)
            row += ["-", "-"] if found is None else [number(found.value), interval(found.interval)]
        rows.append([*row, some(entry.dominated_by)])
    columns = [head for name in F_SCORE_METRICS for head in (name, "95 % interval")]
    heads = ["rank", "checkpoint", *columns, "dominated by"]
    return Table("", heads, rows, ranking.remarks, {1, len(heads) - 1})


def sweep_table(sweep: Sweep, objective: Objective) -> str:
    """Settings as rows and metrics as columns, then the best setting."""
    axis, metrics = cut(sweep.axis, 12), sweep.points[0].result.metrics
    records = [
        {axis: f"{point.setting:g}", "f1": f"{point.values['f1']:.3f}"}
        | {name: _sweep_cell(point, name) for name in metrics}
        for point in sweep.points
    ]
    return str(Table.of("", records, _sweep_legend(sweep, objective)))


def _sweep_cell(point: SweepPoint, name: str) -> str:
    metric = point.result.metrics.get(name)
    if metric is None or metric.interval is None:
        return number(None if metric is None else metric.value)
    if ALL_METRICS[name].kind == "neighbors":
        return plus_minus(metric.value, metric.interval, digits=3)
    # Intervals of distances are not symmetric.
    return f"{number(metric.value)} [{interval(metric.interval, ', ', as_values=True)}]"


def _sweep_legend(sweep: Sweep, objective: Objective) -> list[str]:
    from genpr.checkpoints.sweep import warnings_of

    axis, best = sweep.axis, sweep.best(objective)
    known = {name: each.known_null for name, each in sweep.points[0].result.metrics.items()}
    nulls = [f"{name} {number(null)}" for name, null in known.items() if null is not None]
    lines = [f"null: {', '.join(nulls)}"] * bool(nulls)

    def at(points: Iterable[SweepPoint]) -> str:
        return f"{axis} = {', '.join(f'{point.setting:g}' for point in points)}"

    lines.append(f"best ({objective}): {at([best]) if best else 'no setting meets the constraint'}")
    contenders = sweep.contenders(objective)
    if contenders and best is not None and len(sweep.points) > 1:
        others = [point for point in contenders if point.setting != best.setting]
        tied = at(others) if others else "no other setting"
        lines.append(f"statistically tied with it: {tied} (simultaneous 95 % bounds)")
    front = {each.setting for each in sweep.front}
    if dominated := [point for point in sweep.points if point.setting not in front]:
        what = "another setting has at least the same precision and recall, and one is higher"
        lines.append(f"dominated: {at(dominated)} ({what})")
    if unlike := some(sweep.differences, 1, longest=200):
        lines.append(f"warning: not all points were scored alike, which may change values: {unlike}")
    points: dict[str, list[SweepPoint]] = {}
    for point in sweep.points:
        for code in warnings_of(point.result):
            points.setdefault(code, []).append(point)
    return [*lines, *(f"warning [{code}]: at {at(found)}" for code, found in points.items())]


def score_line(record: Record, by: str, *, is_best: bool) -> str:
    """One score of a training run in one line."""
    found = ", ".join(f"{name} {number(value)}" for name, value in _values(record, by).items())
    return f"{record['name']}: {found}" + " (best so far)" * is_best


def watched_table(records: Sequence[Record], best: Record | None, by: str) -> str:
    """Every recorded source of a training run in the order of the file, then the best by one metric."""
    values = [_values(record, by) for record in records]
    names = dict.fromkeys(name for each in values for name in each)
    rows = [
        {"source": record["name"], "images": f"{record['n_fake']:,}"}
        | {name: number(known.get(name)) for name in names}
        for record, known in zip(records, values, strict=True)
    ]
    lines = []
    if best is not None:
        value, better = number(_values(best, by)[by]), number_of(by).better
        lines.append(f"best by {by} ({better} is better): {best['name']}, {value}")
    sizes = sorted({record["n_fake"] for record in records})
    if len(sizes) > 1:
        text = f"sources have {sizes[0]:,} to {sizes[-1]:,} images, and recall and coverage depend on the number of images"
        lines.append(text)
    return str(Table.of("", rows, lines))


def _values(record: Record, by: str) -> dict[str, float]:
    """Values by metric, that of the ranking criterion first."""
    value = number_of(by).value_in(record["metrics"])
    return {**({} if value is None else {by: value}), **record["metrics"]}
