"""A sweep as text: one row per setting, and what the rows say together."""

from __future__ import annotations

from genpr.checkpoints.criterion import Objective
from genpr.checkpoints.sweep import Sweep, SweepPoint, warnings_of
from genpr.metrics.registry import METRICS
from genpr.report.text.layout import WIDTH, number, plain, plain_table, render, shortened, wrapped
from genpr.report.text.sparklines import Series, sparklines

_MOST = 4  # metrics with their intervals in a row
_F1, _MARK = 5, 6  # columns of a value, and of the longest mark
_LONGEST_AXIS = 12  # columns of its name


def sweep_table(sweep: Sweep, objective: Objective) -> str:
    """Settings down, metrics across with half the width of their intervals; then each metric as bars, front, knee and best."""
    names = _shown(sweep)
    shown = plain_table(shortened(sweep.axis, _LONGEST_AXIS), *names, "f1", "")
    for column in shown.columns[:-1]:
        column.justify = "right"
    for column in shown.columns[1:-1]:
        column.no_wrap = True  # a number in two pieces reads as two
    for column in (shown.columns[0], shown.columns[-1]):
        column.overflow = "fold"
    for point in sweep.points:
        cells = [_value(point, name) for name in names]
        shown.add_row(
            f"{point.setting:g}", *cells, f"{point.values['f1']:.3f}", _marks(sweep, point, objective)
        )
    return "\n".join([render(shown), *_along(sweep), *_legend(sweep, objective)])


def _along(sweep: Sweep) -> list[str]:
    """Every metric that was computed as a line of bars; nothing of a single setting."""
    first, last = sweep.points[0].setting, sweep.points[-1].setting
    results = [point.result for point in sweep.points]
    names = dict.fromkeys(name for result in results for name in result.metrics)
    series = [Series.of(name, [result.metrics.get(name) for result in results]) for name in names]
    return sparklines(series, along=f"{shortened(sweep.axis, _LONGEST_AXIS)} = {first:g} to {last:g}")


def _shown(sweep: Sweep) -> list[str]:
    """The first metrics, as many as fit 80 columns in one piece."""
    room = WIDTH - max(len(f"{point.setting:g}") for point in sweep.points) - (2 + _F1) - (2 + _MARK)
    names: list[str] = []
    for name in list(sweep.points[0].result.metrics)[:_MOST]:
        room -= 2 + max(len(name), *(len(plain(_value(point, name))) for point in sweep.points))
        if names and room < 0:
            break
        names.append(name)
    return names


def _value(point: SweepPoint, name: str) -> str:
    metric = point.result.metrics.get(name)
    if metric is None:
        return "-"
    if metric.interval is None:
        return number(metric.value)
    low, high = metric.interval
    return f"{metric.value:.3f} ±{(high - low) / 2:.3f}"


def _marks(sweep: Sweep, point: SweepPoint, objective: Objective) -> str:
    marks = [
        mark
        for mark, chosen in (("best", sweep.best(objective)), ("knee", sweep.knee))
        if chosen is not None and chosen.setting == point.setting
    ]
    if point.setting not in {each.setting for each in sweep.front}:
        marks.append("beaten")
    return " ".join(marks)


def _doubts(sweep: Sweep, objective: Objective, best: SweepPoint | None) -> list[str]:
    """Who else may be the best; nothing where nobody can tell, or there is nobody else."""
    contenders = sweep.contenders(objective)
    if not contenders or best is None or len(sweep.points) == 1:
        return []
    others = [f"{point.setting:g}" for point in contenders if point.setting != best.setting]
    if others:
        return [f"not distinguishable from it: {sweep.axis} = {', '.join(others)} (simultaneous 95 % bounds)"]
    worse = "reaches it and is as good" if objective.at_least else "is as good"
    return [f"no other setting {worse}: simultaneous 95 % bounds tell"]


def _legend(sweep: Sweep, objective: Objective) -> list[str]:
    axis, first, names = sweep.axis, sweep.points[0].result, _shown(sweep)
    known = ((name, first.metrics[name].null) for name in names)
    nulls = ", ".join(f"{name} {number(null)}" for name, null in known if null is not None)
    best, knee = sweep.best(objective), sweep.knee
    lines = [f"null: {nulls}"] if nulls else []
    lines += [
        f"best ({objective}): " + ("no setting reaches it" if best is None else f"{axis} = {best.setting:g}")
    ]
    lines += _doubts(sweep, objective, best)
    if knee is not None:
        lines.append(f"knee of the front: {axis} = {knee.setting:g}")
    lines.append(
        f"area below the front: {sweep.area:.4f}; beaten: another setting has as much of both, or more"
    )
    if unlike := sweep.differences:
        more = f" and {len(unlike) - 1} more" if len(unlike) > 1 else ""
        lines.append(
            f"warning: these were not made alike, and their values may differ by that: {unlike[0]}{more}"
        )
    for code in dict.fromkeys(code for point in sweep.points for code in warnings_of(point.result)):
        settings = [f"{point.setting:g}" for point in sweep.points if code in warnings_of(point.result)]
        lines.append(f"warning: {code} at {axis} = {', '.join(settings)}")
    hidden = [name for name in first.metrics if name in METRICS and name not in names]
    if hidden:
        lines.append(f"also computed, see sweep.csv: {', '.join(hidden)}")
    return [wrapped(line) for line in lines]
