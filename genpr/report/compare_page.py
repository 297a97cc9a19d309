"""Several results as one HTML file without other files: verdict, numbers, curves, pictures, warnings and provenance.

Latents of pictures beside each other are known to be equal where genpr generated the images itself, with the same number,
width and seed of latents and the same labels. Of files, only equal names are known, and the gallery says so.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from genpr.checkpoints.criterion import number_of
from genpr.checkpoints.rank import Ranking, rank_results
from genpr.errors import DataError, UsageError
from genpr.evaluation.compare import Comparison, notices_of
from genpr.evaluation.result import recipe_of
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import Pictures, open_input
from genpr.images.datasets import BatchSource, CountedBatches
from genpr.images.item import ImageSource, known_length
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.metrics.value import MetricValue
from genpr.report.interpretation import direction, interpret, interpret_comparison
from genpr.report.page import MOST_BYTES, Figure, Gallery, Picture, made_small, render_page, thumbnail
from genpr.report.plots import axis_of, has_plane, metric_curve, plane, short_names
from genpr.report.score_page import provenance_of
from genpr.report.score_tables import ends_text, features_of, known_null, value_text
from genpr.report.text import number, shown

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
        references=_references_of(columns),
        lines=lines_of(named),
        standing=[] if ranking is None else _standing_of(ranking, names),
        ranking=ranking,
        plane=_plane(named),
        curves=[
            Figure(name, ALL_METRICS[name].meaning, metric_curve(name, results, lies_on))
            for name in named.metrics
        ],
        axis=lies_on,
        is_axis_given=settings is not None,
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
    return Figure("Precision and recall", sentence, plane(found))


def columns_of(comparison: Comparison) -> list[dict[str, str]]:
    """The metrics that all results have, with null, control and chance; a dash where these are not the same for all."""
    columns = []
    for name in comparison.metrics:
        results = [(result.metrics[name], result.control) for result in comparison.results.values()]
        values = {
            "null": {number(known_null(metric), _DASH) for metric, _ in results},
            "control": {
                number(None if each is None else each.values.get(name), _DASH) for _, each in results
            },
            "chance": {number(metric.chance, _DASH) for metric, _ in results},
        }
        common = {key: min(texts) if len(texts) == 1 else _DASH for key, texts in values.items()}
        columns.append({"name": name, "better": _BETTER[ALL_METRICS[name].better], **common})
    return columns


def _references_of(columns: Sequence[dict[str, str]]) -> list[tuple[str, list[str]]]:
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


def _standing_of(ranking: Ranking, names: Sequence[str]) -> list[dict[str, Any]]:
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


MOST_ROWS = 12
_LATENTS = ("n", "latent_dim", "seed", "labels")
_NOISE = ("batch_size", "device")  # its streams start anew for each batch
_NAME = 40  # characters of a result's name


def side_by_side(sources: Mapping[str, object], *, rows: int = MOST_ROWS) -> Gallery:
    """A row of images for each of some latents, or names of images, with one image of each source.

    Args:
        sources: Images by what to call them: what `Sampler.images` gives, `CheckpointImages`, or anything else that
            `genpr.score` takes as images. Each is read once more.
        rows: At most so many: the first of what generators make, else spread evenly over the names that all have.

    Returns:
        For `genpr.compare_report`; its sentence says what is known of the latents.

    Raises:
        UsageError: There are fewer than two sources, one holds features, or can be read only once.
        DataError: They have no name in common ("no-common-names"), or cannot be read.

    Example:
        >>> import genpr
        >>> from genpr.demo import ShapesGenerator
        >>> sampler = genpr.Sampler.of(ShapesGenerator(), n=8)
        >>> gallery = side_by_side({"psi=0.5": sampler.images(0.5), "psi=1": sampler.images(1.0)}, rows=2)
        >>> [name for name, _ in gallery.groups]
        ['latent 0', 'latent 1']
        >>> gallery.sentence
        'Each row shares one latent and the same noise.'
    """
    if len(sources) < 2 or rows < 1:
        raise UsageError(
            f"images side by side need at least two sources and one row, found {len(sources)} and {rows}",
            code="too-few-results",
        )
    opened = {name: _open(name, source) for name, source in sources.items()}
    names = _common_names(opened)
    is_generated = all(isinstance(each, CountedBatches) for each in sources.values())
    count = min(rows, len(names))
    # Spread evenly, so that folders by class give more than one class.
    chosen = names[:rows] if is_generated else [names[index * len(names) // count] for index in range(count)]
    found = [Pictures(each, chosen, keep=made_small).read(range(len(chosen))) for each in opened.values()]
    complete = [index for index in range(len(chosen)) if all(index in each for each in found)]
    sentence = _about(sources, is_generated=is_generated)
    if missing := len(chosen) - len(complete):
        sentence += f" {missing} of {len(chosen)} rows are left out, since not all images could be read."
    pictures = [
        Picture(
            thumbnail(images[index]),
            f"{number} {shown(name, longest=_NAME)}",
            group=f"latent {chosen[index].strip('[]')}" if is_generated else chosen[index],
        )
        for index in complete
        for number, (name, images) in enumerate(zip(opened, found, strict=True), 1)
    ]
    title = "The same latents" if _are_equal(sources, _LATENTS) else "Side by side"
    return Gallery(title, sentence, tuple(pictures))


def _open(name: str, source: object) -> ImageSource:
    opened = open_input(source, name)
    if isinstance(opened, FeatureSet):
        trouble = f"{shown(opened.source)} holds features; give the images that they are of"
    elif isinstance(opened.source, BatchSource) and opened.source.is_one_shot:
        trouble = "they can be read only once, and were; give a list, a dataset or a folder"
    else:
        return opened.source
    raise UsageError(f"{shown(name)} needs images to show: {trouble}", code="bad-samples")


def _common_names(opened: Mapping[str, ImageSource]) -> list[str]:
    """Names that all sources have, in the order of the first."""
    first, *others = (_names_of(each) for each in opened.values())
    common = [each for each in first if all(each in names for names in others)]
    if not common:
        held = "; ".join(
            f"{shown(name)}: {', '.join(shown(one, longest=60) for one in list(names)[:3])}, ..."
            for name, names in list(zip(opened, (first, *others), strict=True))[:3]
        )
        raise DataError(f"no image of all sources has the same name ({held})", code="no-common-names")
    return common


def _names_of(source: ImageSource) -> dict[str, None]:
    """In order; of batches by their number alone, without generating any."""
    if isinstance(source, BatchSource) and (count := known_length(source)) is not None:
        return {f"[{row}]": None for row in range(count)}
    return dict.fromkeys(source.names() or (item.name for item in source))


def _are_equal(sources: Mapping[str, object], keys: Sequence[str]) -> bool:
    """Whether genpr generated all of them, with the same of `keys`."""
    made_by = [each.drawn_by if isinstance(each, CountedBatches) else None for each in sources.values()]
    known = [each for each in made_by if each is not None]
    return len(known) == len(made_by) and all(
        each.get(key) == known[0].get(key) for each in known for key in keys
    )


def _about(sources: Mapping[str, object], *, is_generated: bool) -> str:
    """What is known of the latents."""
    if not is_generated:
        what = "name" if any(isinstance(each, str | os.PathLike) for each in sources.values()) else "index"
        return f"Each row holds the images of one {what}. Whether they come from the same latents is not recorded."
    if not _are_equal(sources, _LATENTS):
        return (
            "Each row has the same index, but not the same latent: the number, width, seed or labels of latents differ or "
            "are unknown."
        )
    noise = " and the same noise" if _are_equal(sources, _NOISE) else ", with different noise"
    return f"Each row shares one latent{noise}."
