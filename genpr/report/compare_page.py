"""Several results as one self-contained HTML file: summary, metrics, curves, pictures, warnings and provenance.

Pictures in one row have equal latents only if genpr generated the images with the same number, width and seed of latents and
the same labels. Images from files only share a name, and the gallery says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genpr.checkpoints.criterion import number_of
from genpr.checkpoints.rank import rank_results
from genpr.errors import DataError, UsageError, count_of, some
from genpr.evaluation.compare import Comparison
from genpr.evaluation.panel import PanelResult
from genpr.evaluation.result import recipe_of
from genpr.features.inputs import Pictures, pictures_of
from genpr.images.datasets import BatchSource, CountedBatches
from genpr.images.item import ImageSource, known_length
from genpr.images.policy import DecodePolicy
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.checkpoint_tables import ranking_rows
from genpr.report.compare_tables import Texts, columns_of, panel_legend, panel_sides, panel_values
from genpr.report.interpretation import direction, interpret, interpret_comparison, quality_of
from genpr.report.page import (
    Figure,
    Gallery,
    Picture,
    made_small,
    render_page,
    thumbnail,
)
from genpr.report.plots import axis_of, metric_curve, short_names
from genpr.report.score_page import plane_of
from genpr.report.score_tables import features_of
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
    axis, names = axis_of(list(comparison.results)), short_names(list(comparison.results))
    record = {"results": {name: result.to_dict() for name, result in comparison.results.items()}}
    named = replace(comparison, results=dict(zip(names, results, strict=True)))
    is_ranked = not comparison.differences and set(number_of(by).needs) <= set(comparison.metrics)
    ranking = rank_results(named.results, by=by) if is_ranked else None
    first = results[0]
    what = "reals" if first.real.what == "images" else first.real.what
    title = f"{names[0]} and {len(names) - 1} other results"
    return render_page(
        "compare.html",
        named.results,
        galleries,
        title=f"{names[1]} against {names[0]}" if len(names) == 2 else title,
        record=json.dumps({**record, "differences": comparison.differences}, allow_nan=False),
        kicker="compare",
        facts=[
            count_of(len(named.metrics), "metric"),
            f"{first.real.n:,} {what} of {shown(first.real.source)}",
            *features_of(first),
        ],
        summary=interpret_comparison(named, ranking),
        differences=named.differences,
        tables=[
            {
                "columns": {name: _BETTER[ALL_METRICS[name].better] for name in named.metrics},
                "lines": lines_of(named),
                "references": references_of(named),
            }
        ],
        details=[] if ranking is None else [ranking_rows(ranking)],
        details_title="Ranking",
        plane=plane_of(list(enumerate(results, 1))),
        figures=[
            Figure(name, ALL_METRICS[name].meaning, metric_curve(name, results, axis))
            for name in named.metrics
        ],
        axis=axis,
    )


def references_of(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Reference values: a title and a text per metric, with a dash if it is not the same for all results."""
    titles, rows = ("perfect generator", "real v. real", "chance"), []
    for name in comparison.metrics:
        values = set()
        for result in comparison.results.values():
            metric, control = result.metrics[name], {} if result.control is None else result.control.values
            values.add((metric.known_null, control.get(name), metric.chance))
        columns = zip(*values, strict=True)
        rows.append([number(column[0], _DASH) if len({*column}) == 1 else _DASH for column in columns])
    found = zip(titles, map(list, zip(*rows, strict=True)), strict=True)
    return [(title, texts) for title, texts in found if {*texts} != {_DASH}]


@dataclass(frozen=True, slots=True)
class Cell:
    """A value on the page of several results."""

    value: str
    interval: str = ""
    below: Sequence[str] = ()  # the difference from the first result, or reference values
    verdict: str = ""  # direction of the difference, or "not the same metric"
    quality: str = ""  # "better", "worse" or empty


def lines_of(comparison: Comparison) -> list[dict[str, Any]]:
    """The results with all values, in the given order."""
    lines = []
    for index, (name, result) in enumerate(comparison.results.items(), 1):
        source = result.fake.source  # "<fake images>" is a source in memory
        facts = f"{result.fake.n:,} images" + ("" if source.startswith("<") else f" of {source}")
        cells = [_cell(comparison, name, metric) for metric in comparison.metrics]
        summary = interpret(result).summary
        lines.append({"name": f"{index} {name}", "facts": facts, "summary": summary, "cells": cells})
    return lines


def _cell(comparison: Comparison, name: str, metric: str) -> Cell:
    """A value with its interval, and its difference from the first result."""
    (first_name, first), result = next(iter(comparison.results.items())), comparison.results[name]
    found, reference = result.metrics[metric], first.metrics[metric]
    cell = Cell(number(found.value), _ends(found))
    if name == first_name:
        return cell
    if recipe_of(result)[metric] != recipe_of(first)[metric]:
        return replace(cell, verdict="not the same metric")
    contrast = comparison.contrast(name, metric)
    size, half = abs(found.value - reference.value), 0.0
    if contrast is not None:
        half = (contrast.interval.high - contrast.interval.low) / 2
    digits = f"{size:.4f}" if size < _SMALL <= half else number(size)
    difference = f"{'−' if found.value < reference.value else '+'}{digits}"
    return replace(
        cell,
        below=[difference if contrast is None else f"{difference} ± {number(half)}"],
        verdict=direction(contrast),
        quality=quality_of(metric, contrast, found, reference),
    )


def _ends(metric: MetricValue) -> str:
    return interval(metric.interval, ", ", missing="", as_values=True)


def panel_report(panel: PanelResult) -> str:
    """A panel as one self-contained page: a row per representation, with reference values below each value."""
    first = next(iter(panel.values()))
    found = {name: interpret(result) for name, result in panel.items()}
    summaries = {each.summary for each in found.values()}
    answers = [f"{name}: {each.summary}" for name, each in found.items()]
    return render_page(
        "compare.html",
        panel.every,
        (),
        title=f"{shown(first.fake.source)} in {count_of(len(panel), 'representation')}",
        record=panel.to_json(),
        kicker="score",
        facts=panel_sides(panel),
        summary=summaries.pop() if len(summaries) == 1 else "",
        answers={"By representation": answers},
        caveats=[f"{name}: {text}" for name, each in found.items() for text in each.caveats],
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
    return {
        "columns": {name: _BETTER[each] for name, each in better.items()},
        "lines": lines,
        "references": (),
    }


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
    opened = dict[str, Pictures]()
    for name, source in sources.items():
        policy = (policies or {}).get(name)
        pictures = pictures_of(source, (), policy=policy, keep=made_small)
        if pictures is None:
            trouble = "it has features, or can be read only once and was read already; give a folder, a list or a dataset"
            raise UsageError(f"{shown(name)} has no images to show: {trouble}", code="bad-samples")
        opened[name] = pictures
    names = _common_names({name: each.source for name, each in opened.items()})
    is_generated = all(isinstance(each, CountedBatches) for each in sources.values())
    count = min(rows, len(names))
    # Spread evenly, so that folders by class give more than one class.
    chosen = names[:rows] if is_generated else [names[index * len(names) // count] for index in range(count)]
    found = [replace(each, names=chosen).read(range(len(chosen))) for each in opened.values()]
    complete = [index for index in range(len(chosen)) if all(index in each for each in found)]
    title, sentence = _about(sources, is_generated=is_generated)
    if missing := len(chosen) - len(complete):
        sentence += f" {missing} of {len(chosen)} rows are left out, since not all images could be read."
    shown_ones = [
        Picture(
            thumbnail(images[index]),
            f"{number} {shown(name, longest=_NAME)}",
            group=f"latent {chosen[index].strip('[]')}" if is_generated else chosen[index],
        )
        for index in complete
        for number, (name, images) in enumerate(zip(opened, found, strict=True), 1)
    ]
    return Gallery(title, sentence, tuple(shown_ones))


def _common_names(opened: Mapping[str, ImageSource]) -> list[str]:
    """Names that all sources have, in the order of the first."""
    names = {name: _names_of(source) for name, source in opened.items()}
    first, *others = names.values()
    common = [each for each in first if all(each in known for known in others)]
    if not common:
        held = "; ".join(
            f"{shown(name)}: {some(known, longest=60)}" for name, known in list(names.items())[:3]
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
