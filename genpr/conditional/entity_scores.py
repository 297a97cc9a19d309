"""Entity recall and precision: what is found in texts, lists or answers about images, against what should be there."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from genpr.conditional.entity_records import Expectations, FoundEntities, read_answers, read_expectations
from genpr.conditional.parse_answers import Answer, Unreadable
from genpr.conditional.vocabulary import (
    CanonicalNames,
    Vocabulary,
    Words,
    as_vocabulary,
    load_vocabulary,
)
from genpr.errors import UsageError, short, some
from genpr.evaluation.result import (
    EntityBounds,
    EntityRow,
    EntitySummary,
    Result,
    SideSummary,
    package_versions,
)
from genpr.evaluation.result import Unreadable as UnreadableAnswer
from genpr.evaluation.tables import is_folder
from genpr.metrics.entities import EntityMetrics, EntityScore, entity_set_metrics
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

PROTOCOL = "entities"
_IMAGE_SUFFIXES = (
    *(".zip", ".tar", ".tgz", ".gz", ".tbz", ".tbz2", ".bz2", ".txz", ".xz"),
    *(".npz", ".npy", ".safetensors"),
)


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
    closed, table = load_vocabulary(vocabulary, aliases)
    names = CanonicalNames(table)
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
            names.register(name for text in texts for name in closed.find(str(text)))
        ]
    else:
        if isinstance(contexts, str):
            raise UsageError(
                "a list of entities is compared with another list, not with a text; find those of the text with "
                "Vocabulary.find",
                code="bad-option",
            )
        expected_lists, found_lists = _as_lists(reference), _as_lists(contexts)
        expected = [names.register(each or ()) for each in expected_lists]
        found = [None if each is None else names.match(each) for each in found_lists]
    excluded_names = names.register(excluded)
    return entity_set_metrics(
        expected,
        found,
        vocabulary=None if closed is None else closed.entities,
        excluded=[excluded_names] * len(expected) if excluded_names else None,
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
    _check_answers(found)
    closed, table = load_vocabulary(vocabulary, aliases)
    names = CanonicalNames(table)
    excluded_names = () if exclude is None else as_vocabulary(exclude, "exclude").entities
    expectations = read_expectations(expected, names, closed, excluded_names)
    answers = read_answers(found, expectations, names)
    metrics = entity_set_metrics(
        expectations.expected,
        answers.found,
        vocabulary=None if closed is None else closed.entities,
        excluded=expectations.excluded,
        groups=expectations.groups,
        seed=seed,
    )
    return Result(
        metrics={f"entity.{name}": metric_value(score) for name, score in metrics.scores.items()},
        extractor=None,
        extractors={},
        fake=_answers_summary(answers),
        device="cpu",
        max_images=None,
        seconds={"score": time.perf_counter() - started},
        notices=_notices(metrics, expectations, answers, closed),
        entities=_summary(metrics, expectations, answers, closed),
        **common_fields(metrics, expectations, table, closed, seed=seed),
    )


def common_fields(
    metrics: EntityMetrics,
    expectations: Expectations,
    table: Vocabulary | None,
    closed: Vocabulary | None,
    *,
    seed: int,
) -> dict[str, Any]:
    """The fields that results of answers and of images share."""
    return {
        "protocol": PROTOCOL,
        "ties": "closed",
        "distances": "exact",
        "deviations": (),
        "real": expectations_summary(expectations, table, closed),
        "n_shared": 0,
        "seed": seed,
        "versions": package_versions(),
        "undefined": tuple(f"entity.{name}" for name in metrics.undefined),
    }


def _check_answers(found: object) -> None:
    """Refuse images."""
    if isinstance(found, str | os.PathLike):
        path = Path(found)
        is_images, what = path.suffix.lower() in _IMAGE_SUFFIXES or is_folder(path), short(str(found), 60)
    else:
        is_images, what = getattr(found, "ndim", 0) == 4, f"<{type(found).__name__}>"
    if is_images:
        raise UsageError(
            f"{what} holds images, not answers about them; needed is a classifier of images: --by clip-vit-b-32, --by "
            "DETECTOR (in Python: genpr.score_entities_in_images), or a file of answers (.csv, .tsv, .jsonl, .json)",
            code="images-not-answers",
        )


def metric_value(
    score: EntityScore, *, extractor: str | None = None, variant: str | None = None
) -> MetricValue:
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
    metrics: EntityMetrics, expectations: Expectations, answers: FoundEntities, closed: Vocabulary | None
) -> EntitySummary:
    read = Counter(answer.how for answer in answers.answers if isinstance(answer, Answer))
    return EntitySummary(
        n_answers=len(answers.answers),
        rows=entity_rows(metrics),
        unreadable=tuple(
            UnreadableAnswer(name, answer.reason, text)
            for name, answer, text in zip(expectations.ids, answers.answers, answers.texts, strict=True)
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


def entity_rows(metrics: EntityMetrics) -> tuple[EntityRow, ...]:
    """One per entity, the worst first."""
    return tuple(EntityRow(row.entity, row.n_expected, row.n_found, row.n_false) for row in metrics.entities)


def expectations_summary(
    expectations: Expectations, table: Vocabulary | None, closed: Vocabulary | None
) -> SideSummary:
    """Everything that decides what is right: other aliases or another vocabulary are another set of prompts."""
    excluded_names = expectations.excluded or ((),) * len(expectations.ids)
    rows = [
        json.dumps([name, sorted(names), sorted(others), group])
        for name, names, others, group in zip(
            expectations.ids, expectations.expected, excluded_names, expectations.groups, strict=True
        )
    ]
    rules = json.dumps(
        [None if words is None else sorted(words.by_name.items()) for words in (table, closed)]
    )
    content, order = sha256_of_rows(rules, *sorted(rows)), sha256_of_rows(rules, *rows)
    return _text_summary(expectations.origin, "prompts", len(expectations.ids), content, order)


def _answers_summary(answers: FoundEntities) -> SideSummary:
    rows = [json.dumps(None if found is None else sorted(found)) for found in answers.found]
    return _text_summary(
        answers.origin, "answers", len(rows), sha256_of_rows(*sorted(rows)), sha256_of_rows(*rows)
    )


def _text_summary(source: str, what: str, n: int, content: str, order: str) -> SideSummary:
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


def sha256_of_rows(*rows: str) -> str:
    """sha256 over texts."""
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


def nothing_expected_notices(expectations: Expectations) -> list[Notice]:
    """Whether there are images that say nothing about recall."""
    nothing = sum(not names for names in expectations.expected)
    if not nothing:
        return []
    hint = "the vocabulary may lack their entities, or aliases for them" if expectations.from_prompts else ""
    facts = {"what": "prompts" if expectations.from_prompts else "entries", "hint": hint}
    return [notice("nothing-expected", count=f"{nothing:,}", total=f"{len(expectations.ids):,}", **facts)]


def _notices(
    metrics: EntityMetrics, expectations: Expectations, answers: FoundEntities, closed: Vocabulary | None
) -> tuple[Notice, ...]:
    found: list[Notice] = []
    total = len(expectations.ids)
    reasons = Counter(answer.code for answer in answers.answers if isinstance(answer, Unreadable))
    if reasons:
        codes = ", ".join(f"{code} ({count:,})" for code, count in reasons.most_common(5))
        found.append(
            notice("unreadable-answers", count=f"{metrics.n_unreadable:,}", total=f"{total:,}", shown=codes)
        )
    repaired = [
        answer.repaired for answer in answers.answers if isinstance(answer, Answer) and answer.repaired
    ]
    if repaired:
        kinds = Counter(what for each in repaired for what in each)
        listed = ", ".join(f"{what} ({count:,})" for what, count in kinds.most_common(5))
        found.append(notice("repaired-answers", count=f"{len(repaired):,}", total=f"{total:,}", shown=listed))
    found += nothing_expected_notices(expectations)
    if closed is not None:
        unlisted = dict.fromkeys(
            name for each in answers.found if each is not None for name in each if name not in closed
        )
        if unlisted:
            found.append(
                notice("beside-vocabulary", count=f"{len(unlisted):,}", shown=some(list(unlisted), 3))
            )
    return tuple(found)
