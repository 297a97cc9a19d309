"""Entity recall and precision: entities found in lists or answers about images, compared with expected entities."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from genpr.conditional import parse_answers
from genpr.conditional.parse_answers import Answer, is_none, read_entities
from genpr.conditional.shared import text_side
from genpr.conditional.vocabulary import CanonicalNames, Vocabulary, Words, as_vocabulary, normalize_name
from genpr.errors import DataError, UsageError, short, some
from genpr.evaluation.result import EntitySummary, Result, SideSummary, Unreadable, package_versions
from genpr.evaluation.tables import ImageValues, TableFormat, TableRow, read_records, values_by_id
from genpr.features.extractor import ExtractorInfo
from genpr.metrics.entities import entity_set_metrics
from genpr.notices import Notice, notice

_IDS = "id imageid image filename file name path"
_EXPECTED = TableFormat(
    what="expected entities",
    code="bad-records",
    fields={
        "id": _IDS,
        "expected": "expected entities include objects",
        "excluded": "exclude excluded",
        "prompt": "prompt text caption",
        "group": "group promptid",
    },
    main="expected",
    text="prompt",
)
_FOUND = replace(
    _EXPECTED,
    what="answers",
    fields={"id": _IDS, "found": "found entities", "answer": "answer response output content text"},
    main="found",
    text="answer",
)
_OF_IMAGES = "; images need a classifier, by --classifier or genpr.score_entities_in_images"


def score_entities(
    expected: object,
    found: object,
    *,
    vocabulary: Words | None = None,
    exclude: Words | None = None,
    seed: int = 0,
) -> Result:
    """Compare the entities found in images, or in answers about images, with the expected entities.

    Args:
        expected: A file (.csv, .jsonl, .json) with an id and the expected entities of each image, or with prompts, which are
            searched for the vocabulary; a dictionary of id -> list of entities or prompt; or a list of these in order.
            Files may also have excluded entities, and groups of images with a common prompt.
        found: A file with the answer of a language model or a list of found entities by id, or a dictionary or list of
            these. Answers may have many formats, see `read_entities`; unreadable ones are counted, listed, and left out.
        vocabulary: All possible entities with their aliases; gives precision, and finds entities in prompts.
        exclude: Entities that must not be in any image.
        seed: Seed of the halves for intervals.

    Raises:
        UsageError, DataError: A file is missing, damaged, or does not match the other, or an expectation is not in the vocabulary.

    Example:
        >>> import genpr
        >>> result = genpr.score_entities({"a": ["cat", "dog"], "b": ["car"]}, {"a": '["cat"]', "b": "I see a car."})
        >>> result["entity.recall"], result["entity.failure_rate"], result.entities.unreadable[0].reason
        (0.5, 0.5, "'I see a car.' is not a name")
    """
    started = time.perf_counter()
    closed = None if vocabulary is None else as_vocabulary(vocabulary, "vocabulary")
    expectations = read_expectations(expected, closed, exclude)
    rows, ids, origin = _read_records(found, _FOUND, _OF_IMAGES)
    if (ids is not None) != expectations.has_ids:
        message = (
            f"{origin} and {expectations.origin} must both have ids, or both have records in the same order"
        )
        raise DataError(message, code="ids-do-not-match", path=origin)
    table, expected_ids = values_by_id(ids, rows, origin, "answer"), [row.id for row in expectations.rows]
    answers = table.match_all(expected_ids, range(len(expected_ids)), len(expected_ids))
    table.check_used(expected_ids)
    canonical, unreadable = list[tuple[str, ...] | None](), list[Unreadable]()
    codes = Counter[str]()
    for expectation, row in zip(expectations.rows, answers, strict=True):
        given = row.values.get("found", row.values.get("answer"))
        answer = _read(row, given, lambda name: normalize_name(name) in expectations.names)
        if isinstance(answer, Answer):
            canonical.append(expectations.names.match(answer.entities))
        else:
            canonical.append(None)
            codes[answer.code] += 1
            unreadable.append(Unreadable(expectation.id, answer.reason, short(str(given), 200)))
    notices = []
    if codes:
        shown = ", ".join(f"{code} ({count:,})" for code, count in codes.most_common(5))
        total = f"{len(canonical):,}"
        notices.append(notice("unreadable-answers", count=f"{codes.total():,}", total=total, shown=shown))
    every = dict.fromkeys(name for each in canonical for name in each or ())
    if unlisted := [name for name in every if closed is not None and name not in closed]:
        count = f"{len(unlisted):,}"
        notices.append(notice("outside-vocabulary", count=count, shown=some(unlisted, 3)))
    encoded = [json.dumps(None if each is None else sorted(each)) for each in canonical]
    return entity_result(
        expectations,
        canonical,
        closed,
        seed=seed,
        notices=notices,
        summary={"unreadable": tuple(unreadable)},
        fake=_side_of(origin, "answers", encoded),
        device="cpu",
        max_images=None,
        seconds={"score": time.perf_counter() - started},
    )


def entity_result(
    expectations: Expectations,
    found: Sequence[Collection[str] | None],
    closed: Vocabulary | None,
    *,
    seed: int,
    notices: Iterable[Notice],
    summary: Mapping[str, Any],
    extractor: ExtractorInfo | None = None,
    variant: str | None = None,
    **fields: Any,  # noqa: ANN401 - the other fields of the result
) -> Result:
    """The result of answers or of images."""
    rows = expectations.rows
    metrics = entity_set_metrics(
        [row.expected for row in rows],
        found,
        vocabulary=None if closed is None else closed.entities,
        excluded=[row.excluded for row in rows],
        groups=[row.group for row in rows],
        seed=seed,
    )
    # A classifier has no unreadable answers.
    scores = {k: v for k, v in metrics.scores.items() if k != "failure_rate" or "classifier" not in summary}
    name = None if extractor is None else extractor.name
    nothing, of_prompts = sum(not row.expected for row in rows), expectations.from_prompts
    if nothing:  # such images do not affect recall
        hint = "the vocabulary may lack their entities, or aliases for them" if of_prompts else ""
        facts = {"count": f"{nothing:,}", "total": f"{len(rows):,}", "hint": hint}
        what = "prompts" if of_prompts else "entries"
        notices = [*notices, notice("nothing-expected", what=what, **facts)]
    return Result(
        extractor=extractor,
        extractors={} if extractor is None else {extractor.name: extractor},
        deviations=(),
        n_shared=0,
        versions=package_versions(),
        metrics={f"entity.{k}": replace(v, extractor=name, variant=variant) for k, v in scores.items()},
        protocol="entities",
        ties="closed",
        real=expectations_side(expectations, closed),
        undefined=tuple(f"entity.{each}" for each in metrics.undefined),
        notices=tuple(notices),
        entities=EntitySummary(
            n_answers=metrics.n,
            rows=metrics.entities,
            undefined=tuple((f"entity.{each}", why) for each, why in metrics.undefined.items()),
            vocabulary=None if closed is None else len(closed),
            **summary,
        ),
        seed=seed,
        **fields,
    )


def expectations_side(expectations: Expectations, closed: Vocabulary | None) -> SideSummary:
    """The expectations as a source; another vocabulary changes its identity."""
    rows = [
        json.dumps([row.id, sorted(row.expected), sorted(row.excluded), row.group])
        for row in expectations.rows
    ]
    rules = None if closed is None else sorted(closed.by_name.items())
    return _side_of(expectations.origin, "prompts", rows, json.dumps(rules))


def _side_of(source: str, what: str, rows: Sequence[str], *rules: str) -> SideSummary:
    content, order = sha256_of_rows(*rules, *sorted(rows)), sha256_of_rows(*rules, *rows)
    return text_side(source, what, n=len(rows), content=content, order=order)


def sha256_of_rows(*rows: str) -> str:
    """sha256 of texts."""
    return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


Records = tuple[Sequence[TableRow], Sequence[str] | None, str]


def _read_records(source: object, form: TableFormat, hint: str = "") -> Records:
    """Rows, their ids or None, and the name of their source."""
    rows, origin = read_records(source, form, hint=hint)
    fields = {field for each in rows for field in each.values}
    if not fields - {"id", "group"}:
        needed = " or ".join(field for field in form.fields if field not in {"id", "group", "excluded"})
        raise form.error(origin, f"it has no records with {needed}")
    if "id" not in fields:
        return rows, None, origin
    values = [row.values.get("id") for row in rows]
    ids = [str(value).strip() if isinstance(value, str | int) else "" for value in values]
    if "" in ids:
        raise form.error(origin, f"{rows[ids.index('')].where} has an empty id")
    if twice := [name for name, count in Counter(ids).items() if count > 1]:
        reason = f"{len(twice):,} ids occur more than once ({some(twice)}); expected one record per image"
        raise form.error(origin, reason, code="duplicate-ids")
    return rows, ids, origin


class Expectation(NamedTuple):
    """The expected entities of an image."""

    id: str  # as in the file; "[3]" without one
    expected: tuple[str, ...]
    excluded: tuple[str, ...]  # entities that must not be present
    group: str  # shared by images with the same prompt


@dataclass(frozen=True)
class Expectations:
    """The expected entities of all images."""

    rows: tuple[Expectation, ...]
    names: CanonicalNames  # of the vocabulary, and of all expected entities
    has_ids: bool
    origin: str  # for messages
    from_prompts: bool  # whether entities were found in prompts

    @property
    def table(self) -> ImageValues[int]:
        """The row of each image, by its name or in order."""
        ids = [each.id for each in self.rows] if self.has_ids else None
        return values_by_id(ids, range(len(self.rows)), self.origin, "expectation")


def read_expectations(
    source: object,
    vocabulary: Vocabulary | None,
    exclude: Words | None = None,
    *,
    closed: str | None = "the vocabulary",
) -> Expectations:
    """Expected entities from a file, a mapping or a sequence; texts are prompts, which are searched for the vocabulary.

    `exclude` must not be in any image. `closed` names the vocabulary in the message about an entity that it lacks; None allows
    such entities.
    """
    rows, ids, origin = _read_records(source, _EXPECTED)
    excluded_everywhere = () if exclude is None else as_vocabulary(exclude, "exclude").entities
    from_prompts = not any("expected" in row.values for row in rows)
    if from_prompts and vocabulary is None and any("prompt" in row.values for row in rows):
        message = (
            f"{origin} has prompts but no lists of entities; finding entities in prompts needs a vocabulary"
        )
        raise UsageError(message, code="no-vocabulary")
    found, names = [], CanonicalNames(vocabulary)
    for name, row in zip(ids or [f"[{i}]" for i in range(len(rows))], rows, strict=True):
        try:
            required = names.register(_expected_in(row, vocabulary if from_prompts else None))
            forbidden = _listed(row.values.get("excluded"))
            new = [entity for entity in required if vocabulary is not None and entity not in vocabulary]
            if new and closed is not None:
                raise ValueError(f"{short(new[0], 60)!r} is not in {closed}; add it, or define an alias")  # noqa: TRY301
        except ValueError as error:
            raise DataError(f"{origin}, {row.where}: {error}", code="bad-expectation", path=origin) from error
        excluded = names.register([*excluded_everywhere, *forbidden])
        group = str(row.values.get("group") or row.values.get("prompt") or name)
        found.append(Expectation(name, required, excluded, group))
    return Expectations(tuple(found), names, ids is not None, origin, from_prompts)


def _expected_in(row: TableRow, vocabulary: Vocabulary | None) -> tuple[str, ...]:
    """The expected entities of a row: those of a vocabulary in its prompt, or its list."""
    if vocabulary is None:
        if "expected" not in row.values:
            raise ValueError("there is no list of expected entities; use an empty list for none")
        return _listed(row.values["expected"])
    prompt = row.values.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"expected a prompt, found {short(repr(prompt), 60)}")
    return vocabulary.find(prompt)


def _listed(value: object) -> tuple[str, ...]:
    """Names in a list, or in a text with ";" or commas; None and an empty text have no names."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    if isinstance(value, str) and value.strip()[0] not in "[{":
        return tuple(name.strip() for name in value.split(";" if ";" in value else ","))
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        names: list[Any] = [
            each.get("class") if isinstance(each, dict) else each for each in value
        ]  # as in GenEval
        if all(isinstance(name, str) for name in names):
            return tuple(names)
    outcome = read_entities(value)  # JSON in a cell
    if isinstance(outcome, Answer):
        return outcome.entities
    reason = f"the entities {short(repr(value), 60)} cannot be read ({outcome.reason}); write them as a;b;c"
    raise ValueError(reason)


def _read(row: TableRow, given: object, known: Callable[[str], bool]) -> Answer | parse_answers.Unreadable:
    """The entities in a list of names, in a line of them that is no JSON, or in the answer of a model."""
    bare = given.strip() if isinstance(given, str) else ""
    is_line = bare and bare[0] not in "[{`" and "\n" not in bare
    is_list = isinstance(given, list | tuple | set | frozenset) and all(
        isinstance(each, str) for each in given
    )
    if "found" in row.values and (is_line or is_list):
        names = _listed(given)
        return Answer(() if len(names) == 1 and is_none(*names) else names)
    return read_entities("" if given is None else given, known=known)
