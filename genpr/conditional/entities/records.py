"""Files with a record per image: what is expected in it, and what an answer says is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genpr.conditional.entities.text_files import rows_of, shown, some, text_of
from genpr.conditional.entities.words import squeezed
from genpr.errors import DataError, UsageError
from genpr.limits import check_json, parse_json

ID = "id"
_ID_NAMES = (
    "id",
    "imageid",
    "image",
    "filename",
    "file",
    "path",
    "name",
    "key",
    "index",
    "编号",
    "图片",
    "图像",
    "文件名",
)
EXPECTED_FIELDS: Mapping[str, tuple[str, ...]] = {
    ID: _ID_NAMES,
    "expected": (
        *(
            "expected",
            "expectedentities",
            "entities",
            "entity",
            "required",
            "include",
            "included",
            "objects",
            "labels",
        ),
        *("实体", "期望", "期望实体", "应有实体"),
    ),
    "excluded": ("exclude", "excluded", "excludedentities", "forbidden", "absent", "排除", "不应出现"),
    "prompt": ("prompt", "text", "caption", "description", "提示词", "提示", "描述"),
    "group": ("group", "groupid", "promptid", "组", "组别"),
}
"""What a file of expectations may hold, with the names of its columns or keys, the surest first."""

FOUND_FIELDS: Mapping[str, tuple[str, ...]] = {
    ID: _ID_NAMES,
    "found": (
        "found",
        "foundentities",
        "detected",
        "detectedentities",
        "present",
        "entities",
        "实体",
        "发现",
        "找到",
    ),
    "answer": (
        "answer",
        "response",
        "output",
        "raw",
        "rawanswer",
        "content",
        "text",
        "message",
        "result",
        "回答",
        "结果",
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
            f"{shown(found.origin)} has {len(twice):,} ids more than once ({some(twice)}); needed is one record for each image",
            code="duplicate-ids",
            path=found.origin,
        )


def _from_file(
    path: Path, fields: Mapping[str, tuple[str, ...]], main: str, text_field: str | None, what: str
) -> Records:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES and path.suffix:
        raise UsageError(
            f"{shown(path)} is of unknown kind ({suffix}); {what} are a .csv, .tsv, .jsonl or .json with a record per image",
            code="records-kind",
            path=str(path),
        )
    text, origin = text_of(path, what), str(path)
    if suffix in {".csv", ".tsv"}:
        records = _csv_records(text, origin, what, "\t" if suffix == ".tsv" else ",")
    elif suffix == ".json":
        records = _json_records(text, origin, what, lambda value: _field(value, main, text_field))
    else:
        try:
            check_json(text)
        except ValueError as error:
            raise _bad(origin, what, str(error)) from error
        records = [(f"line {n:,}", _line(line, n, origin, what)) for n, line in _lines(text)]
    return _named(records, fields, origin, what)


def _lines(text: str) -> list[tuple[int, str]]:
    # Not splitlines: JSON may hold the other line separators of Unicode as they are.
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _line(line: str, number: int, origin: str, what: str) -> Mapping[str, Any]:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise _bad(origin, what, f"line {number:,} is no JSON ({shown(error)})") from error
    if not isinstance(found, dict):
        raise _bad(origin, what, f"line {number:,} holds no object with keys, but {shown(line, 40)}")
    return found


def _json_records(
    text: str, origin: str, what: str, field: Callable[[object], dict[str, Any]]
) -> list[tuple[str, Mapping[str, Any]]]:
    """A list of objects, or an object of id -> value."""
    try:
        found = parse_json(text)
    except ValueError as error:
        raise _bad(origin, what, f"it is no JSON ({shown(error)})") from error
    if isinstance(found, dict):
        return [(shown(key, 40), {ID: key, **field(value)}) for key, value in found.items()]
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _bad(origin, what, "needed is a list of objects, or an object with an entry for each id")
    return [(f"record {number:,}", each) for number, each in enumerate(found, 1)]


def _csv_records(text: str, origin: str, what: str, delimiter: str) -> list[tuple[str, Mapping[str, Any]]]:
    rows = rows_of(text, origin, delimiter)
    if not rows:
        raise _bad(origin, what, "it is empty")
    heads = [cell.strip() for cell in rows[0][1]]
    records: list[tuple[str, Mapping[str, Any]]] = []
    for number, row in rows[1:]:
        if len(row) != len(heads):
            raise _bad(
                origin,
                what,
                f"line {number:,} has {len(row)} columns, and the heading {len(heads)}; is a quote missing?",
            )
        records.append((f"line {number:,}", dict(zip(heads, row, strict=True))))
    return records


def _named(
    records: Sequence[tuple[str, Mapping[str, Any]]],
    fields: Mapping[str, tuple[str, ...]],
    origin: str,
    what: str,
) -> Records:
    """Records by canonical names; which column is what is decided once for all."""
    keys = list(dict.fromkeys(str(key) for _, record in records for key in record))
    by_form = {squeezed(key): key for key in reversed(keys)}
    columns = {
        name: next((by_form[form] for form in forms if form in by_form), None)
        for name, forms in fields.items()
    }
    contents = [name for name in fields if name != ID and columns[name] is not None]
    if not contents:
        wanted = " or ".join(fields[name][0] for name in fields if name != ID)
        raise _bad(origin, what, f"it has no column {wanted}, but {some(keys, 6) or 'none'}")
    rows = []
    id_column = columns[ID]
    for place, record in records:
        found = {
            name: record[key] for name in contents if (key := columns[name]) is not None and key in record
        }
        rows.append(Record(_id_of(record.get(id_column, "") if id_column else ""), found, place))
    return Records(tuple(rows), origin, has_ids=id_column is not None)


def _id_of(value: object) -> str:
    return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _bad(origin: str, what: str, why: str) -> DataError:
    return DataError(f"{shown(origin)} is no file of {what}: {why}", code="bad-records", path=origin)
