"""Several results as one self-contained HTML file: summary, metrics, curves, warnings and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genpr.checkpoints.rank import listed, number_of, rank_results
from genpr.errors import count_of
from genpr.evaluation.compare import Comparison
from genpr.evaluation.panel import PanelResult
from genpr.evaluation.result import recipe_of
from genpr.metrics.metric import MetricValue
from genpr.metrics.registry import ALL_METRICS
from genpr.report.compare_tables import (
    Texts,
    columns_of,
    panel_legend,
    panel_sides,
    panel_values,
    ranking_rows,
    verdict_of,
)
from genpr.report.interpretation import copies_of, interpret
from genpr.report.page import Figure, render_page
from genpr.report.plots import metric_curve
from genpr.report.score_page import plane_of
from genpr.report.score_tables import features_of
from genpr.report.text import interval, number, shown

_DASH = "–"
_SMALL = 0.001  # values below it are shown with an exponent
_BETTER = {"higher": "higher is better", "lower": "lower is better", "at null": "best near perfect"}


def compare_report(comparison: Comparison, *, by: str = "f1") -> str:
    """Several results as one self-contained page: no other file, no network, light or dark as the reader prefers.

    Args:
        comparison: From `genpr.compare`. Differences are from its first result.
        by: The ranking criterion: f1 or another F-score of precision and recall, or a metric, as in `genpr.rank_results`.

    Returns:
        The text of the file, which can be encoded in UTF-8.

    Raises:
        UsageError: Results cannot be ranked by `by`.

    Example:
        >>> import genpr, numpy as np
        >>> real, one, other = np.random.default_rng(0).normal(size=(3, 100, 4))
        >>> results = {"one": genpr.score(real, one), "other": genpr.score(real, other)}
        >>> page = compare_report(genpr.compare(results))
        >>> page.startswith("<!doctype html>")
        True
    """
    results = list(comparison.results.values())
    names = [shown(name, longest=60) for name in comparison.results]
    if len({*names}) < len(names):
        names = [f"{number} {name}" for number, name in enumerate(names, 1)]
    record = {"results": {name: result.to_dict() for name, result in comparison.results.items()}}
    named = replace(comparison, results=dict(zip(names, results, strict=True)))
    is_ranked = not comparison.differences and set(number_of(by).needs) <= set(comparison.metrics)
    ranking = rank_results(named.results, by=by) if is_ranked else None
    copying = [name for name, result in named.results.items() if copies_of(result)]
    summary = "" if ranking is None else ranking.summary
    if copying:
        why = "generated images are copies or near-copies of real images"
        summary = f"The values of {listed(copying)} are not reliable: {why}. {summary}"
    first = results[0]
    what = "reals" if first.real.what == "images" else first.real.what
    title = f"{names[0]} and {len(names) - 1} other results"
    return render_page(
        "compare.html",
        named.results,
        title=f"{names[1]} against {names[0]}" if len(names) == 2 else title,
        record=json.dumps({**record, "differences": comparison.differences}, allow_nan=False),
        kicker="compare",
        facts=[
            count_of(len(named.metrics), "metric"),
            f"{first.real.n:,} {what} of {shown(first.real.source)}",
            *features_of(first),
        ],
        summary=summary,
        differences=named.differences,
        tables=[
            {
                "columns": {name: _BETTER[ALL_METRICS[name].better] for name in named.metrics},
                "lines": lines_of(named),
                "nulls": nulls_of(named),
            }
        ],
        details=[] if ranking is None else [ranking_rows(ranking)],
        details_title="Ranking",
        plane=plane_of(list(enumerate(results, 1))),
        figures=[
            Figure(name, ALL_METRICS[name].meaning, metric_curve(name, results)) for name in named.metrics
        ],
    )


def nulls_of(comparison: Comparison) -> list[str]:
    """The value of a perfect generator by metric, with a dash if it is unknown or not the same for all results."""
    nulls = (
        {number(result.metrics[name].known_null, _DASH) for result in comparison.results.values()}
        for name in comparison.metrics
    )
    return [next(iter(values)) if len(values) == 1 else _DASH for values in nulls]


@dataclass(frozen=True, slots=True)
class Cell:
    """A value on the page of several results."""

    value: str
    interval: str = ""
    below: Sequence[str] = ()  # the difference from the first result, or reference values
    verdict: str = ""  # direction of the difference, or "not the same metric"
    quality: str = ""  # "better", "worse" or empty


def lines_of(comparison: Comparison) -> list[dict[str, Any]]:
    """The results with all values and their differences from the first one, in the given order."""
    lines, first = list[dict[str, Any]](), next(iter(comparison.results.values()))
    for index, (name, result) in enumerate(comparison.results.items(), 1):
        cells = []
        for metric in comparison.metrics:
            found, value = result.metrics[metric], result[metric]
            cell = Cell(number(value), _ends(found))
            if index > 1 and recipe_of(result)[metric] != recipe_of(first)[metric]:
                cell = replace(cell, verdict="not the same metric")
            elif index > 1:
                contrast, size, half = comparison.contrast(name, metric), abs(value - first[metric]), 0.0
                if contrast is not None:
                    half = (contrast.interval.high - contrast.interval.low) / 2
                digits = f"{size:.4f}" if size < _SMALL <= half else number(size)
                difference = f"{'−' if value < first[metric] else '+'}{digits}"
                below = difference if contrast is None else f"{difference} ± {number(half)}"
                verdict, quality = verdict_of(comparison, name, metric)
                cell = replace(cell, below=[below], verdict=verdict, quality=quality)
            cells.append(cell)
        source = result.fake.source  # "<fake images>" is a source in memory
        facts = f"{result.fake.n:,} images" + ("" if source.startswith("<") else f" of {source}")
        lines.append(
            {"name": f"{index} {name}", "facts": facts, "summary": interpret(result)[0], "cells": cells}
        )
    return lines


def _ends(metric: MetricValue) -> str:
    return interval(metric.interval, ", ", missing="", as_values=True)


def panel_report(panel: PanelResult) -> str:
    """A panel as one self-contained page: a row per representation, with reference values below each value."""
    first = next(iter(panel.values()))
    found = {name: interpret(result) for name, result in panel.items()}
    return render_page(
        "compare.html",
        panel.every,
        title=f"{shown(first.fake.source)} in {count_of(len(panel), 'representation')}",
        record=panel.to_json(),
        kicker="score",
        facts=panel_sides(panel),
        summary="",
        answers={"By representation": [f"{name}: {summary}" for name, (summary, _) in found.items()]},
        caveats=[f"{name}: {text}" for name, (_, caveats) in found.items() for text in caveats],
        tables=[_panel_table(panel, values) for values in panel_values(panel) if values],
        legend=panel_legend(panel),
    )


def _panel_table(panel: PanelResult, values: Mapping[str, Texts]) -> dict[str, Any]:
    """Values with intervals, ratios, and reference values."""
    columns, lines = columns_of(values), []
    for name, texts in values.items():
        known = {column: _ends(metric) for column, metric in panel.every[name].metrics.items()}
        cells = [
            Cell(
                texts[""].get(column, _DASH),
                known.get(column, ""),
                [f"{title} {found[column]}" for title, found in texts.items() if title and column in found],
            )
            for column in columns
        ]
        lines.append({"name": name, "cells": cells})
    better = {name: ALL_METRICS[name].better if name in ALL_METRICS else "lower" for name in columns}
    return {"columns": {name: _BETTER[each] for name, each in better.items()}, "lines": lines, "nulls": ()}
