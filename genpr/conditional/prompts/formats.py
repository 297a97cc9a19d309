"""The formats of files of prompts: CSV, JSON, JSON lines, plain lines. Each takes the text of a file."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genpr.conditional.prompts.table import (
    NamedPrompts,
    Prompt,
    Prompts,
    RowPrompts,
    by_name,
    checked_text,
    damaged,
)
from genpr.errors import DataError, short
from genpr.limits import check_json, csv_rows, parse_json

_NAMES = (
    "file_name",
    "图片",
    "文件名",
    "file",
    "filename",
    "name",
    "image",
    "path",
    "image_path",
    "image_name",
    "file_path",
    "filepath",
)
_TEXTS = ("prompt", "caption", "text", "prompts", "captions", "texts", "提示词", "描述")
_RELEVANCES = ("relevance", "grade")
_GROUPS = ("group", "group_id", "prompt_group")

Fields = tuple[object, object, object, object]
"""Name, prompt or prompts, relevance and group of one line, None where it has none."""


def from_csv(text: str, origin: str, delimiter: str) -> Prompts:
    """A heading with a name and a prompt, or two columns without one; a heading without a name is in the images' order.

    Raises:
        DataError: It is no such table.
    """
    rows = list[tuple[str, list[str]]]()
    try:
        rows.extend((f"line {number}", row) for number, row in csv_rows(text, delimiter, strict=True))
    except csv.Error as error:
        last = rows[-1][0] if rows else "the first line"
        raise damaged(
            origin, f"it is no CSV ({error}, after {last}); is a quotation mark missing?"
        ) from error
    except ValueError as error:
        raise damaged(origin, str(error)) from error
    if not rows:
        raise damaged(origin, "it is empty")
    heads = [cell.strip().lower() for cell in rows[0][1]]
    columns = [_first(heads, known) for known in (_NAMES, _TEXTS, _RELEVANCES, _GROUPS)]
    has_heading = columns[1] is not None and (columns[0] is not None or columns[1] == 0 or len(heads) != 2)
    if has_heading:
        body, width = rows[1:], len(heads)
    else:
        body, width, columns = rows, 2, [0, 1, None, None]
    for place, row in rows:
        if len(row) != width:
            needed = (
                f"{width} as in its heading"
                if has_heading
                else "2, name and prompt, or a heading that names these"
            )
            hint = "; a prompt that holds the separator must stand in quotation marks"
            raise damaged(origin, f"{place} has {len(row)} columns, needed are {needed}{hint}")
    found = [(place, _cells(row, columns)) for place, row in body]
    return _prompts(found, origin, is_named=columns[0] is not None)


def from_lines(text: str, origin: str) -> RowPrompts:
    """One prompt per line, in the order of the images.

    Raises:
        DataError: A line between others is empty.
    """
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise damaged(origin, "it is empty")
    found = [checked_text(line, origin, f"line {number}") for number, line in enumerate(lines, 1)]
    return RowPrompts(tuple((Prompt(line),) for line in found), origin)


def from_json_lines(text: str, origin: str) -> Prompts:
    """An object per line, as Hugging Face's metadata.jsonl.

    Raises:
        DataError: A line is none, or says not what it is about.
    """
    found = []
    try:
        check_json(text)
    except ValueError as error:
        raise damaged(origin, str(error)) from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            found.append(
                (
                    f"line {number}",
                    _fields(_decoded(line, origin, f"line {number}"), origin, f"line {number}"),
                )
            )
    if not found:
        raise damaged(origin, "it is empty")
    return _prompts(found, origin, is_named=any(fields[0] is not None for _, fields in found))


def from_json(text: str, origin: str) -> Prompts:
    """A mapping from name to prompt or prompts, a list of objects, or COCO's captions.

    Raises:
        DataError: It is something else.
    """
    record = _decoded(text, origin, "it")
    if isinstance(record, dict) and isinstance(record.get("annotations"), list):
        return _from_coco(record, origin)
    if isinstance(record, list) and all(isinstance(entry, dict) for entry in record):
        found = [(f"entry {n}", _fields(entry, origin, f"entry {n}")) for n, entry in enumerate(record, 1)]
        return _prompts(found, origin, is_named=any(fields[0] is not None for _, fields in found))
    if isinstance(record, dict):
        return by_name(
            [
                (name, prompt, repr(short(name)))
                for name, texts in record.items()
                for prompt in _captions((name, texts, None, None), origin, repr(short(name)))
            ],
            origin,
        )
    raise damaged(origin, 'needed is {"name": "prompt"}, a list of objects, or COCO\'s captions')


def _from_coco(record: Mapping[str, Any], origin: str) -> NamedPrompts:
    """`images` with id and file_name, `annotations` with image_id and caption."""
    try:
        files = {entry["id"]: entry["file_name"] for entry in record["images"]}
        pairs = [(files[entry["image_id"]], entry["caption"]) for entry in record["annotations"]]
    except (KeyError, TypeError) as error:
        raise damaged(
            origin,
            f"COCO's captions have images with id and file_name, and annotations with image_id and caption ({error!r})",
        ) from error
    found = []
    for number, (name, caption) in enumerate(pairs, 1):
        place = f"annotation {number}"
        found.append((_text(name, origin, place, is_name=True), Prompt(_text(caption, origin, place)), place))
    return by_name(found, origin)


def _decoded(text: str, origin: str, place: str) -> Any:  # noqa: ANN401 - as JSON gives it
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise damaged(
                origin,
                f"{place} names {short(twice)!r} twice; several prompts of one image are a list",
                code="prompt-repeated",
            )
        return found

    try:
        return parse_json(text, pairs=unique)
    except DataError:  # which is a ValueError, too
        raise
    except ValueError as error:
        raise damaged(origin, f"{place} is no JSON ({error})") from error


def _fields(entry: object, origin: str, place: str) -> Fields:
    if not isinstance(entry, dict):
        raise damaged(origin, f'{place} is no object such as {{"file_name": ..., "text": ...}}')
    keys = {str(key).strip().lower(): value for key, value in entry.items()}
    name, text, relevance, group = (
        next((keys[key] for key in known if key in keys), None)
        for known in (_NAMES, _TEXTS, _RELEVANCES, _GROUPS)
    )
    if text is None:
        raise damaged(origin, f"{place} has no prompt; needed is one of {', '.join(_TEXTS[:3])}")
    return name, text, relevance, group


def _cells(row: Sequence[str], columns: Sequence[int | None]) -> Fields:
    """An empty cell of relevance or group says nothing; one of a name or prompt is refused later."""
    name, text, relevance, group = (None if column is None else row[column] for column in columns)
    return name, text, relevance or None, group or None


def _first(heads: Sequence[str], known: Iterable[str]) -> int | None:
    return next((heads.index(name) for name in known if name in heads), None)


def _prompts(found: Sequence[tuple[str, Fields]], origin: str, *, is_named: bool) -> Prompts:
    if not found:
        raise damaged(origin, "it has a heading and nothing below it")
    if not is_named:
        return RowPrompts(tuple(_captions(fields, origin, place) for place, fields in found), origin)
    return by_name(
        [
            (_text(fields[0], origin, place, is_name=True), prompt, place)
            for place, fields in found
            for prompt in _captions(fields, origin, place)
        ],
        origin,
    )


def _captions(fields: Fields, origin: str, place: str) -> tuple[Prompt, ...]:
    """The prompts of one line, of which JSON may give several at once."""
    _, texts, relevance, group = fields
    listed = texts if isinstance(texts, list) and texts else [texts]
    grade = _relevance(relevance, origin, place)
    if group is not None and not isinstance(group, str | int):
        raise damaged(origin, f"the group of {place} is {short(repr(group))}, needed is a name or an integer")
    own = None if group is None else str(group)
    found = tuple(Prompt(_text(text, origin, place), grade, own) for text in listed)
    if len({prompt.text for prompt in found}) != len(found):
        raise damaged(origin, f"{place} holds the same prompt twice", code="prompt-repeated")
    return found


def _relevance(given: object, origin: str, place: str) -> float:
    if given is None:
        return 1.0
    try:
        grade = (
            float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else math.nan
        )
    except (ValueError, OverflowError):  # no number, or an integer of hundreds of digits
        grade = math.nan
    if not 0 < grade <= 1e6:
        raise damaged(origin, f"the relevance of {place} is {short(repr(given))}, needed is a number above 0")
    return grade


def _text(given: object, origin: str, place: str, *, is_name: bool = False) -> str:
    if not isinstance(given, str):
        raise damaged(origin, f"{place} holds {short(repr(given))} where a text is needed")
    return checked_text(given, origin, place, is_name=is_name)
