"""Read what is expected in each image, and what answers say is there, with one name for each entity.

Files, mappings and lists hold a record per image.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genpr.conditional.answer_words import is_none
from genpr.conditional.parse_answers import Answer, Unreadable, read_entities
from genpr.conditional.vocabulary import CanonicalNames, Vocabulary
from genpr.errors import DataError, UsageError, short, some
from genpr.evaluation.tables import SUFFIXES, TableFormat, TableRow, read_table

_ID_NAMES = (
    *("id", "imageid", "image", "filename", "file", "path", "name", "key", "index"),
    *("编号", "图片", "图像", "文件名"),
)
_EXPECTED = TableFormat(
    what="expected entities",
    code="bad-records",
    fields={
        "id": _ID_NAMES,
        "expected": (
            *("expected", "expectedentities", "entities", "entity", "required", "include", "included"),
            *("objects", "labels", "实体", "期望", "期望实体", "应有实体"),
        ),
        "excluded": ("exclude", "excluded", "excludedentities", "forbidden", "absent", "排除", "不应出现"),
        "prompt": ("prompt", "text", "caption", "description", "提示词", "提示", "描述"),
        "group": ("group", "groupid", "promptid", "组", "组别"),
    },
    main="expected",
    text="prompt",
    repeated_code="duplicate-ids",
)
_FOUND = TableFormat(
    what="answers",
    code="bad-records",
    fields={
        "id": _ID_NAMES,
        "found": (
            *("found", "foundentities", "detected", "detectedentities", "present", "entities"),
            *("实体", "发现", "找到"),
        ),
        "answer": (
            *("answer", "response", "output", "raw", "rawanswer", "content", "text", "message", "result"),
            *("回答", "结果"),
        ),
    },
    main="found",
    text="answer",
    repeated_code="duplicate-ids",
)


@dataclass(frozen=True)
class Records:
    """What a file or a mapping says about images.

    Attributes:
        rows: In their order.
        ids: Of the images; None where the rows have none and are in the order of the images.
        origin: Where they come from, for messages.
    """

    rows: tuple[TableRow, ...]
    ids: tuple[str, ...] | None
    origin: str


def _read_records(source: object, form: TableFormat) -> Records:
    """Records from a file, from a mapping of id -> value, or from a sequence of values in order."""
    origin = f"<{form.what}>"
    if isinstance(source, str | os.PathLike):
        path, origin = Path(source), str(source)
        if path.suffix and path.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"{origin} is of unknown kind ({path.suffix}); {form.what} are a .csv, .tsv, .jsonl or .json with a record per "
                "image",
                code="records-kind",
                path=origin,
            )
        rows = list(read_table(path, form))
    elif isinstance(source, Mapping):
        rows = [
            TableRow(f"[{key!r}]", {"id": str(key), form.field_of(each): each})
            for key, each in source.items()
        ]
    elif isinstance(source, Iterable):
        rows = [TableRow(f"[{i}]", {form.field_of(each): each}) for i, each in enumerate(source)]
    else:
        raise UsageError(
            f"{form.what} are a file, a dictionary by id, or a list in order, not {type(source).__name__}",
            code="records-kind",
        )
    if not rows:
        raise form.error(origin, "it holds no records")
    fields = {field for each in rows for field in each.values}
    if not fields - {"id", "group"}:
        needed = " or ".join(field for field in form.fields if field not in {"id", "group", "excluded"})
        raise form.error(origin, f"it has no column {needed}")
    return Records(tuple(rows), _ids(rows, form, origin) if "id" in fields else None, origin)


def _ids(rows: Sequence[TableRow], form: TableFormat, origin: str) -> tuple[str, ...]:
    """The ids of all rows."""
    ids = []
    for row in rows:
        value = row.values.get("id")
        is_id = isinstance(value, str | int) and not isinstance(value, bool)
        ids.append(str(value).strip() if is_id else "")
        if not ids[-1]:
            raise form.error(origin, f"{row.where} has an empty id")
    if twice := [name for name, count in Counter(ids).items() if count > 1]:
        raise DataError(
            f"{origin} has {len(twice):,} ids more than once ({some(twice)}); needed is one record for each image",
            code="duplicate-ids",
            path=origin,
        )
    return tuple(ids)


def _match_answers(expected: Records, answers: Records) -> Sequence[TableRow]:
    """The answer to each expected record, in its order."""
    if expected.ids is None or answers.ids is None:
        if expected.ids == answers.ids and len(expected.rows) == len(answers.rows):
            return answers.rows
        kinds = [
            f"{each.origin} has {len(each.rows):,} records {'without' if each.ids is None else 'with'} ids"
            for each in (expected, answers)
        ]
        message = f"{' and '.join(kinds)}; needed are ids in both, or equally many records in the same order"
        raise DataError(message, code="ids-do-not-match", path=answers.origin)
    by_id = dict(zip(answers.ids, answers.rows, strict=True))
    missing = [name for name in expected.ids if name not in by_id]
    unknown = by_id.keys() - expected.ids
    parts = []
    if missing:
        parts.append(f"no answer for {len(missing):,} of {len(expected.ids):,} ({some(missing)})")
    if unknown:
        parts.append(
            f"{len(unknown):,} with ids that {expected.origin} does not have ({some(sorted(unknown))})"
        )
    if parts:
        hint = "record an empty answer as unreadable" if missing else "ids must be equal letter by letter"
        raise DataError(
            f"{answers.origin} has {' and '.join(parts)}; {hint}",
            code="ids-do-not-match",
            path=answers.origin,
        )
    return [by_id[name] for name in expected.ids]


_LONGEST_SHOWN = 200
_SEPARATORS = (";", "；", "|", "\n", "、", "，", ",")


@dataclass(frozen=True)
class Expectations:
    """What is expected.

    Attributes:
        ids: Of images, as in the file; "[3]" where it has none.
        expected: Entities by image.
        excluded: Entities that must not be there by image; None where nothing is excluded anywhere.
        groups: What images with the same prompt share, by image.
        records: As they were read.
        from_prompts: Whether entities were looked for in prompts.
    """

    ids: tuple[str, ...]
    expected: tuple[tuple[str, ...], ...]
    excluded: tuple[tuple[str, ...], ...] | None
    groups: tuple[str, ...]
    records: Records
    from_prompts: bool

    @property
    def origin(self) -> str:
        """Where they come from, for messages."""
        return self.records.origin

    def select(self, rows: Sequence[int]) -> Expectations:
        """Those of some images, in this order."""

        def take(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[row] for row in rows)

        return replace(
            self,
            ids=take(self.ids),
            expected=take(self.expected),
            excluded=None if self.excluded is None else take(self.excluded),
            groups=take(self.groups),
        )


@dataclass(frozen=True)
class FoundEntities:
    """What answers say.

    Attributes:
        answers: By image, as they were read.
        found: Entities by image; None where the answer could not be read.
        texts: How each answer begins.
        origin: Where they come from.
    """

    answers: tuple[Answer | Unreadable, ...]
    found: tuple[tuple[str, ...] | None, ...]
    texts: tuple[str, ...]
    origin: str


CLOSED_VOCABULARY = "the vocabulary, which is closed; add it there, or give its alias"
"""What to call a vocabulary in messages, and what to do."""


def read_expectations(
    source: object,
    names: CanonicalNames,
    vocabulary: Vocabulary | None,
    exclude: Iterable[str] = (),
    *,
    closed: str | None = CLOSED_VOCABULARY,
) -> Expectations:
    """Expected entities from a file, a mapping or a sequence; texts are prompts, in which the vocabulary is looked for.

    Args:
        source: See `genpr.score_entities`.
        names: Learns the names of all expected entities.
        vocabulary: What to look for in prompts.
        exclude: What must not be in any image.
        closed: What to call the vocabulary in the message about an expected entity that it does not have, and what to do;
            None if such entities are allowed.

    Raises:
        UsageError: There are prompts and no vocabulary ("no-vocabulary"), or for a file.
        DataError: An entry cannot be read ("bad-expectation"), or for a file.
    """
    records = _read_records(source, _EXPECTED)
    excluded_everywhere = tuple(exclude)
    from_prompts = not any("expected" in row.values for row in records.rows)
    if from_prompts and vocabulary is None and any("prompt" in row.values for row in records.rows):
        raise UsageError(
            f"{records.origin} holds prompts and no lists of expected entities; to look for entities in prompts, a "
            "vocabulary is needed",
            code="no-vocabulary",
        )
    ids = records.ids or tuple(f"[{i}]" for i in range(len(records.rows)))
    expected, excluded, groups = [], [], []
    for name, row in zip(ids, records.rows, strict=True):
        prompt = row.values.get("prompt")
        if from_prompts:
            required = vocabulary.find(_text(prompt, row, records)) if vocabulary is not None else ()
        elif "expected" not in row.values:
            raise _bad_expectation(
                records,
                row,
                "there is no list of expected entities; write an empty one where nothing is expected",
            )
        else:
            required = names.register(_listed(row.values["expected"], row, records, "expected"))
        unlisted = [entity for entity in required if vocabulary is not None and entity not in vocabulary]
        if unlisted and closed is not None:
            raise _bad_expectation(
                records, row, f"{short(unlisted[0], 60)!r} is expected and not in {closed}"
            )
        expected.append(required)
        forbidden = _listed(row.values.get("excluded"), row, records, "excluded")
        excluded.append(names.register([*excluded_everywhere, *forbidden]))
        groups.append(str(row.values.get("group") or prompt or name))
    return Expectations(
        ids=ids,
        expected=tuple(expected),
        excluded=tuple(excluded) if any(excluded) else None,
        groups=tuple(groups),
        records=records,
        from_prompts=from_prompts,
    )


def _text(prompt: object, row: TableRow, records: Records) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        raise _bad_expectation(records, row, f"needed is a prompt, found {short(repr(prompt), 60)}")
    return prompt


def _listed(value: object, row: TableRow, records: Records, what: str) -> tuple[str, ...]:
    """Names in a list, or in a text with one kind of separator; nothing and an empty text are no names."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    if isinstance(value, str) and value.strip()[0] not in "[{":
        separator = next((mark for mark in _SEPARATORS if mark in value), None)
        return tuple(name.strip() for name in ([value] if separator is None else value.split(separator)))
    if isinstance(value, set | frozenset | tuple):
        value = sorted(value, key=str)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    outcome = read_entities(value)  # a list of objects with names, or JSON in a cell
    if isinstance(outcome, Unreadable):
        raise _bad_expectation(
            records,
            row,
            f"the {what} entities cannot be read ({outcome.reason}); write them as a;b;c or as a JSON list, found "
            f"{short(repr(value), 60)}",
        )
    return outcome.entities


def _bad_expectation(records: Records, row: TableRow, why: str) -> DataError:
    return DataError(f"{records.origin}, {row.where}: {why}", code="bad-expectation", path=records.origin)


def read_answers(source: object, expectations: Expectations, names: CanonicalNames) -> FoundEntities:
    """The answer to each expectation.

    Args:
        source: See `genpr.score_entities`.
        expectations: What they are about.
        names: Knows the names of all expected entities.

    Raises:
        UsageError, DataError: The file is missing or damaged, or ids do not match.
    """
    records = _read_records(source, _FOUND)
    rows = _match_answers(expectations.records, records)
    answers = tuple(_read(row, names) for row in rows)
    found = tuple(names.match(answer.entities) if isinstance(answer, Answer) else None for answer in answers)
    return FoundEntities(answers, found, tuple(map(_shown_answer, rows)), records.origin)


def _read(row: TableRow, names: CanonicalNames) -> Answer | Unreadable:
    """A list of found entities, or a text of a model, in which a single name counts where it is known."""
    found = row.values.get("found")
    if isinstance(found, Answer | Unreadable):
        return found
    if isinstance(found, list | tuple | set | frozenset) and all(isinstance(name, str) for name in found):
        return Answer(() if len(found) == 1 and is_none(*found) else tuple(found), "list")
    answer: Any = row.values.get("answer")
    value = {"entities": found} if "found" in row.values else "" if answer is None else answer
    return read_entities(value, known=lambda name: names.get(name) is not None)


def _shown_answer(row: TableRow) -> str:
    answer = row.values.get("found", row.values.get("answer", ""))
    if isinstance(answer, str):
        return answer[:_LONGEST_SHOWN]
    try:
        return json.dumps(answer, ensure_ascii=False)[:_LONGEST_SHOWN]
    except (TypeError, ValueError, RecursionError):
        return type(answer).__name__
