"""The metrics that compare images with what was asked for, family by family, beside what guessing scores."""

from __future__ import annotations

from collections.abc import Mapping

from genpr.evaluation.result import Result
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.text.layout import number, plain_table, render, wrapped


def asked_table(result: Result) -> str:
    """One row per metric of the families beside the manifold's; empty where there are none."""
    families = [names for family, names in result.families.items() if family != MANIFOLD]
    if not families:
        return ""
    found = {name: result.metrics[name] for names in families for name in names}
    extra = _extra_columns(found)
    table = plain_table("metric", "value", "95 % interval", *extra)
    for column in table.columns[1:]:
        column.justify = "right"
    for column in table.columns:
        column.overflow = "fold"  # a number that is cut reads as another
    for names in families:
        for name in names:
            table.add_row(*_row(name, found[name], extra))
        table.add_section()
    return "\n".join([render(table), *_legend(found, extra)])


def _extra_columns(found: Mapping[str, MetricValue]) -> list[str]:
    """Those that hold anything."""
    known = {
        "null": any(metric.null is not None for metric in found.values()),
        "chance": any(metric.chance is not None for metric in found.values()),
        "pool": any(metric.pool is not None for metric in found.values()),
    }
    return [name for name, is_known in known.items() if is_known]


def _row(name: str, metric: MetricValue, extra: list[str]) -> list[str]:
    interval = "-" if metric.interval is None else " - ".join(f"{end:.3f}" for end in metric.interval)
    known = {
        "null": "-" if metric.null is None else number(metric.null),
        "chance": "-" if metric.chance is None else number(metric.chance),
        "pool": "-" if metric.pool is None else f"{metric.pool:,}",
    }
    return [name, number(metric.value), interval, *(known[column] for column in extra)]


def _legend(found: Mapping[str, MetricValue], extra: list[str]) -> list[str]:
    lines = []
    if "chance" in extra:
        lines.append("chance: what guessing scores")
    if "pool" in extra:
        lines.append("pool: how many candidates each one is ranked among")
    lower = [name for name in found if ALL_METRICS[name].better == "lower"]
    if lower:
        lines.append(f"less is better: {', '.join(lower)}")
    return [wrapped("; ".join(lines))] if lines else []
