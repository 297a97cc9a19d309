"""Which of the expected entities are there: of two texts or two lists, or of many images with an answer about each."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from genpr.entities.answer import Answer, Unreadable
from genpr.entities.expectations import Expectations, FoundEntities, read_answers, read_expectations
from genpr.entities.names import Names
from genpr.entities.text_files import some
from genpr.entities.vocabulary import Vocabulary
from genpr.errors import UsageError
from genpr.metrics.entities import EntityMetrics, EntityScore, entity_set_metrics
from genpr.notices import Notice, notice
from genpr.result import Result, SideSummary, package_versions
from genpr.summaries import EntityBounds, EntityRow, EntitySummary
from genpr.summaries import Unreadable as UnreadableAnswer
from genpr.values import MetricValue

Words = Vocabulary | str | os.PathLike[str] | Mapping[str, Sequence[str]] | Iterable[str]
"""A vocabulary, a file with one, a dictionary of entity -> aliases, or names."""

_SHOWN = 3


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
        >>> found = genpr.entity_metrics(
        ...     "尼尔·阿姆斯特朗 walked on the Moon",
        ...     ["The Moon was first visited by 阿姆斯特朗.", "Apollo 11"],
        ...     vocabulary=["尼尔·阿姆斯特朗", "Moon", "Apollo 11"],
        ...     aliases={"尼尔·阿姆斯特朗": ["阿姆斯特朗"]},
        ... )
        >>> found["recall"], found["precision"]
        (1.0, 0.6666666666666666)
    """
    closed, table = _tables(vocabulary, aliases)
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
        found: list[tuple[str, ...] | None] = [names.all_of(name for text in texts for name in closed.find(str(text)))]
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
    several = [isinstance(each, Collection) and not isinstance(each, str) or each is None for each in names]
    if names and all(several):
        return list(names)  # type: ignore[arg-type]
    if any(several) or not all(isinstance(each, str) for each in names):
        raise UsageError(
            "entities are a list of names, or a list of such lists; this one holds both, or something else",
            code="bad-option",
        )
    return [[str(each) for each in names]]


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
        >>> result = genpr.score_entities({"a": ["cat", "dog"], "b": ["car"]}, {"a": "Entities: cat", "b": "I see a car."})
        >>> result["entity.recall"], result["entity.failure_rate"], result.entities.unreadable[0].reason
        (0.5, 0.5, 'it is a text without a list of names')
    """
    started = time.perf_counter()
    closed, table = _tables(vocabulary, aliases)
    names = Names(table)
    barred = () if exclude is None else _vocabulary(exclude, "exclude").entities
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
    summary = _summary(metrics, asked, told, closed)
    return Result(
        metrics={f"entity.{name}": _value(score) for name, score in metrics.scores.items()},
        protocol="entities",
        ties="closed",
        distances="exact",
        extractor=None,
        extractors={},
        deviations=(),
        real=_asked_side(asked, table, closed),
        fake=_told_side(told),
        n_shared=0,
        device="cpu",
        seed=seed,
        max_images=None,
        seconds={"score": time.perf_counter() - started},
        versions=package_versions(),
        notices=_notices(metrics, asked, told, closed),
        undefined=tuple(f"entity.{name}" for name in metrics.undefined),
        entities=summary,
    )


def _tables(vocabulary: Words | None, aliases: Words | None) -> tuple[Vocabulary | None, Vocabulary | None]:
    """The closed vocabulary, and the table of all names."""
    closed = None if vocabulary is None else _vocabulary(vocabulary, "vocabulary")
    table = None if aliases is None else _vocabulary(aliases, "aliases")
    if closed is not None and table is not None:
        closed = closed.with_aliases(table)
    return closed, table if closed is None else closed


def _vocabulary(words: Words, what: str) -> Vocabulary:
    if isinstance(words, Vocabulary):
        return words
    if isinstance(words, str | os.PathLike):
        return Vocabulary.load(words)
    return Vocabulary.of(words, origin=f"<{what}>")


def _value(score: EntityScore) -> MetricValue:
    replicates = None if score.replicates is None else tuple(score.replicates.tolist())
    return MetricValue(score.value, None, interval=score.interval, replicates=replicates, n_counted=score.n)


def _summary(
    metrics: EntityMetrics, asked: Expectations, told: FoundEntities, closed: Vocabulary | None
) -> EntitySummary:
    read = Counter(answer.how for answer in told.answers if isinstance(answer, Answer))
    return EntitySummary(
        n_answers=len(told.answers),
        rows=tuple(EntityRow(row.entity, row.n_expected, row.n_found, row.n_false) for row in metrics.entities),
        unreadable=tuple(
            UnreadableAnswer(name, answer.reason, text)
            for name, answer, text in zip(asked.ids, told.answers, told.texts, strict=True)
            if isinstance(answer, Unreadable)
        ),
        bounds=tuple(
            EntityBounds(f"entity.{name}", *score.bounds) for name, score in metrics.scores.items() if score.bounds
        ),
        forms=tuple(read.most_common()),
        undefined=tuple((f"entity.{name}", why) for name, why in metrics.undefined.items()),
        vocabulary=None if closed is None else len(closed),
    )


def _asked_side(asked: Expectations, table: Vocabulary | None, closed: Vocabulary | None) -> SideSummary:
    """Everything that decides what is right: other aliases or another vocabulary are another set of prompts."""
    barred = asked.excluded or ((),) * len(asked.ids)
    rows = [
        json.dumps([name, sorted(wanted), sorted(out), group])
        for name, wanted, out, group in zip(asked.ids, asked.expected, barred, asked.groups, strict=True)
    ]
    rules = json.dumps([None if words is None else sorted(words.by_name.items()) for words in (table, closed)])
    content, order = _hash(rules, *sorted(rows)), _hash(rules, *rows)
    return _side(asked.origin, "prompts", asked.groups, content, order)


def _told_side(told: FoundEntities) -> SideSummary:
    rows = [json.dumps(None if found is None else sorted(found)) for found in told.found]
    return _side(told.origin, "answers", tuple(map(str, range(len(rows)))), _hash(*sorted(rows)), _hash(*rows))


def _side(source: str, what: str, distinct: Sequence[str], content: str, order: str) -> SideSummary:
    return SideSummary(
        source=source,
        n=len(distinct),
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


def _hash(*rows: str) -> str:
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


def _notices(
    metrics: EntityMetrics, asked: Expectations, told: FoundEntities, closed: Vocabulary | None
) -> tuple[Notice, ...]:
    found: list[Notice] = []
    total = len(asked.ids)
    reasons = Counter(answer.code for answer in told.answers if isinstance(answer, Unreadable))
    if reasons:
        shown = ", ".join(f"{code} ({count:,})" for code, count in reasons.most_common(5))
        found.append(notice("unreadable-answers", count=f"{metrics.n_unreadable:,}", total=f"{total:,}", shown=shown))
    repaired = [answer.repaired for answer in told.answers if isinstance(answer, Answer) and answer.repaired]
    if repaired:
        kinds = Counter(what for each in repaired for what in each)
        shown = ", ".join(f"{what} ({count:,})" for what, count in kinds.most_common(5))
        found.append(notice("repaired-answers", count=f"{len(repaired):,}", total=f"{total:,}", shown=shown))
    nothing = sum(not wanted for wanted in asked.expected)
    if nothing:
        hint = "the vocabulary may lack their entities, or aliases for them" if asked.from_prompts else ""
        facts = {"what": "prompts" if asked.from_prompts else "entries", "hint": hint}
        found.append(notice("nothing-expected", count=f"{nothing:,}", total=f"{total:,}", **facts))
    if closed is not None:
        beside = dict.fromkeys(name for each in told.found if each is not None for name in each if name not in closed)
        if beside:
            found.append(notice("beside-vocabulary", count=f"{len(beside):,}", shown=some(list(beside), _SHOWN)))
    short = [f"entity.{name}" for name, score in metrics.scores.items() if score.interval is None]
    if short:
        facts = {"reason": "fewer than 10 prompts with a readable answer", "remedy": "score more of them"}
        found.append(notice("no-intervals", names=", ".join(short), **facts))
    return tuple(found)
