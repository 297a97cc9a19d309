"""Entity recall of texts and lists, without images.

Score what was found in many images, or in answers about them, against what should be there.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from genpr.conditional.entity_records import Expectations, FoundEntities, read_answers, read_expectations
from genpr.conditional.parse_answers import Answer, Unreadable
from genpr.conditional.vocabulary import Names, Vocabulary
from genpr.errors import UsageError, some
from genpr.evaluation.result import (
    EntityBounds,
    EntityRow,
    EntitySummary,
    Result,
    SideSummary,
    package_versions,
)
from genpr.evaluation.result import Unreadable as UnreadableAnswer
from genpr.metrics.entities import EntityMetrics, EntityScore, entity_set_metrics
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice
from genpr.report.safe_text import shown

Words = Vocabulary | str | os.PathLike[str] | Mapping[str, Sequence[str]] | Iterable[str]
"""A vocabulary, a file with one, a dictionary of entity -> aliases, or names."""


def entity_metrics(
    reference: str | Sequence[str] | Sequence[Collection[str]],
    contexts: str | Sequence[str] | Sequence[Collection[str] | None],
    *,
    vocabulary: Words | None = None,
    aliases: Words | None = None,
    excluded: Sequence[str] = (),
    seed: int = 0,
) -> EntityMetrics:
    """Entity recall of texts or lists, without images: |named in both| / |named in the reference|; aliases count once.

    Args:
        reference: What should be there: a text, which is searched; a list of entities; or a list of such lists, one for
            each of several images or texts.
        contexts: What is there: a text or, beside a reference that is a text, a list of texts, which are taken together; a
            list of entities; or a list of lists, None for what could not be read.
        vocabulary: What to look for in texts, and what could be there at all; needed for texts, and for precision. See
            `Vocabulary`.
        aliases: Names that mean the same entity.
        excluded: What must not be there.
        seed: Chooses the halves of intervals, of which there are some for 10 images or more.

    Raises:
        UsageError: There is a text and no vocabulary ("no-vocabulary"), or the two sides do not fit ("bad-option").
        DataError: The vocabulary and the aliases disagree ("alias-conflict"), or what is expected cannot be
            ("bad-expectation").

    Example:
        >>> import genpr
        >>> found = genpr.entity_metrics(
        ...     "尼尔·阿姆斯特朗 walked on the Moon",
        ...     ["The Moon was first visited by 阿姆斯特朗.", "Apollo 11"],
        ...     vocabulary=["尼尔·阿姆斯特朗", "Moon", "Apollo 11"],
        ...     aliases={"尼尔·阿姆斯特朗": ["阿姆斯特朗"]},
        ... )
        >>> found["recall"], found["precision"]
        (1.0, 0.6666666666666666)
    """
    closed, table = tables_of(vocabulary, aliases)
    names = Names(table)
    if isinstance(reference, str):
        texts = [contexts] if isinstance(contexts, str) else list(contexts)
        if closed is None or not all(isinstance(text, str) for text in texts):
            raise UsageError(
                "a text is searched for the entities of a vocabulary; needed are vocabulary=, and a text or texts to compare "
                "with",
                code="no-vocabulary" if closed is None else "bad-option",
            )
        expected: list[tuple[str, ...]] = [closed.find(reference)]
        found: list[tuple[str, ...] | None] = [
            names.all_of(name for text in texts for name in closed.find(str(text)))
        ]
    else:
        if isinstance(contexts, str):
            raise UsageError(
                "a list of entities is compared with another list, not with a text; find those of the text with "
                "Vocabulary.find",
                code="bad-option",
            )
        wanted, there = _as_lists(reference), _as_lists(contexts)
        expected = [names.all_of(each or ()) for each in wanted]
        found = [None if each is None else names.all_found(each) for each in there]
    barred = names.all_of(excluded)
    return entity_set_metrics(
        expected,
        found,
        vocabulary=None if closed is None else closed.entities,
        excluded=[barred] * len(expected) if barred else None,
        seed=seed,
    )


def _as_lists(names: Sequence[object]) -> list[Collection[str] | None]:
    """One list, or several."""
    several = [each is None or (isinstance(each, Collection) and not isinstance(each, str)) for each in names]
    if names and all(several):
        return list(names)  # type: ignore[arg-type]
    if any(several) or not all(isinstance(each, str) for each in names):
        raise UsageError(
            "entities are a list of names, or a list of such lists; this one holds both, or something else",
            code="bad-option",
        )
    return [[str(each) for each in names]]


def tables_of(vocabulary: Words | None, aliases: Words | None) -> tuple[Vocabulary | None, Vocabulary | None]:
    """The closed vocabulary, and the table of all names.

    Raises:
        UsageError, DataError: As `Vocabulary.load` and `Vocabulary.of`; or they disagree ("alias-conflict").
    """
    closed = None if vocabulary is None else vocabulary_of(vocabulary, "vocabulary")
    table = None if aliases is None else vocabulary_of(aliases, "aliases")
    if closed is not None and table is not None:
        closed = closed.with_aliases(table)
    return closed, table if closed is None else closed


def vocabulary_of(words: Words, what: str) -> Vocabulary:
    """A vocabulary from whatever a user gave; `what` names it for messages."""
    if isinstance(words, Vocabulary):
        return words
    if isinstance(words, str | os.PathLike):
        return Vocabulary.load(words)
    return Vocabulary.of(words, origin=f"<{what}>")


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
