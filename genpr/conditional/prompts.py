"""Prompts as they were found, and which image each belongs to.

The formats of files of prompts: CSV, JSON, JSON lines, plain lines. Each takes the text of a file.

Prompts from where people keep them: one file for all images, or a text file beside each.
"""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genpr.errors import DataError, UsageError, printable, short, some
from genpr.images.damage import damage_reported
from genpr.images.folder import walk_files
from genpr.images.naming import known_as, plain_path, stem_of
from genpr.limits import (
    SMALL_TEXT_BYTES,
    TEXT_BYTES,
    check_json,
    check_lines,
    csv_rows,
    parse_json,
    read_bytes,
)
from genpr.storage import open_regular

MAX_CHARACTERS = 2**16
"""Of one prompt; what is longer is no prompt but another file."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text that an image was asked to show.

    Attributes:
        text: As it was written.
        relevance: How well it fits the image, beside its other prompts; above 0.
        group: Prompts of one group are never ranked against each other; None for a group of its own.
    """

    text: str
    relevance: float = 1.0
    group: str | None = None


Captions = tuple[Prompt, ...]
"""All prompts of one image: one or more."""


@dataclass(frozen=True)
class NamedPrompts:
    """Prompts by the name of each image.

    Attributes:
        by_name: With POSIX separators, relative to the source of the images.
        origin: Where they come from, for people.
        stems: The names are without suffixes, as of text files beside images.
    """

    by_name: Mapping[str, Captions]
    origin: str
    stems: bool = False

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Captions]:
        """The prompts of each image: by relative path, or by file name where the prompts name no folders and files differ.

        Raises:
            DataError: Images have no prompts ("prompts-missing").
        """
        wanted = self._wanted(names)
        without = [name for name, each in zip(names, wanted, strict=True) if each not in self.by_name]
        if without:
            theirs = min(self.by_name.keys() - set(wanted), default=None)
            hint = f"; a prompt without an image is of {short(theirs)!r}" if theirs is not None else ""
            raise DataError(
                f"{len(without):,} of {len(names):,} images have no prompt in {printable(self.origin)}: {some(without)}{hint}; "
                "names must be relative to the source of the images",
                code="prompts-missing",
                path=self.origin,
            )
        return [self.by_name[each] for each in wanted]

    def check_used(self, names: Sequence[str]) -> None:
        """Refuse prompts of images that are not in the source.

        Args:
            names: Of all images of the source, chosen or not.

        Raises:
            DataError: They are listed ("prompts-unused").
        """
        wanted = set(self._wanted(names))
        unused = [name for name in self.by_name if name not in wanted]
        if unused:
            raise DataError(
                f"{printable(self.origin)} has prompts of {len(unused):,} images that are not there: {some(unused)}; the "
                f"images are called such as {short(names[0] if names else 'none')!r}. Were images lost, or is this the file "
                "of another run?",
                code="prompts-unused",
                path=self.origin,
            )

    def _wanted(self, names: Sequence[str]) -> list[str]:
        """Under which name the prompts of each image stand."""
        return known_as([stem_of(name) for name in names] if self.stems else names, self.by_name)


@dataclass(frozen=True)
class RowPrompts:
    """Prompts for each image in the order of the source, whether it was used or not."""

    prompts: tuple[Captions, ...]
    origin: str

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Captions]:
        """The prompts of each image, by its place in the source.

        Raises:
            DataError: There are more or fewer prompts than images in the source ("prompt-count").
        """
        needed = total if total is not None else max(rows, default=-1) + 1
        is_wrong = len(self.prompts) != needed if total is not None else len(self.prompts) < needed
        if is_wrong:
            raise DataError(
                f"{printable(self.origin)} holds {len(self.prompts):,} prompts, but there are {needed:,} images, such as "
                f"{short(names[0] if names else 'none')!r}; needed is one for each in their order, or a file that names the "
                "images",
                code="prompt-count",
                path=self.origin,
            )
        return [self.prompts[row] for row in rows]

    def check_used(self, names: Sequence[str]) -> None:
        """Nothing to check: the counts agree, or `of` refuses them."""


Prompts = NamedPrompts | RowPrompts
"""Prompts of one set of images."""


def by_name(pairs: Sequence[tuple[str, Prompt, str]], origin: str, *, stems: bool = False) -> NamedPrompts:
    """Prompts by name, several of one name in their order.

    Args:
        pairs: Name, prompt, and where they stand ("line 3").
        origin: Where all come from.
        stems: As in `NamedPrompts`.

    Raises:
        DataError: An image has the same prompt twice ("prompt-repeated"), or there are none at all.
    """
    found: dict[str, dict[str, Prompt]] = {}
    for raw, prompt, place in pairs:
        captions = found.setdefault(plain_path(raw), {})
        if prompt.text in captions:
            raise damaged(
                origin,
                f"{place} gives {short(raw)!r} the prompt {short(prompt.text)!r} for the second time",
                code="prompt-repeated",
            )
        captions[prompt.text] = prompt
    if not found:
        raise damaged(origin, "it is empty")
    return NamedPrompts({name: tuple(captions.values()) for name, captions in found.items()}, origin, stems)


def checked_text(text: str, origin: str, place: str, *, is_name: bool = False) -> str:
    """A prompt or name as it may be: not empty, without NUL, of bounded length; a prompt of whole characters.

    Raises:
        DataError: It is not.
    """
    reason = None
    if not text.strip():
        reason = "is empty"
    elif "\0" in text:
        reason = "holds a NUL character; is this a text file?"
    elif len(text) > MAX_CHARACTERS:
        reason = f"has {len(text):,} characters, more than the {MAX_CHARACTERS:,} of any prompt"
    elif not is_name and any("\ud800" <= c <= "\udfff" for c in text):  # names of files may be any bytes
        reason = "holds half a character (a lone surrogate), which no encoding has"
    if reason is None:
        return text.strip()
    raise damaged(
        origin,
        f"the text of {place} {reason}",
        code="prompt-empty" if "empty" in reason else "prompts-damaged",
    )


def damaged(origin: str, reason: str, *, code: str = "prompts-damaged") -> DataError:
    """The error for prompts that cannot be read."""
    return DataError(
        f"{printable(origin)} cannot be used as prompts: {printable(reason)}", code=code, path=origin
    )


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


BESIDE = "beside"
"""The word for text files beside the images."""

_KINDS = (
    ".csv or .tsv with name and prompt, .jsonl or .json, .txt with a prompt per line in the order of the images, a folder "
    "with a .txt for each image, or the word beside"
)


def open_prompts(prompts: object, images: object) -> Prompts:
    """Read the prompts of a set of images.

    Args:
        prompts: A file: `.csv` or `.tsv` with a name and a prompt per line; `.jsonl` with an object per line
            ({"file_name": ..., "text": ...}); `.json` that maps names to prompts, or COCO's captions; `.txt` with a prompt per
            line in the order of the images. A folder with a `.txt` for each image, whose lines are its prompts; the word
            "beside" if that is the folder of the images. A mapping from name to prompt or prompts; or a sequence in the order
            of the images, of prompts or lists of them.
        images: The images as the user gave them.

    Raises:
        UsageError: There is no such file, or it is of no such kind.
        DataError: It is damaged, not UTF-8, empty in part, or repeats itself.
    """
    if isinstance(prompts, NamedPrompts | RowPrompts):
        return prompts
    if isinstance(prompts, str | os.PathLike):
        return _at_path(
            Path(_image_folder(images) if prompts == BESIDE else prompts), is_beside=prompts == BESIDE
        )
    if isinstance(prompts, Mapping):
        pairs = [
            (name, prompt, repr(name))
            for name, given in prompts.items()
            for prompt in _given(given, repr(name))
        ]
        return by_name(pairs, "<prompts>")
    if isinstance(prompts, Sequence) and not isinstance(prompts, bytes | bytearray):
        return RowPrompts(
            tuple(_given(each, f"prompt {row}") for row, each in enumerate(prompts)), "<prompts>"
        )
    raise UsageError(
        f"{type(prompts).__name__} cannot be read as prompts; needed is {_KINDS}, a mapping, or a list in the order of the "
        "images",
        code="prompts-kind",
    )


def _given(given: object, place: str) -> tuple[Prompt, ...]:
    """One prompt or several, as a program gives them."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(
            f"{short(place)} is {short(repr(given))}; needed is a string, or a list of strings",
            code="prompts-kind",
        )
    return tuple(Prompt(checked_text(text, "<prompts>", place)) for text in dict.fromkeys(texts))


def _at_path(path: Path, *, is_beside: bool) -> Prompts:
    if _is(Path.is_dir, path):
        return _from_folder(path, is_beside=is_beside)
    shown = printable(str(path))
    if not _is(Path.is_file, path):
        raise UsageError(
            f"there are no prompts at {shown!r}; needed is {_KINDS}", code="path-not-found", path=str(path)
        )
    suffix = path.suffix.lower()
    if suffix not in {".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt"}:
        raise UsageError(
            f"{shown} is of unknown kind ({suffix or 'no suffix'}); prompts are {_KINDS}",
            code="prompts-kind",
            path=str(path),
        )
    text = text_of(path)
    if suffix in {".jsonl", ".ndjson"}:
        return from_json_lines(text, str(path))
    if suffix == ".json":
        return from_json(text, str(path))
    if suffix == ".txt":
        return from_lines(text, str(path))
    return from_csv(text, str(path), "\t" if suffix == ".tsv" else ",")


def _is(kind: object, path: Path) -> bool:
    try:
        return bool(kind(path))  # type: ignore[operator]
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _image_folder(images: object) -> Path:
    """The folder that the word "beside" means."""
    path = Path(os.fsdecode(images)) if isinstance(images, str | os.PathLike) else None
    if path is None or not _is(Path.is_dir, path):
        raise UsageError(
            "prompts beside the images need a folder of images; give a file of prompts instead",
            code="prompts-kind",
        )
    return path


def _from_folder(folder: Path, *, is_beside: bool) -> NamedPrompts:
    """A prompt per line of the text file that is called as the image is."""
    origin = f"{folder}/*.txt"
    members = sorted(member for member in walk_files(folder) if member.lower().endswith(".txt"))
    if not members:
        where = "beside the images" if is_beside else "in it"
        raise damaged(origin, f"there is no .txt file {where}")
    found = []
    for member in members:
        lines = [line for line in text_of(folder / member, SMALL_TEXT_BYTES).split("\n") if line.strip()]
        if not lines:
            raise damaged(origin, f"{member} is empty", code="prompt-empty")
        found += [(stem_of(member), Prompt(checked_text(line, origin, member)), member) for line in lines]
    return by_name(found, origin, stems=True)


def text_of(path: Path, most: int = TEXT_BYTES, *, what: str = "prompts") -> str:
    """The text of a file of at most so many bytes, with a line feed at the end of each line.

    Raises:
        DataError: It is larger, cannot be read, or is no text in UTF-8.
    """
    with damage_reported(path, f"file of {what}", code="prompts-damaged"), open_regular(path) as file:
        data = read_bytes(file, most, name=str(path), what=what, code="prompts-damaged")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        encoding = "UTF-16" if is_wide else "another encoding"
        raise damaged(
            str(path),
            f"it is not UTF-8 (byte {error.start + 1:,} is {data[error.start]:#04x}); it seems to be {encoding}, save it as "
            "UTF-8",
            code="prompts-encoding",
        ) from error
    if "\0" in text:
        raise damaged(str(path), "it holds NUL characters; is it a text file?")
    try:
        check_lines(text)
    except ValueError as error:
        raise damaged(str(path), str(error)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
