"""Several results as one self-contained HTML file: summary, metrics, curves, pictures, warnings and provenance.

Pictures in one row have equal latents only if genpr generated the images with the same number, width and seed of latents and
the same labels. Images from files only share a name, and the gallery says so.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from genpr.checkpoints.criterion import number_of
from genpr.checkpoints.rank import Ranking, rank_results
from genpr.errors import DataError, UsageError
from genpr.evaluation.compare import Comparison, notices_of
from genpr.evaluation.result import Result, recipe_of
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import Pictures, open_input
from genpr.images.datasets import BatchSource, CountedBatches
from genpr.images.item import ImageSource, known_length
from genpr.images.policy import DecodePolicy
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.report.interpretation import direction, interpret, interpret_comparison, quality_of
from genpr.report.page import (
    Answer,
    Figure,
    Gallery,
    Picture,
    look_at,
    made_small,
    reliability,
    render_page,
    thumbnail,
)
from genpr.report.plots import axis_of, metric_curve, short_names
from genpr.report.score_page import plane_of, provenance_of
from genpr.report.score_tables import ends_text, features_of, value_text
from genpr.report.text import interval, number, shown

_DASH = "–"
_SMALL = 0.001  # values below it are shown with an exponent
_BETTER = {"higher": "higher is better", "lower": "lower is better", "at null": "best near perfect"}


def compare_report(
    comparison: Comparison,
    galleries: Sequence[Gallery] = (),
    *,
    by: str = "f1",
) -> str:
    """Several results as one self-contained page: no other file, no network, light or dark as the reader prefers.

    Args:
        comparison: From `genpr.compare`. Differences are from its first result. If the names differ in one number, such as
            `step-0400.json` and `step-0800.json`, this number is the x axis of plots; otherwise results are numbered.
        galleries: Pictures to show, for example from `genpr.side_by_side`.
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
    axis = axis_of(list(comparison.results))
    record = {"results": {name: result.to_dict() for name, result in comparison.results.items()}}
    text = json.dumps({**record, "differences": comparison.differences}, allow_nan=False)
    names = short_names(list(comparison.results))
    named = replace(comparison, results=dict(zip(names, results, strict=True)))
    is_ranked = not comparison.differences and set(number_of(by).needs) <= set(comparison.metrics)
    ranking = rank_results(named.results, by=by) if is_ranked else None
    notices = list(notices_of(named.results).items())
    warnings = [(item, who) for item, who in notices if item.level == "warning"]
    notes = [(item, who) for item, who in notices if item.level == "note"]
    found = interpret_comparison(named, ranking)
    links = [("numbers", "Metrics and differences"), *[("ranking", "Ranking")] * is_ranked]
    links.append(("figures", "Plots and a summary of each result"))
    return render_page(
        "compare.html",
        galleries,
        version=results[0].versions.get("genpr", ""),
        result=results[0],
        made_by=features_of(results[0]),
        names=names,
        differences=named.differences,
        summary=found.summary,
        answers=[
            Answer(f"Compared with {names[0]}", found.others),
            reliability((), found.caveats, len(warnings), len(notes)),
            look_at(links, galleries),
        ],
        columns=[(name, _BETTER[ALL_METRICS[name].better]) for name in named.metrics],
        references=references_of(named),
        lines=lines_of(named),
        entries=[] if ranking is None else _ranking_entries(ranking, names),
        ranking=ranking,
        by="F1" if by == "f1" else by,
        plane=plane_of(list(enumerate(results, 1))),
        curves=[
            Figure(name, ALL_METRICS[name].meaning, metric_curve(name, results, axis))
            for name in named.metrics
        ],
        axis=axis,
        warnings=warnings,
        notes=notes,
        provenance=[(name, provenance_of(result)) for name, result in named.results.items()],
        record=base64.b64encode(text.encode()).decode(),
    )


def references_of(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Reference values: a title and a text per metric, with a dash if it is not the same for all results."""
    results = list(comparison.results.values())
    values: dict[str, Callable[[Result, str], float | None]] = {
        "perfect generator": lambda result, name: result.metrics[name].known_null,
        "real v. real": lambda result, name: (
            None if result.control is None else result.control.values.get(name)
        ),
        "chance": lambda result, name: result.metrics[name].chance,
    }
    rows = []
    for title, value in values.items():
        columns = [{number(value(result, name), _DASH) for result in results} for name in comparison.metrics]
        rows.append((title, [min(texts) if len(texts) == 1 else _DASH for texts in columns]))
    return [(title, texts) for title, texts in rows if set(texts) != {_DASH}]


def lines_of(comparison: Comparison) -> list[dict[str, Any]]:
    """The results with all values, in the given order."""
    lines = []
    for index, (name, result) in enumerate(comparison.results.items(), 1):
        source = result.fake.source  # "<fake images>" is a source in memory
        facts = f"{result.fake.n:,} images" + ("" if source.startswith("<") else f" of {source}")
        cells = [_cell(comparison, name, metric, is_first=index == 1) for metric in comparison.metrics]
        summary = interpret(result).summary
        lines.append({"number": index, "name": name, "facts": facts, "summary": summary, "cells": cells})
    return lines


def _cell(comparison: Comparison, name: str, metric: str, *, is_first: bool) -> dict[str, str]:
    """A value with its interval, and its difference from the first result.

    "verdict" is a direction, or "not the same metric" if the two were computed differently; "quality" is "better", "worse" or
    empty. "difference", "verdict" and "quality" are empty for the first result.
    """
    result, first = comparison.results[name], next(iter(comparison.results.values()))
    found, reference = result.metrics[metric], first.metrics[metric]
    cell = {
        "metric": metric,
        "value": value_text(found),
        "interval": interval(found.interval, ", ", missing="", as_values=True),
    }
    cell |= {"difference": "", "verdict": "", "quality": ""}
    if is_first:
        return cell
    if recipe_of(result)[metric] != recipe_of(first)[metric]:
        return {**cell, "verdict": "not the same metric"}
    contrast = comparison.contrast(name, metric)
    verdict = direction(contrast)
    difference = _signed(found.value - reference.value, None if contrast is None else contrast.interval)
    quality = quality_of(metric, contrast, found, reference)
    return {**cell, "difference": difference, "verdict": verdict, "quality": quality}


def _signed(value: float | None, bounds: Interval | None) -> str:
    """A difference with half of its interval, and digits to match."""
    if value is None:
        return _DASH
    half = 0.0 if bounds is None else (bounds.high - bounds.low) / 2
    size = f"{abs(value):.4f}" if abs(value) < _SMALL <= half else number(abs(value))
    text = f"{'−' if value < 0 else '+'}{size}"
    return text if bounds is None else f"{text} ± {number(half)}"


def _ranking_entries(ranking: Ranking, names: Sequence[str]) -> list[dict[str, Any]]:
    """The entries of a ranking, the best first; `names` are those of the lines. "difference" is from the winner."""
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


MAX_ROWS = 12
_LATENTS = ("n", "latent_dim", "seed", "labels")
_NOISE = ("batch_size", "device")  # each batch has a separate random stream
_NAME = 40  # characters of a result's name


def side_by_side(
    sources: Mapping[str, object],
    *,
    rows: int = MAX_ROWS,
    policies: Mapping[str, DecodePolicy] | None = None,
) -> Gallery:
    """Rows of images, one row per latent or image name, with one image of each source.

    Args:
        sources: Images by name: from `Sampler.images`, `CheckpointImages`, or any other source of images that `genpr.score`
            accepts. Each is read again.
        rows: The largest number of rows: the first generated images, or names spread evenly over those that all sources have.
        policies: How images of each source are decoded; None for the defaults.

    Returns:
        A gallery for `genpr.compare_report`. Its sentence states whether the latents are equal.

    Raises:
        UsageError: There are fewer than two sources, or a source holds features or can be read only once.
        DataError: The sources have no name in common ("no-common-names"), or cannot be read.

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
        text = f"images side by side need at least two sources and one row, found {len(sources)} and {rows}"
        raise UsageError(text, code="too-few-results")
    opened = {name: _open(name, source) for name, source in sources.items()}
    names = _common_names(opened)
    is_generated = all(isinstance(each, CountedBatches) for each in sources.values())
    count = min(rows, len(names))
    # Spread evenly, so that folders by class give more than one class.
    chosen = names[:rows] if is_generated else [names[index * len(names) // count] for index in range(count)]
    how = {name: (policies or {}).get(name, DecodePolicy()) for name in opened}
    found = [
        Pictures(each, chosen, policy=how[name], keep=made_small).read(range(len(chosen)))
        for name, each in opened.items()
    ]
    complete = [index for index in range(len(chosen)) if all(index in each for each in found)]
    title, sentence = _about(sources, is_generated=is_generated)
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
    return Gallery(title, sentence, tuple(pictures))


def _open(name: str, source: object) -> ImageSource:
    opened = open_input(source, name)
    if isinstance(opened, FeatureSet):
        trouble = (
            f"{shown(opened.source)} holds features; give the images that the features were computed from"
        )
    elif isinstance(opened.source, BatchSource) and opened.source.is_one_shot:
        trouble = "the source can be read only once and was read already; give a list, a dataset or a folder"
    else:
        return opened.source
    raise UsageError(f"{shown(name)} has no images to show: {trouble}", code="bad-samples")


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
    """The names in order; batches are numbered without generating any."""
    if isinstance(source, BatchSource) and (count := known_length(source)) is not None:
        return {f"[{row}]": None for row in range(count)}
    return dict.fromkeys(source.names() or (item.name for item in source))


def _about(sources: Mapping[str, object], *, is_generated: bool) -> tuple[str, str]:
    """A title and a sentence about the latents, which are known to be equal only if genpr generated all images alike."""
    if not is_generated:
        what = "name" if any(isinstance(each, str | os.PathLike) for each in sources.values()) else "index"
        text = f"Each row has the images of one {what}. It is not recorded whether their latents are equal."
        return "Side by side", text
    made_by = [getattr(each, "drawn_by", None) or {} for each in sources.values()]
    same = {
        keys: all(made_by) and len({repr([each.get(key) for key in keys]) for each in made_by}) == 1
        for keys in (_LATENTS, _NOISE)
    }
    if not same[_LATENTS]:
        text = "the number, width, seed or labels of the latents differ or are unknown."
        return "Side by side", f"Each row has one index, but not the same latent: {text}"
    noise = " and the same noise" if same[_NOISE] else ", with different noise"
    return "The same latents", f"Each row shares one latent{noise}."
