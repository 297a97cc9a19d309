"""Score what was found in many images, or in answers about them, against what should be there."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from pathlib import Path

from genpr.conditional.entities.answer import Answer, Unreadable
from genpr.conditional.entities.expectations import (
    Expectations,
    FoundEntities,
    read_answers,
    read_expectations,
)
from genpr.conditional.entities.names import Names
from genpr.conditional.entities.text_files import shown, some
from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.conditional.entity_scores.recall import Words, tables_of, vocabulary_of
from genpr.errors import UsageError
from genpr.evaluation.result import (
    EntityBounds,
    EntityRow,
    EntitySummary,
    Result,
    SideSummary,
    package_versions,
)
from genpr.evaluation.result import Unreadable as UnreadableAnswer
from genpr.metrics.entity.entities import EntityMetrics, EntityScore, entity_set_metrics
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

PROTOCOL = "entities"
_SHOWN = 3
_OF_IMAGES = (
    ".zip",
    ".tar",
    ".tgz",
    ".gz",
    ".tbz",
    ".tbz2",
    ".bz2",
    ".txz",
    ".xz",
    ".npz",
    ".npy",
    ".safetensors",
)


def score_entities(
    expected: object,
    found: object,
    *,
    vocabulary: Words | None = None,
    aliases: Words | None = None,
    exclude: Words | None = None,
    seed: int = 0,
) -> Result:
    """Score what is found in images, or in answers about them, against what should be there.

    Args:
        expected: A file (.csv, .jsonl, .json) with an id and the expected entities of each image, or with prompts, in which
            the vocabulary is looked for; a dictionary of id -> list of entities or prompt; or a list of these in order.
            Files may also hold what an image excludes, and groups of images with a common prompt.
        found: A file with the answer of a language model or a list of found entities by id, or a dictionary or list of
            these. Answers are read tolerantly, see `read_entities`; unreadable ones are counted, listed, and left out.
        vocabulary: All that could be found; gives precision, and finds entities in prompts.
        aliases: Names that mean the same entity.
        exclude: What must not be in any image.
        seed: Chooses the halves of intervals.

    Raises:
        UsageError, DataError: A file is missing, damaged, or does not match the other; or as `entity_metrics`.

    Example:
        >>> import genpr
        >>> result = genpr.score_entities({"a": ["cat", "dog"], "b": ["car"]}, {"a": "Entities: cat", "b": "I see a car."})
        >>> result["entity.recall"], result["entity.failure_rate"], result.entities.unreadable[0].reason
        (0.5, 0.5, 'there is a sentence where a name should be')
    """
    started = time.perf_counter()
    check_answers(found)
    closed, table = tables_of(vocabulary, aliases)
    names = Names(table)
    barred = () if exclude is None else vocabulary_of(exclude, "exclude").entities
    asked = read_expectations(expected, names, closed, barred)
    told = read_answers(found, asked, names)
    metrics = entity_set_metrics(
        asked.expected,
        told.found,
        vocabulary=None if closed is None else closed.entities,
        excluded=asked.excluded,
        groups=asked.groups,
        seed=seed,
    )
    return Result(
        metrics={f"entity.{name}": metric_of(score) for name, score in metrics.scores.items()},
        protocol=PROTOCOL,
        ties="closed",
        distances="exact",
        extractor=None,
        extractors={},
        deviations=(),
        real=asked_side(asked, table, closed),
        fake=_told_side(told),
        n_shared=0,
        device="cpu",
        seed=seed,
        max_images=None,
        seconds={"score": time.perf_counter() - started},
        versions=package_versions(),
        notices=_notices(metrics, asked, told, closed),
        undefined=tuple(f"entity.{name}" for name in metrics.undefined),
        entities=_summary(metrics, asked, told, closed),
    )


def check_answers(found: object) -> None:
    """Refuse what holds images.

    Raises:
        UsageError: "images-not-answers".
    """
    if isinstance(found, str | os.PathLike):
        path = Path(found)
        is_images = path.suffix.lower() in _OF_IMAGES or is_folder(path)
    else:
        is_images = getattr(found, "ndim", 0) == 4
    if is_images:
        what = shown(found) if isinstance(found, str | os.PathLike) else f"<{type(found).__name__}>"
        raise UsageError(
            f"{what} holds images, not answers about them; needed is what recognises entities in them: --by clip-vit-b-32, --by "
            "DETECTOR (in Python: genpr.score_entities_in_images), or a file of answers (.csv, .tsv, .jsonl, .json)",
            code="images-not-answers",
        )


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a name that no file can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def metric_of(score: EntityScore, *, extractor: str | None = None, variant: str | None = None) -> MetricValue:
    """One number as part of a result."""
    replicates = None if score.replicates is None else tuple(score.replicates.tolist())
    return MetricValue(
        score.value,
        None,
        interval=score.interval,
        replicates=replicates,
        n_counted=score.n,
        extractor=extractor,
        variant=variant,
    )


def _summary(
    metrics: EntityMetrics, asked: Expectations, told: FoundEntities, closed: Vocabulary | None
) -> EntitySummary:
    read = Counter(answer.how for answer in told.answers if isinstance(answer, Answer))
    return EntitySummary(
        n_answers=len(told.answers),
        rows=rows_of(metrics),
        unreadable=tuple(
            UnreadableAnswer(name, answer.reason, text)
            for name, answer, text in zip(asked.ids, told.answers, told.texts, strict=True)
            if isinstance(answer, Unreadable)
        ),
        bounds=tuple(
            EntityBounds(f"entity.{name}", *score.bounds)
            for name, score in metrics.scores.items()
            if score.bounds
        ),
        forms=tuple(read.most_common()),
        undefined=tuple((f"entity.{name}", why) for name, why in metrics.undefined.items()),
        vocabulary=None if closed is None else len(closed),
    )


def rows_of(metrics: EntityMetrics) -> tuple[EntityRow, ...]:
    """One per entity, the worst first."""
    return tuple(EntityRow(row.entity, row.n_expected, row.n_found, row.n_false) for row in metrics.entities)


def asked_side(asked: Expectations, table: Vocabulary | None, closed: Vocabulary | None) -> SideSummary:
    """Everything that decides what is right: other aliases or another vocabulary are another set of prompts."""
    barred = asked.excluded or ((),) * len(asked.ids)
    rows = [
        json.dumps([name, sorted(wanted), sorted(out), group])
        for name, wanted, out, group in zip(asked.ids, asked.expected, barred, asked.groups, strict=True)
    ]
    rules = json.dumps(
        [None if words is None else sorted(words.by_name.items()) for words in (table, closed)]
    )
    content, order = hashed(rules, *sorted(rows)), hashed(rules, *rows)
    return _side(asked.origin, "prompts", len(asked.ids), content, order)


def _told_side(told: FoundEntities) -> SideSummary:
    rows = [json.dumps(None if found is None else sorted(found)) for found in told.found]
    return _side(told.origin, "answers", len(rows), hashed(*sorted(rows)), hashed(*rows))


def _side(source: str, what: str, n: int, content: str, order: str) -> SideSummary:
    return SideSummary(
        source=source,
        n=n,
        n_embedded=0,
        n_cached=0,
        n_duplicates=0,
        skipped=(),
        flags={},
        decoder={},
        seconds=0.0,
        content=content,
        order=order,
        what=what,
    )


def hashed(*rows: str) -> str:
    """sha256 over texts."""
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


def nothing_expected(asked: Expectations) -> list[Notice]:
    """Whether there are images that say nothing about recall."""
    nothing = sum(not wanted for wanted in asked.expected)
    if not nothing:
        return []
    hint = "the vocabulary may lack their entities, or aliases for them" if asked.from_prompts else ""
    facts = {"what": "prompts" if asked.from_prompts else "entries", "hint": hint}
    return [notice("nothing-expected", count=f"{nothing:,}", total=f"{len(asked.ids):,}", **facts)]


def _notices(
    metrics: EntityMetrics, asked: Expectations, told: FoundEntities, closed: Vocabulary | None
) -> tuple[Notice, ...]:
    found: list[Notice] = []
    total = len(asked.ids)
    reasons = Counter(answer.code for answer in told.answers if isinstance(answer, Unreadable))
    if reasons:
        codes = ", ".join(f"{code} ({count:,})" for code, count in reasons.most_common(5))
        found.append(
            notice("unreadable-answers", count=f"{metrics.n_unreadable:,}", total=f"{total:,}", shown=codes)
        )
    repaired = [answer.repaired for answer in told.answers if isinstance(answer, Answer) and answer.repaired]
    if repaired:
        kinds = Counter(what for each in repaired for what in each)
        listed = ", ".join(f"{what} ({count:,})" for what, count in kinds.most_common(5))
        found.append(notice("repaired-answers", count=f"{len(repaired):,}", total=f"{total:,}", shown=listed))
    found += nothing_expected(asked)
    if closed is not None:
        beside = dict.fromkeys(
            name for each in told.found if each is not None for name in each if name not in closed
        )
        if beside:
            found.append(
                notice("beside-vocabulary", count=f"{len(beside):,}", shown=some(list(beside), _SHOWN))
            )
    return tuple(found)
