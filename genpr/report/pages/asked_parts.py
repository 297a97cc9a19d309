"""What a page shows where images were compared with labels, prompts or entities: the numbers, and who is at fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from genpr.evaluation.result import AlignmentSummary, EntitySummary, LabelSummary, Result
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import MetricValue
from genpr.report.pages.score_parts import BETTER, Strip, strip_of
from genpr.report.remarks import remarks_of
from genpr.report.safe_text import shown
from genpr.report.text.layout import number

_MOST_ROWS = 30
_FEW_ROWS = 12
_LONGEST = 120  # of a cell
_DASH = "–"


@dataclass(frozen=True, slots=True)
class AskedRow:
    """One metric of the table; a dash where something is not known.

    Attributes:
        name: Of the metric, with its family.
        meaning: What it measures.
        value: As text.
        interval: 95 %.
        null: What a perfect generator scores.
        chance: What guessing scores.
        pool: Candidates.
        better: Which direction is.
        strip: How it lies between 0 and 1, its mark at the null or else at chance; None for what is no share.
        remarks: What stands behind it.
    """

    name: str
    meaning: str
    value: str
    interval: str
    null: str
    chance: str
    pool: str
    better: str
    strip: Strip | None
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FaultTable:
    """Who is at fault, the worst first.

    Attributes:
        title: The heading.
        sentence: What is seen.
        heads: Of the columns; the first holds names.
        rows: As text.
        more: Rows that are only in the JSON.
    """

    title: str
    sentence: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


def asked_rows(result: Result) -> list[AskedRow]:
    """The metrics of every family but the manifold's, in display order."""
    families = [names for family, names in result.families.items() if family != MANIFOLD]
    return [_row(result, name, result.metrics[name]) for names in families for name in names]


def fault_tables(result: Result) -> list[FaultTable]:
    """As many as there is something to tell."""
    found: list[FaultTable] = []
    if result.labels is not None:
        found += _of_labels(result.labels)
    if result.alignment is not None:
        found += _of_prompts(result.alignment)
    if result.entities is not None:
        found += _of_entities(result.entities)
    return [table for table in found if table.rows]


def _row(result: Result, name: str, metric: MetricValue) -> AskedRow:
    is_share = name != "alignment.clip_score"
    return AskedRow(
        name=name,
        meaning=ALL_METRICS[name].meaning,
        value=number(metric.value),
        interval=_DASH if metric.interval is None else " to ".join(f"{end:.3f}" for end in metric.interval),
        null=_known(metric.null),
        chance=_known(metric.chance),
        pool=_DASH if metric.pool is None else f"{metric.pool:,}",
        better=BETTER[ALL_METRICS[name].better],
        strip=strip_of(metric, metric.chance if metric.null is None else metric.null) if is_share else None,
        remarks=(*remarks_of(result, metric), *_bounds(result, name)),
    )


def _bounds(result: Result, name: str) -> list[str]:
    """What unreadable answers could change."""
    known = () if result.entities is None else result.entities.bounds
    return [
        f"{each.low:.3f} if all unreadable answers were wrong, {each.high:.3f} if all were right"
        for each in known
        if each.metric == name
    ]


def _known(value: float | None) -> str:
    return _DASH if value is None else number(value)


def _share(value: float | None) -> str:
    return _DASH if value is None else f"{value:.1%}".replace("%", " %")


def _table(
    title: str, sentence: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], most: int = _MOST_ROWS
) -> FaultTable:
    found = tuple(tuple(shown(cell, longest=_LONGEST) for cell in row) for row in rows)
    return FaultTable(title, sentence, heads, found[:most], max(0, len(found) - most))


def _of_labels(found: LabelSummary) -> Sequence[FaultTable]:
    has_null = any(row.null_recall is not None for row in found.rows)
    votes = "" if found.k is None else f" ({found.k:,} voters)"
    perfect = (
        " Perfect: what a perfect generator scores in the class, as precision and recall." if has_null else ""
    )
    undefined = "".join(f" No value: {each}." for each in found.undefined)
    classes = _table(
        "Classes, worst first",
        "Asked: images that should be of the class. Recognised: of these, those that are seen as it; others: images of other "
        f"classes that are seen as it. By {shown(found.recogniser, longest=_LONGEST)}{votes}.{perfect}{undefined}",
        ("class", "asked", "recognised", "others", "precision", "recall", "F1", *["perfect"] * has_null),
        (
            (
                row.label,
                f"{row.n:,}",
                f"{row.tp:,}",
                f"{row.fp:,}",
                *map(_share, (row.precision, row.recall, row.f1)),
                *[" / ".join(map(_share, (row.null_precision, row.null_recall)))] * has_null,
            )
            for row in found.rows
        ),
    )
    confusions = _table(
        "Most frequent confusions",
        "What was asked for, and what was seen in its place.",
        ("asked for", "seen", "images"),
        ((each.asked, each.recognised, f"{each.n:,}") for each in found.confusions),
        _FEW_ROWS,
    )
    return classes, confusions


def _of_prompts(found: AlignmentSummary) -> Sequence[FaultTable]:
    rows = [(each.image, each.prompt, f"{each.rank:g}", each.winner) for each in found.failures]
    table = _table(
        "Images that fit another prompt better",
        f"Each image ranks its own prompt among {found.pool:,}; these rank another one first, or none alone; the worst first.",
        ("image", "its prompt", "rank", "ranked first"),
        rows,
        _FEW_ROWS,
    )
    return [replace(table, more=max(table.more, found.n_failures - len(table.rows)))]


def _of_entities(found: EntitySummary) -> Sequence[FaultTable]:
    seen = found.recogniser
    name = "" if seen is None else seen.name
    rates = (
        {}
        if seen is None or seen.chosen != "labelled"
        else {each.entity: (each.sensitivity, each.false_positive_rate) for each in seen.entities}
    )
    rows = (
        (
            row.entity,
            f"{row.n_expected:,}",
            f"{row.n_found:,}",
            _share(row.n_found / row.n_expected if row.n_expected else None),
            _DASH if row.n_false is None else f"{row.n_false:,}",
            *((*map(_share, rates.get(row.entity, (None, None))),) if rates else ()),
        )
        for row in found.rows
    )
    known = (
        f" Seen and mistaken: shares of labelled images with it, and without it, in which {shown(name, longest=_LONGEST)} sees it."
        if rates
        else ""
    )
    entities = _table(
        "Entities, worst first",
        f"Expected: how often it should be there; found: of these; not asked for: found where it should not be.{known}",
        ("entity", "expected", "found", "recall", "not asked for", *(["seen", "mistaken"] if rates else [])),
        rows,
    )
    unreadable = _table(
        "Answers that cannot be read",
        f"{len(found.unreadable):,} of {found.n_answers:,} answers; they are in no score but the failure rate.",
        ("about", "why", "it begins"),
        ((each.name, each.reason, each.answer) for each in found.unreadable),
        _FEW_ROWS,
    )
    return entities, unreadable
