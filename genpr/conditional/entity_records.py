"""Read what is expected in each image, and what answers say is there, with one name for each entity.

Files, mappings and lists hold a record per image.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genpr.conditional.answer_words import is_none, normalize_key
from genpr.conditional.parse_answers import Answer, Unreadable, read_entities
from genpr.conditional.text_files import read_csv, read_text
from genpr.conditional.vocabulary import CanonicalNames, Vocabulary
from genpr.errors import DataError, UsageError, short, some
from genpr.limits import check_json, parse_json

ID = "id"
_ID_NAMES = (
    *("id", "imageid", "image", "filename", "file", "path", "name", "key", "index"),
    *("编号", "图片", "图像", "文件名"),
)
EXPECTED_FIELDS: Mapping[str, tuple[str, ...]] = {
    ID: _ID_NAMES,
    "expected": (
        *("expected", "expectedentities", "entities", "entity", "required", "include", "included"),
        *("objects", "labels", "实体", "期望", "期望实体", "应有实体"),
    ),
    "excluded": ("exclude", "excluded", "excludedentities", "forbidden", "absent", "排除", "不应出现"),
    "prompt": ("prompt", "text", "caption", "description", "提示词", "提示", "描述"),
    "group": ("group", "groupid", "promptid", "组", "组别"),
}
"""Fields of a file of expectations, with the names of their columns or keys, in order of preference."""

FOUND_FIELDS: Mapping[str, tuple[str, ...]] = {
    ID: _ID_NAMES,
    "found": (
        *("found", "foundentities", "detected", "detectedentities", "present", "entities"),
        *("实体", "发现", "找到"),
    ),
    "answer": (
        *("answer", "response", "output", "raw", "rawanswer", "content", "text", "message", "result"),
        *("回答", "结果"),
    ),
}
"""The same for a file of answers."""

_SUFFIXES = {".csv", ".tsv", ".jsonl", ".ndjson", ".json"}


@dataclass(frozen=True)
class Record:
    """What a file or a mapping says about one image.

    Attributes:
        id: Names the image; "" where the file has no ids.
        fields: By canonical name, those that are there.
        place: Where it stands, for messages.
    """

    id: str
    fields: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class Records:
    """All of a file.

    Attributes:
        rows: In their order.
        origin: Where they come from, for messages.
        has_ids: Whether images are named, or come in order.
    """

    rows: tuple[Record, ...]
    origin: str
    has_ids: bool


def records_of(
    source: object, fields: Mapping[str, tuple[str, ...]], main: str, what: str, text: str | None = None
) -> Records:
    """Records from a file, from a mapping of id -> value, or from a sequence of values in order.

    Args:
        source: A path, a mapping or a sequence.
        fields: Canonical names of fields, with their column names.
        main: The field that a mapping's or sequence's values belong to.
        what: What the file should hold, for messages.
        text: The field of such values where they are text; None for the same.

    Raises:
        UsageError: There is no such file, or it is of no such kind ("records-kind").
        DataError: It is damaged ("bad-records"), lacks the field, or two records have one id ("duplicate-ids").
    """
    if isinstance(source, str | os.PathLike):
        found = _from_file(Path(source), fields, main, text, what)
    elif isinstance(source, Mapping):
        rows = [Record(str(key), _field(value, main, text), f"[{key!r}]") for key, value in source.items()]
        found = Records(tuple(rows), f"<{what}>", has_ids=True)
    elif isinstance(source, Iterable):
        rows = [Record("", _field(value, main, text), f"[{i}]") for i, value in enumerate(source)]
        found = Records(tuple(rows), f"<{what}>", has_ids=False)
    else:
        raise UsageError(
            f"{what} are a file, a dictionary by id, or a list in order, not {type(source).__name__}",
            code="records-kind",
        )
    if not found.rows:
        raise _bad(found.origin, what, "it holds no records")
    if found.has_ids:
        _check_ids(found, what)
    return found


def _field(value: object, main: str, text: str | None) -> dict[str, Any]:
    return {text if text is not None and isinstance(value, str) else main: value}


def _check_ids(found: Records, what: str) -> None:
    seen: set[str] = set()
    twice: list[str] = []
    for row in found.rows:
        if not row.id:
            raise _bad(found.origin, what, f"{row.place} has an empty id")
        if row.id in seen:
            twice.append(row.id)
        seen.add(row.id)
    if twice:
        raise DataError(
            f"{found.origin} has {len(twice):,} ids more than once ({some(twice)}); needed is one record for each image",
            code="duplicate-ids",
            path=found.origin,
        )


def _from_file(
    path: Path, fields: Mapping[str, tuple[str, ...]], main: str, text_field: str | None, what: str
) -> Records:
    suffix, origin = path.suffix.lower(), str(path)
    if suffix not in _SUFFIXES and path.suffix:
        raise UsageError(
            f"{path} is of unknown kind ({suffix}); {what} are a .csv, .tsv, .jsonl or .json with a record per image",
            code="records-kind",
            path=origin,
        )
    text = read_text(path, what)
    if suffix in {".csv", ".tsv"}:
        records = _csv_records(text, origin, what, "\t" if suffix == ".tsv" else ",")
    elif suffix == ".json":
        records = _json_records(text, origin, what, lambda value: _field(value, main, text_field))
    else:
        records = _json_lines_records(text, origin, what)
    return _with_fields(records, fields, origin, what)


_RawRecords = list[tuple[str, Mapping[str, Any]]]  # place and fields


def _json_lines_records(text: str, origin: str, what: str) -> _RawRecords:
    records: _RawRecords = []
    try:
        check_json(text)
    except ValueError as error:
        raise _bad(origin, what, str(error)) from error
    # Not splitlines: JSON may hold the other line separators of Unicode as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = parse_json(line)
        except ValueError as error:
            raise _bad(origin, what, f"line {number:,} is no JSON ({error})") from error
        if not isinstance(found, dict):
            raise _bad(origin, what, f"line {number:,} holds no object with keys, but {short(line)}")
        records.append((f"line {number:,}", found))
    return records


def _json_records(
    text: str, origin: str, what: str, field: Callable[[object], dict[str, Any]]
) -> _RawRecords:
    """A list of objects, or an object of id -> value."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise _bad(origin, what, f"it is no JSON ({error})") from error
    if isinstance(found, dict):
        return [(short(key), {ID: key, **field(value)}) for key, value in found.items()]
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _bad(origin, what, "needed is a list of objects, or an object with an entry for each id")
    return [(f"record {number:,}", each) for number, each in enumerate(found, 1)]


def _csv_records(text: str, origin: str, what: str, delimiter: str) -> _RawRecords:
    rows = read_csv(text, origin, delimiter)
    rows = [(number, row) for number, row in rows if any(cell.strip() for cell in row)]
    if not rows:
        raise _bad(origin, what, "it is empty")
    heads = [cell.strip() for cell in rows[0][1]]
    records: _RawRecords = []
    for number, row in rows[1:]:
        if len(row) != len(heads):
            raise _bad(
                origin,
                what,
                f"line {number:,} has {len(row)} columns, and the heading {len(heads)}; is a quote missing?",
            )
        records.append((f"line {number:,}", dict(zip(heads, row, strict=True))))
    return records


def _with_fields(
    records: _RawRecords, fields: Mapping[str, tuple[str, ...]], origin: str, what: str
) -> Records:
    """Records by canonical fields; the column of a field is the same for all records."""
    keys = list(dict.fromkeys(str(key) for _, record in records for key in record))
    by_form = {normalize_key(key): key for key in reversed(keys)}
    columns = {
        name: next((by_form[form] for form in forms if form in by_form), None)
        for name, forms in fields.items()
    }
    contents = {name: key for name, key in columns.items() if name != ID and key is not None}
    if not contents:
        needed = " or ".join(fields[name][0] for name in fields if name != ID)
        raise _bad(origin, what, f"it has no column {needed}, but {some(keys, 6) or 'none'}")
    rows, id_column = [], columns[ID]
    for place, record in records:
        found = {name: record[key] for name, key in contents.items() if key in record}
        value = record.get(id_column, "") if id_column else ""
        is_id = isinstance(value, str | int) and not isinstance(value, bool)
        rows.append(Record(str(value).strip() if is_id else "", found, place))
    return Records(tuple(rows), origin, has_ids=id_column is not None)


def _bad(origin: str, what: str, why: str) -> DataError:
    return DataError(f"{origin} is no file of {what}: {why}", code="bad-records", path=origin)


def match_answers(expected: Records, answers: Records) -> list[Record]:
    """The answer to each expected record, in its order.

    Raises:
        DataError: Ids do not match one to one ("ids-do-not-match").
    """
    if not expected.has_ids or not answers.has_ids:
        if expected.has_ids == answers.has_ids and len(expected.rows) == len(answers.rows):
            return list(answers.rows)
        kinds = [
            f"{each.origin} has {len(each.rows):,} records {'with' if each.has_ids else 'without'} ids"
            for each in (expected, answers)
        ]
        raise _unmatched(
            answers,
            f"{' and '.join(kinds)}; needed are ids in both, or equally many records in the same order",
        )
    by_id = {row.id: row for row in answers.rows}
    known = {row.id for row in expected.rows}
    missing = [row.id for row in expected.rows if row.id not in by_id]
    unknown = [name for name in by_id if name not in known]
    parts = []
    if missing:
        parts.append(f"no answer for {len(missing):,} of {len(expected.rows):,} ({some(missing)})")
    if unknown:
        parts.append(f"{len(unknown):,} with ids that {expected.origin} does not have ({some(unknown)})")
    if parts:
        hint = (
            "a record with an empty answer counts as unreadable"
            if missing
            else "ids must be equal letter by letter"
        )
        raise _unmatched(answers, f"{answers.origin} has {' and '.join(parts)}; {hint}")
    return [by_id[row.id] for row in expected.rows]


def _unmatched(answers: Records, message: str) -> DataError:
    return DataError(message, code="ids-do-not-match", path=answers.origin)


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
        origin: Where it comes from, for messages.
        records: As they were read.
        from_prompts: Whether entities were looked for in prompts.
    """

    ids: tuple[str, ...]
    expected: tuple[tuple[str, ...], ...]
    excluded: tuple[tuple[str, ...], ...] | None
    groups: tuple[str, ...]
    origin: str
    records: Records
    from_prompts: bool

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
            records=replace(self.records, rows=take(self.records.rows)),
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


_CLOSED = "the vocabulary, which is closed; add it there, or give its alias"


def read_expectations(
    source: object,
    names: CanonicalNames,
    vocabulary: Vocabulary | None,
    exclude: Iterable[str] = (),
    *,
    closed: str | None = _CLOSED,
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
        UsageError: There are prompts and no vocabulary ("no-vocabulary"), or as `records_of`.
        DataError: An entry cannot be read ("bad-expectation"), or as `records_of`.
    """
    records = records_of(source, EXPECTED_FIELDS, "expected", "expected entities", text="prompt")
    excluded_everywhere = tuple(exclude)
    from_prompts = not any("expected" in row.fields for row in records.rows)
    if from_prompts and vocabulary is None and any("prompt" in row.fields for row in records.rows):
        raise UsageError(
            f"{records.origin} holds prompts and no lists of expected entities; to look for entities in prompts, a "
            "vocabulary is needed",
            code="no-vocabulary",
        )
    expected, excluded, groups, ids = [], [], [], []
    for i, row in enumerate(records.rows):
        prompt = row.fields.get("prompt")
        if from_prompts:
            expected.append(vocabulary.find(_text(prompt, row, records)) if vocabulary is not None else ())
        elif "expected" not in row.fields:
            raise _bad_expectation(
                records,
                row,
                "there is no list of expected entities; write an empty one where nothing is expected",
            )
        else:
            expected.append(names.register(_listed(row.fields["expected"], row, records, "expected")))
        unlisted = [name for name in expected[-1] if vocabulary is not None and name not in vocabulary]
        if unlisted and closed is not None:
            raise _bad_expectation(
                records, row, f"{short(unlisted[0], 60)!r} is expected and not in {closed}"
            )
        excluded.append(
            names.register(
                [*excluded_everywhere, *_listed(row.fields.get("excluded"), row, records, "excluded")]
            )
        )
        ids.append(row.id or f"[{i}]")
        groups.append(str(row.fields.get("group") or prompt or ids[-1]))
    return Expectations(
        ids=tuple(ids),
        expected=tuple(expected),
        excluded=tuple(excluded) if any(excluded) else None,
        groups=tuple(groups),
        origin=records.origin,
        records=records,
        from_prompts=from_prompts,
    )


def _text(prompt: object, row: Record, records: Records) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        raise _bad_expectation(records, row, f"needed is a prompt, found {short(repr(prompt), 60)}")
    return prompt


def _listed(value: object, row: Record, records: Records, what: str) -> tuple[str, ...]:
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


def _bad_expectation(records: Records, row: Record, why: str) -> DataError:
    return DataError(f"{records.origin}, {row.place}: {why}", code="bad-expectation", path=records.origin)


def read_answers(source: object, expectations: Expectations, names: CanonicalNames) -> FoundEntities:
    """The answer to each expectation.

    Args:
        source: See `genpr.score_entities`.
        expectations: What they are about.
        names: Knows the names of all expected entities.

    Raises:
        UsageError, DataError: As `records_of` and `match_answers`.
    """
    records = records_of(source, FOUND_FIELDS, "found", "answers", text="answer")
    rows = match_answers(expectations.records, records)
    answers = tuple(_read(row, names) for row in rows)
    found = tuple(names.match(answer.entities) if isinstance(answer, Answer) else None for answer in answers)
    return FoundEntities(answers, found, tuple(_shown_answer(row) for row in rows), records.origin)


def _read(row: Record, names: CanonicalNames) -> Answer | Unreadable:
    """A list of found entities, or a text of a model, in which a single name counts where it is known."""
    if "found" in row.fields:
        found = row.fields["found"]
        if isinstance(found, Answer | Unreadable):
            return found
        if isinstance(found, list | tuple | set | frozenset) and all(isinstance(name, str) for name in found):
            return Answer(() if len(found) == 1 and is_none(*found) else tuple(found), "list")
        return read_entities({"entities": found}, known=lambda name: names.get(name) is not None)
    answer: Any = row.fields.get("answer", "")
    return read_entities("" if answer is None else answer, known=lambda name: names.get(name) is not None)


def _shown_answer(row: Record) -> str:
    answer = row.fields.get("found", row.fields.get("answer", ""))
    if isinstance(answer, str):
        return answer[:_LONGEST_SHOWN]
    try:
        return json.dumps(answer, ensure_ascii=False)[:_LONGEST_SHOWN]
    except (TypeError, ValueError, RecursionError):
        return type(answer).__name__
