"""Several results as one HTML file without other files: verdict, numbers, curves, pictures, warnings and provenance."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from genpr.checkpoints.criterion import number_of
from genpr.checkpoints.rank import Ranking, rank_results
from genpr.evaluation.compare import Comparison, notices_of
from genpr.evaluation.result import Result, recipe_of
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.metrics.value import MetricValue
from genpr.report.gallery import Gallery
from genpr.report.interpretation import direction, interpret, interpret_comparison
from genpr.report.page import MOST_BYTES, Figure, render_page
from genpr.report.plots import Axis, axis_of, has_plane, metric_curve, numbered_plane, short_names
from genpr.report.provenance import provenance_of
from genpr.report.score_tables import ends_text, features_of, known_null, value_text
from genpr.report.text import number

_DASH = "–"
_SMALL = 0.001  # shown in powers of ten
_BETTER = {"higher": "more is better", "lower": "less is better", "at null": "best at its null"}


def compare_report(
    comparison: Comparison,
    galleries: Sequence[Gallery] = (),
    *,
    by: str = "f1",
    axis: str | None = None,
    settings: Sequence[float] | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """Several results as one self-contained page: no other file, no network, light or dark as the reader prefers.

    Args:
        comparison: Of `genpr.compare`; all differences are to its first result.
        galleries: Pictures to show, such as `genpr.side_by_side` gives; as many of each as `most_bytes` allows.
        by: What results are ranked by: f1 or another F-score of precision and recall, or a metric, as in
            `genpr.rank_results`.
        axis: What `settings` are of, such as "psi".
        settings: One number per result, all different, to draw the metrics along; None takes the one number in which the
            names differ, such as `step-0400.json` and `step-0800.json`, or else counts.
        most_bytes: The page stays below that by leaving out pictures; it says how many.

    Returns:
        The text of the file, in characters that UTF-8 can hold.

    Raises:
        UsageError: `by` is no number that results can be ranked by.

    Example:
        >>> import genpr, numpy as np
        >>> real, one, other = np.random.default_rng(0).normal(size=(3, 100, 4))
        >>> results = {"one": genpr.score(real, one), "other": genpr.score(real, other)}
        >>> page = compare_report(genpr.compare(results))
        >>> page.startswith("<!doctype html>")
        True
    """
    results = list(comparison.results.values())
    lies_on = axis_of(list(comparison.results), axis=axis, settings=settings)
    record = {"results": {name: result.to_dict() for name, result in comparison.results.items()}}
    text = json.dumps({**record, "differences": comparison.differences}, allow_nan=False)
    names = short_names(list(comparison.results))
    named = replace(comparison, results=dict(zip(names, results, strict=True)))
    ranking = _ranking(named, by)
    columns, notices = columns_of(named), notices_of(named.results)
    return render_page(
        "compare.html",
        galleries,
        most_bytes,
        version=results[0].versions.get("genpr", ""),
        result=results[0],
        made_by=features_of(results[0]),
        names=names,
        differences=named.differences,
        interpretation=interpret_comparison(named, ranking),
        columns=columns,
        references=references_of(columns),
        lines=lines_of(named),
        standing=[] if ranking is None else standing_of(ranking, names),
        ranking=ranking,
        plane=_plane(named),
        curves=[
            Figure(name, ALL_METRICS[name].meaning, metric_curve(name, results, lies_on))
            for name in named.metrics
        ],
        axis_sentence=_axis_sentence(lies_on, is_given=settings is not None),
        warnings=[(item, who) for item, who in notices.items() if item.level == "warning"],
        notes=[(item, who) for item, who in notices.items() if item.level == "note"],
        provenance=[(name, provenance_of(result)) for name, result in named.results.items()],
        record=base64.b64encode(text.encode()).decode(),
    )


def _ranking(comparison: Comparison, by: str) -> Ranking | None:
    """None where that number is not known of all, or they were not scored alike."""
    if comparison.differences or not set(number_of(by).needs) <= set(comparison.metrics):
        return None
    return rank_results(comparison.results, by=by)


def _plane(comparison: Comparison) -> Figure | None:
    """Of the results that have precision and recall, with their numbers."""
    found = [
        (index, result) for index, result in enumerate(comparison.results.values(), 1) if has_plane(result)
    ]
    if not found:
        return None
    sentence = (
        "Up is better images, right is more variety. The line is the Pareto front: no other result exceeds those at its "
        "corners in both values. No generator is expected beyond the cross: that is a perfect one with so many images."
    )
    if comparison.differences:
        sentence += f" The cross and the diamond are those of result {found[0][0]}, and others may differ."
    return Figure("Precision and recall", sentence, numbered_plane(found))


def _axis_sentence(axis: Axis, *, is_given: bool) -> str:
    if not axis.is_ordered:
        return "In the order in which the results were given."
    return f"Along {axis.label}{'' if is_given else ', from the names of the results'}."


def columns_of(comparison: Comparison) -> list[dict[str, str]]:
    """The metrics that all results have, with null, control and chance; a dash where these are not the same for all."""

    def common(texts: list[str]) -> str:
        return texts[0] if len(set(texts)) == 1 else _DASH

    results = comparison.results.values()
    return [
        {
            "name": metric,
            "better": _BETTER[ALL_METRICS[metric].better],
            "null": common([number(known_null(each.metrics[metric]), _DASH) for each in results]),
            "control": common([number(_control(each, metric), _DASH) for each in results]),
            "chance": common([number(each.metrics[metric].chance, _DASH) for each in results]),
        }
        for metric in comparison.metrics
    ]


def _control(result: Result, metric: str) -> float | None:
    return None if result.control is None else result.control.values.get(metric)


def references_of(columns: Sequence[dict[str, str]]) -> list[tuple[str, list[str]]]:
    """What the values are compared with: a title, and a text per metric; without rows of dashes alone."""
    titles = {"null": "perfect generator", "control": "reals against reals", "chance": "chance"}
    rows = [(title, [column[key] for column in columns]) for key, title in titles.items()]
    return [(title, texts) for title, texts in rows if set(texts) != {_DASH}]


def lines_of(comparison: Comparison) -> list[dict[str, Any]]:
    """The results with all of their values, in the order in which they were given."""
    lines = []
    for index, (name, result) in enumerate(comparison.results.items(), 1):
        source = result.fake.source  # "<fake images>" are those of a running program
        facts = f"{result.fake.n:,} images" + ("" if source.startswith("<") else f" of {source}")
        cells = [_cell(comparison, name, metric, is_first=index == 1) for metric in comparison.metrics]
        summary = interpret(result).summary
        lines.append({"number": index, "name": name, "facts": facts, "summary": summary, "cells": cells})
    return lines


def _cell(comparison: Comparison, name: str, metric: str, *, is_first: bool) -> dict[str, str]:
    """A value with half of its interval, and its difference to the first result.

    "verdict" is a direction, or "not the same metric" where it was computed in another way; "quality" is "better" or "worse"
    where that is known. All three are empty for the first.
    """
    result, first = comparison.results[name], next(iter(comparison.results.values()))
    found, reference = result.metrics[metric], first.metrics[metric]
    half = "" if found.interval is None else number((found.interval[1] - found.interval[0]) / 2)
    cell = {"metric": metric, "value": value_text(found), "half": half}
    cell |= {"difference": "", "verdict": "", "quality": ""}
    if is_first:
        return cell
    if recipe_of(result)[metric] != recipe_of(first)[metric]:
        return {**cell, "verdict": "not the same metric"}
    contrast = comparison.contrast(name, metric)
    verdict = direction(contrast)
    difference = _signed(found.value - reference.value, None if contrast is None else contrast.interval)
    quality = _quality(metric, verdict, found, reference)
    return {**cell, "difference": difference, "verdict": verdict, "quality": quality}


def _quality(metric: str, verdict: str, found: MetricValue, first: MetricValue) -> str:
    """Whether higher or lower is better or worse; empty beyond what a perfect generator scores."""
    better = ALL_METRICS[metric].better
    if verdict not in ("higher", "lower") or better == "at null":
        return ""
    shares = [each.relative for each in (found, first) if each.relative is not None]
    if better == "higher" and len(shares) == 2 and min(shares) >= 1:
        return ""
    return "better" if verdict == better else "worse"


def _signed(value: float | None, bounds: Interval | None) -> str:
    """A difference with half of its interval, and no more digits than that justifies."""
    if value is None:
        return _DASH
    half = 0.0 if bounds is None else (bounds.high - bounds.low) / 2
    size = f"{abs(value):.4f}" if abs(value) < _SMALL <= half else number(abs(value))
    text = f"{'−' if value < 0 else '+'}{size}"
    return text if bounds is None else f"{text} ± {number(half)}"


def standing_of(ranking: Ranking, names: Sequence[str]) -> list[dict[str, Any]]:
    """The order of a ranking, the best first; `names` are those of the lines. "difference" is to the winner."""
    return [
        {
            "rank": _DASH if each.rank is None else str(each.rank),
            "name": each.name,
            "number": 1 + names.index(each.name),
            "mark": "*" if each.is_contender else "",
            "value": number(each.value, _DASH),
            "interval": ends_text(each.interval, " to ", _DASH),
            "difference": "" if each.name == ranking.winner else _signed(each.difference, each.bounds),
        }
        for each in ranking.entries
    ]
