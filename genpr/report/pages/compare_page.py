"""Several results as one HTML file that needs no other: verdict, numbers, curves, pictures, warnings and provenance."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace

from genpr.checkpoints.criterion import number_of
from genpr.checkpoints.rank import Ranking, rank_results
from genpr.evaluation.compare import Comparison, notices_of
from genpr.metrics.registry import ALL_METRICS
from genpr.report.pages.compare_parts import columns_of, lines_of, places_of, references_of
from genpr.report.pages.gallery import Gallery
from genpr.report.pages.rendering import render_with_galleries
from genpr.report.pages.score_page import MOST_BYTES, Figure
from genpr.report.pages.score_parts import provenance_of
from genpr.report.plots.result_axis import Axis, axis_of, short_names
from genpr.report.remarks import features_of
from genpr.report.verdict import judge_contrasts

_FROM_NAMES = "Along {label}, as the names of the results have it."
_GIVEN = "Along {label}."
_COUNTED = "In the order in which they were given; nothing lies between them, so no line joins them."


def compare_report(
    comparison: Comparison,
    galleries: Sequence[Gallery] = (),
    *,
    by: str = "f1",
    axis: str | None = None,
    settings: Sequence[float] | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """Several results as one self-contained page: no other file, no network, light or dark as the reader likes it.

    Args:
        comparison: Of `genpr.compare`; all differences are to its first result.
        galleries: Pictures to show, such as `genpr.side_by_side` gives; as many of each as `most_bytes` allows.
        by: What the standing is by: f1 or another F-score of precision and recall, or a metric, as in `genpr.rank_results`.
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
    lies_on = axis_of(list(comparison.results), axis=axis, settings=settings)
    record = _record(comparison)
    named = replace(
        comparison,
        results=dict(zip(short_names(list(comparison.results)), comparison.results.values(), strict=True)),
    )
    ranking = _ranking(named, by)
    names, columns = list(named.results), columns_of(named)
    notices = notices_of(named.results)
    return render_with_galleries(
        "compare.html",
        galleries,
        most_bytes,
        styles=("report.css", "compare.css"),
        version=next(iter(named.results.values())).versions.get("genpr", ""),
        result=next(iter(named.results.values())),
        made_by=features_of(next(iter(named.results.values()))),
        names=names,
        differences=named.differences,
        verdict=judge_contrasts(named, ranking),
        columns=columns,
        references=references_of(columns),
        lines=lines_of(named),
        places=() if ranking is None else places_of(ranking, names),
        ranking=ranking,
        plane=_plane(named),
        curves=_curves(named, lies_on),
        axis_sentence=_axis_sentence(lies_on, is_given=settings is not None),
        warnings=[(item, who) for item, who in notices.items() if item.level == "warning"],
        notes=[(item, who) for item, who in notices.items() if item.level == "note"],
        provenance=[(name, provenance_of(result)) for name, result in named.results.items()],
        record=base64.b64encode(record.encode()).decode(),
    )


def _ranking(comparison: Comparison, by: str) -> Ranking | None:
    """None where that number is not known of all, or they were not made alike."""
    needs = number_of(by).needs
    if comparison.differences or not set(needs) <= set(comparison.metrics):
        return None
    return rank_results(comparison.results, by=by)


def _record(comparison: Comparison) -> str:
    """All results, as `genpr compare` reads them."""
    results = {name: result.to_dict() for name, result in comparison.results.items()}
    return json.dumps({"results": results, "differences": comparison.differences}, allow_nan=False)


def _plane(comparison: Comparison) -> Figure | None:
    """Of the results that have precision and recall, with their numbers."""
    from genpr.report.plots.compare_plots import numbered_plane
    from genpr.report.plots.page_plots import has_plane

    shown = [
        (number, result) for number, result in enumerate(comparison.results.values(), 1) if has_plane(result)
    ]
    if not shown:
        return None
    sentence = (
        "Up is better images, right is more variety. The line borders what some result reaches in both: the results at its "
        "corners are beaten by no other in both, by their values alone. Nobody is expected to pass the cross: that is a "
        "perfect generator with so many images."
    )
    if comparison.differences:
        sentence += f" It and the diamond are those of result {shown[0][0]}, and may not be those of others."
    return Figure("Precision and recall", sentence, numbered_plane(shown))


def _curves(comparison: Comparison, axis: Axis) -> list[Figure]:
    from genpr.report.plots.compare_plots import metric_curve

    results = list(comparison.results.values())
    return [
        Figure(metric, ALL_METRICS[metric].meaning, metric_curve(metric, results, axis))
        for metric in comparison.metrics
    ]


def _axis_sentence(axis: Axis, *, is_given: bool) -> str:
    if not axis.is_ordered:
        return _COUNTED
    return (_GIVEN if is_given else _FROM_NAMES).format(label=axis.label)
