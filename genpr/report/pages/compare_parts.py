"""What a comparison's page shows, as plain text: cells of its table, standings, results in words, notices by result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genpr.checkpoints.rank import Ranking
from genpr.evaluation.compare import Comparison
from genpr.evaluation.result import Result, recipe_of
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.metrics.value import MetricValue
from genpr.report.reading import read
from genpr.report.text.layout import number
from genpr.report.verdict import side_of

_SMALL = 0.001  # shown in powers of ten
_BETTER = {"higher": "more is better", "lower": "less is better", "at null": "best at its null"}


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of the table.

    Attributes:
        name: Of the metric.
        meaning: What it measures.
        better: Which direction is.
        null: What a perfect generator scores, by all results alike; a dash where that is not known or not the same.
        control: Reals against reals, in the same way.
        chance: What guessing scores, in the same way.
    """

    name: str
    meaning: str
    better: str
    null: str
    control: str
    chance: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric of one result.

    Attributes:
        metric: Its name.
        value: As text; `~` marks the arithmetic of another tool.
        half: Half of its 95 % interval; a dash where none is known.
        difference: To the first result, with half of its interval; empty for the first, and for another metric.
        verdict: "higher", "lower", "not distinguishable", "no interval", or "not the same metric" where it was found in
            another way; empty for the first.
        quality: "better" or "worse" where that can be told, else empty.
    """

    metric: str
    value: str
    half: str
    difference: str
    verdict: str
    quality: str


@dataclass(frozen=True, slots=True)
class Line:
    """One result.

    Attributes:
        number: From 1, in the order in which they were given.
        name: What to call it.
        facts: How many images of what.
        reading: What it says by itself.
        cells: By metric, in the order of the columns.
    """

    number: int
    name: str
    facts: str
    reading: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One result in the order of a ranking; a dash where something is not known.

    Attributes:
        rank: From 1.
        name: What to call it.
        number: That of its `Line`.
        mark: `*` if it may be the best.
        value: What it is ranked by.
        interval: 95 %.
        difference: To the winner, with half of its simultaneous bounds; empty for the winner.
    """

    rank: str
    name: str
    number: int
    mark: str
    value: str
    interval: str
    difference: str


def columns_of(comparison: Comparison) -> list[Column]:
    """The metrics that all results have."""
    return [
        Column(
            name=metric,
            meaning=ALL_METRICS[metric].meaning,
            better=_BETTER[ALL_METRICS[metric].better],
            null=_shared([_null(result, metric) for result in comparison.results.values()]),
            control=_shared([_control(result, metric) for result in comparison.results.values()]),
            chance=_shared([_chance(result, metric) for result in comparison.results.values()]),
        )
        for metric in comparison.metrics
    ]


def references_of(columns: Sequence[Column]) -> list[tuple[str, list[str]]]:
    """What the values are held against: a title, and a text per metric; without rows of dashes alone."""
    rows = [
        ("perfect generator", [column.null for column in columns]),
        ("reals against reals", [column.control for column in columns]),
        ("guessing", [column.chance for column in columns]),
    ]
    return [(title, texts) for title, texts in rows if set(texts) != {"–"}]


def lines_of(comparison: Comparison) -> list[Line]:
    """The results with all of their values, in the order in which they were given."""
    return [
        Line(
            number=place,
            name=name,
            facts=_facts(result),
            reading=read(result).sentence,
            cells=tuple(
                _cell(comparison, name, metric, is_first=place == 1) for metric in comparison.metrics
            ),
        )
        for place, (name, result) in enumerate(comparison.results.items(), 1)
    ]


def places_of(ranking: Ranking, names: Sequence[str]) -> list[Place]:
    """The order, the best first; `names` are those of the lines."""
    return [
        Place(
            rank="–" if each.rank is None else str(each.rank),
            name=each.name,
            number=1 + names.index(each.name),
            mark="*" if each.is_contender else "",
            value="–" if each.value is None else number(each.value),
            interval="–" if each.interval is None else f"{each.interval.low:.3f} to {each.interval.high:.3f}",
            difference="" if each.name == ranking.winner else _signed(each.difference, each.bounds),
        )
        for each in ranking.entries
    ]


def _facts(result: Result) -> str:
    source = result.fake.source
    is_path = not source.startswith("<")  # "<fake images>" are those of a running program
    return f"{result.fake.n:,} images" + (f" of {source}" if is_path else "")


def _cell(comparison: Comparison, name: str, metric: str, *, is_first: bool) -> Cell:
    found = comparison.results[name].metrics[metric]
    value = number(found.value) if found.exact else f"~{number(found.value)}"
    ends = None if found.interval is None else Interval(*found.interval)
    own = (metric, value, _half(ends) or "–")
    if is_first:
        return Cell(*own, difference="", verdict="", quality="")
    if (
        recipe_of(comparison.results[name])[metric]
        != recipe_of(next(iter(comparison.results.values())))[metric]
    ):
        return Cell(*own, difference="", verdict="not the same metric", quality="")
    contrast = comparison.contrast(name, metric)
    verdict = side_of(contrast)
    bounds = None if contrast is None else contrast.interval
    first = next(iter(comparison.results.values())).metrics[metric]
    difference = _signed(found.value - first.value, bounds)
    return Cell(*own, difference, verdict, _quality(metric, verdict, found, first))


def _quality(metric: str, verdict: str, found: MetricValue, first: MetricValue) -> str:
    """Whether higher or lower is better or worse; no word of it beyond what a perfect generator scores."""
    better = ALL_METRICS[metric].better
    if verdict not in ("higher", "lower") or better == "at null":
        return ""
    if better == "higher" and found.relative is not None and first.relative is not None:
        is_beyond = min(found.relative, first.relative) >= 1
        return "" if is_beyond else ("better" if verdict == "higher" else "worse")
    return "better" if verdict == better else "worse"


def _half(ends: Interval | None) -> str:
    """Half the width of an interval; empty where there is none."""
    return "" if ends is None else number((ends.high - ends.low) / 2)


def _signed(value: float | None, bounds: Interval | None) -> str:
    """A difference with half of its interval, and no more digits than that makes sense of."""
    if value is None:
        return "–"
    half = 0.0 if bounds is None else (bounds.high - bounds.low) / 2
    size = f"{abs(value):.4f}" if abs(value) < _SMALL <= half else number(abs(value))
    text = f"{'−' if value < 0 else '+'}{size}"
    return text if bounds is None else f"{text} ± {number(half)}"


def _null(result: Result, metric: str) -> str:
    found = result.metrics[metric]
    is_known = found.null is not None and found.null_source != "real halves"
    return number(found.null) if is_known and found.null is not None else "–"


def _control(result: Result, metric: str) -> str:
    value = None if result.control is None else result.control.values.get(metric)
    return "–" if value is None else number(value)


def _chance(result: Result, metric: str) -> str:
    value = result.metrics[metric].chance
    return "–" if value is None else number(value)


def _shared(texts: list[str]) -> str:
    """What all results say alike."""
    return texts[0] if len(set(texts)) == 1 else "–"
