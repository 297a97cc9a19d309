"""Sweeps, rankings and watched training runs as text: one row per checkpoint or setting, then the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from genpr.checkpoints.criterion import PARETO, number_of
from genpr.checkpoints.rank import Objective, Ranking
from genpr.errors import printable
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.registry import ALL_METRICS
from genpr.report.score_tables import blocks_of, ends_text
from genpr.report.text import (
    WIDTH,
    Table,
    and_more,
    cut,
    head_width,
    interval,
    number,
    plus_minus,
    table,
    wrapped,
)

if TYPE_CHECKING:
    from genpr.checkpoints.score_log import Record
    from genpr.checkpoints.sweep import Sweep, SweepPoint

_LONG = 9  # longer names of a metric are shown only above the table
_MAX_NAMES = 3


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
        row += [number(entry.value), ends_text(entry.interval), difference * (entry.name != ranking.winner)]
        rows.append(row)
    bounds = ", ± its simultaneous 95 % bound" * ranking.has_bounds
    lines = [f"to the winner: {by} minus that of {ranking.winner}{bounds}"] * (len(rows) > 1)
    lines += ["*: with 95 % confidence, the true best is among these"] * ranking.has_bounds
    valued = [ranking.results[entry.name] for entry in ranking.entries if entry.value is not None]
    nulls = {number(criterion.null(result)) for result in valued}
    if len(nulls) == 1 and nulls != {number(None)}:
        lines.append(f"{by} of a perfect generator: {nulls.pop()}")
    heads = [
        "rank",
        "checkpoint",
        *shown,
        by if len(by) <= _LONG else "value",
        "95 % interval",
        "to the winner",
    ]
    return Table(f"By {by}, {ranking.better} is better", heads, rows, [*lines, *ranking.remarks], texts=(1,))


def _front_rows(ranking: Ranking) -> Table:
    rows = []
    for entry in ranking.entries:
        row = [_mark(entry.rank, is_contender=entry.is_contender), entry.name]
        for name in F_SCORE_METRICS:
            found = ranking.results[entry.name].metrics.get(name)
            row += ["-", "-"] if found is None else [number(found.value), interval(found.interval)]
        by = [", ".join(entry.dominated_by[:_MAX_NAMES])]
        rows.append([*row, " ".join([*by, *and_more(len(entry.dominated_by) - _MAX_NAMES, "more")])])
    heads = [head for name in F_SCORE_METRICS for head in (name, "95 % interval")]
    heads = ["rank", "checkpoint", *heads, "dominated by"]
    return Table("", heads, rows, ranking.remarks, texts=(1, len(heads) - 1))


_MAX_METRICS = 4  # with their intervals in a row
_F1, _MARK = 5, 9  # columns of a value and of the longest mark
_AXIS = 12  # columns of the name of the axis


def sweep_table(sweep: Sweep, objective: Objective) -> str:
    """Settings as rows and metrics as columns, then the best setting."""
    metrics = list(sweep.points[0].result.metrics)[:_MAX_METRICS]
    room = WIDTH - max(len(f"{point.setting:g}") for point in sweep.points) - (2 + _F1) - (2 + _MARK)
    cells = {name: [_sweep_cell(point, name) for point in sweep.points] for name in metrics}
    widths = [2 + max(head_width(name), *(len(printable(cell)) for cell in cells[name])) for name in metrics]
    names = blocks_of(metrics, widths, room)[0]
    front, best = {each.setting for each in sweep.front}, sweep.best(objective)
    rows = []
    for index, point in enumerate(sweep.points):
        marks = ["best"] * (best is not None and best.setting == point.setting)
        marks += ["dominated"] * (point.setting not in front)
        values = [cells[name][index] for name in names]
        rows.append([f"{point.setting:g}", *values, f"{point.values['f1']:.3f}", " ".join(marks)])
    text = table([cut(sweep.axis, _AXIS), *names, "f1", ""], rows, texts=(-1,))
    return "\n".join([text, *map(wrapped, _sweep_legend(sweep, objective, best, names))])


def _sweep_cell(point: SweepPoint, name: str) -> str:
    metric = point.result.metrics.get(name)
    if metric is None or metric.interval is None:
        return number(None if metric is None else metric.value)
    if ALL_METRICS[name].kind == "neighbors":
        return plus_minus(metric.value, metric.interval, digits=3)
    # Intervals of distances are not symmetric.
    return f"{number(metric.value)} [{interval(metric.interval, ', ', as_values=True)}]"


def _sweep_legend(
    sweep: Sweep, objective: Objective, best: SweepPoint | None, names: Sequence[str]
) -> list[str]:
    from genpr.checkpoints.sweep import warnings_of

    axis, metrics = sweep.axis, sweep.points[0].result.metrics
    known = [name for name in names if metrics[name].known_null is not None]
    nulls = [f"{name} {number(metrics[name].known_null)}" for name in known]
    reached = "no setting meets the constraint" if best is None else f"{axis} = {best.setting:g}"
    lines = [*[f"null: {', '.join(nulls)}"] * bool(nulls), f"best ({objective}): {reached}"]
    contenders = sweep.contenders(objective)
    if contenders and best is not None and len(sweep.points) > 1:
        others = [f"{point.setting:g}" for point in contenders if point.setting != best.setting]
        tied = f"{axis} = {', '.join(others)}" if others else "no other setting"
        lines.append(f"statistically tied with it: {tied} (simultaneous 95 % bounds)")
    lines.append("dominated: another setting has at least the same precision and recall, and one is higher")
    if unlike := sweep.differences:
        listed = " ".join([unlike[0], *and_more(len(unlike) - 1, "more")])
        lines.append(f"warning: not all points were scored alike, which may change values: {listed}")
    for code in dict.fromkeys(code for point in sweep.points for code in warnings_of(point.result)):
        settings = [f"{point.setting:g}" for point in sweep.points if code in warnings_of(point.result)]
        lines.append(f"warning [{code}]: at {axis} = {', '.join(settings)}")
    return lines


_MAX_WATCHED = 5  # metrics that fit 80 columns


def score_line(record: Record, by: str, *, is_best: bool) -> str:
    """One score of a training run in one line."""
    values = _values(record, by)
    found = ", ".join(f"{name} {number(values[name])}" for name in _first_metrics([values], by))
    return f"{record['name']}: {found}" + " (best so far)" * is_best


def watched_table(records: Sequence[Record], best: Record | None, by: str) -> str:
    """Every recorded source of a training run in the order of the file, then the best by one metric."""
    values = [_values(record, by) for record in records]
    names = _first_metrics(values, by)
    rows = []
    for record, known in zip(records, values, strict=True):
        cells = [number(known.get(name)) for name in names]
        rows.append([record["name"], f"{record['n_fake']:,}", *cells, "best" * (record is best)])
    lines = [table(["source", "images", *names, ""], rows, texts=(0, -1), whole="none")]
    if best is not None:
        value, better = number(_values(best, by)[by]), number_of(by).better
        lines.append(wrapped(f"best by {by} ({better} is better): {best['name']}, {value}"))
    sizes = sorted({record["n_fake"] for record in records})
    if len(sizes) > 1:
        text = f"sources have {sizes[0]:,} to {sizes[-1]:,} images, and recall and coverage depend on the number of images"
        lines.append(wrapped(text))
    return "\n".join(lines)


def _values(record: Record, by: str) -> dict[str, float]:
    """Values by metric, including the ranking criterion."""
    value = number_of(by).value_in(record["metrics"])
    return {**record["metrics"], **({} if value is None else {by: value})}


def _first_metrics(values: Sequence[Mapping[str, float]], by: str) -> list[str]:
    """The first metrics of any record, and the ranking criterion."""
    names = list(dict.fromkeys(name for each in values for name in each))
    return [*[name for name in names if name != by][: _MAX_WATCHED - 1], *[by] * (by in names)]
