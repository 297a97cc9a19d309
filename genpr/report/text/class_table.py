"""A score class by class as text: the worst classes, the averages, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from genpr.evaluation.per_class import (
    WEAKEST_FIRST,
    Average,
    ClassScore,
    ClassScores,
    LeftOutClass,
)
from genpr.metrics.registry import BALLS
from genpr.metrics.value import MetricValue
from genpr.report.text.layout import WIDTH, plain_table, render, shortened, wrapped

_MOST_ROWS, _WORST, _BEST = 24, 12, 5
_MOST_NAMED = 5
_NARROWEST, _WIDEST, _GAP = 6, 30, 2


def class_table(scores: ClassScores) -> str:
    """Classes down, the worst first, and metrics across with half the width of their intervals.

    Of many classes, the worst and the best are shown.
    """
    metrics = list(scores.macro)
    rows = [_row(found, metrics) for found in scores.classes]
    if len(rows) > _MOST_ROWS:
        between = len(rows) - _WORST - _BEST
        rows = [
            *rows[:_WORST],
            [f"({between:,} between)", *[""] * (len(metrics) + 2)],
            *rows[-_BEST:],
        ]
    averages = [
        ["macro average", "", "", *(_value(scores.macro[name]) for name in metrics)],
        ["micro average", "", "", *(_value(scores.micro[name]) for name in metrics)],
        ["perfect (macro)", "", "", *(_null(scores.macro[name]) for name in metrics)],
    ]
    heads = ["class, worst first", "reals", "fakes", *metrics]
    columns = list(zip(heads, *rows, *averages, strict=True))
    others = sum(max(map(len, column)) + _GAP for column in columns[1:])
    width = min(max(WIDTH - others, _NARROWEST), _WIDEST)
    table = plain_table(shortened(heads[0], width), *heads[1:])
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(shortened(row[0], width), *row[1:])
    table.add_section()
    for row in averages:
        table.add_row(shortened(row[0], width), *row[1:])
    labels = map(wrapped, label_lines(scores.origins, scores.unlabelled))
    return "\n".join([render(table), *_legend(scores), *_left_out(scores), *labels])


def _row(found: ClassScore, metrics: Sequence[str]) -> list[str]:
    return [
        found.label,
        f"{found.n_real:,}",
        f"{found.n_fake:,}",
        *(_value(found.metrics[name]) for name in metrics),
    ]


def _value(metric: MetricValue | Average) -> str:
    if metric.interval is None:
        return f"{metric.value:.2f}"
    low, high = metric.interval
    return f"{metric.value:.2f} ±{(high - low) / 2:.2f}"


def _null(average: Average) -> str:
    return "-" if average.null is None else f"{average.null:.2f}"


def _legend(scores: ClassScores) -> list[str]:
    by = "all metrics over their nulls" if scores.worst_by == WEAKEST_FIRST else scores.worst_by
    over_fakes = [name for name in scores.micro if BALLS[name].over == "fake"]
    over_reals = [name for name in scores.micro if BALLS[name].over != "fake"]
    weights = "; ".join(
        f"its {role} for {' and '.join(names)}"
        for role, names in (("fakes", over_fakes), ("reals", over_reals))
        if names
    )
    count = len(scores.classes)
    return [
        wrapped(f"{count:,} class{'es' * (count > 1)}, each scored within itself, worst by {by}"),
        wrapped(f"macro: each class counts the same; micro: each by {weights}"),
        wrapped("± is half the 95 % interval of one class: of many, some look bad by chance alone"),
    ]


def label_lines(origins: Mapping[str, str], unlabelled: Mapping[str, int]) -> list[str]:
    """Where labels come from, and how many images have none, by role."""
    found = "; ".join(f"{role} labels: {origin}" for role, origin in origins.items())
    none = [
        f"{count:,} {role} images without a label are in no class"
        for role, count in unlabelled.items()
        if count
    ]
    return [found, *none] if found else none


def _left_out(scores: ClassScores) -> list[str]:
    """Classes that were not scored by reason, largest first."""
    ordered = sorted(scores.left_out, key=lambda each: (each.reason, -each.n_real - each.n_fake))
    lines = []
    for reason, group in groupby(ordered, key=lambda each: each.reason):
        found = list(group)
        need = f" (needed: {scores.min_images:,})" if reason.startswith("too few") else ""
        names = ", ".join(map(_sized, found[:_MOST_NAMED]))
        more = f" and {len(found) - _MOST_NAMED:,} more (all in --json)" if len(found) > _MOST_NAMED else ""
        lines.append(wrapped(f"left out, {reason}{need}: {names}{more}"))
    return lines


def _sized(found: LeftOutClass) -> str:
    return f"{shortened(found.label, _WIDEST)} ({found.n_real:,} reals, {found.n_fake:,} fakes)"
