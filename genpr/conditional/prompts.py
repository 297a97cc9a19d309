"""Read the prompts of images, from a file for all of them or a text file beside each, and match them to the images."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from genpr.conditional.text_files import is_file, is_folder, read_csv, read_text
from genpr.errors import DataError, UsageError, short, some
from genpr.images.folder import walk_files
from genpr.images.item import known_as, plain_path, stem_of
from genpr.limits import SMALL_TEXT_BYTES, TEXT_BYTES, check_json, parse_json

BESIDE = "beside"
"""Stands for text files beside the images."""

MAX_CHARACTERS = 2**16
"""Most characters of one prompt; a longer text is another kind of file."""

_KINDS = (
    ".csv or .tsv with name and prompt, .jsonl or .json, .txt with a prompt per line in the order of the images, a folder "
    "with a .txt for each image, or the word beside"
)
# Headings of columns, and keys of JSON objects.
_NAME_KEYS = (
    *("file_name", "图片", "文件名", "file", "filename", "name", "image", "path"),
    *("image_path", "image_name", "file_path", "filepath"),
)
_TEXT_KEYS = ("prompt", "caption", "text", "prompts", "captions", "texts", "提示词", "描述")
_RELEVANCE_KEYS = ("relevance", "grade")
_GROUP_KEYS = ("group", "group_id", "prompt_group")
_KEYS = (_NAME_KEYS, _TEXT_KEYS, _RELEVANCE_KEYS, _GROUP_KEYS)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of an image.

    Attributes:
        text: As it was written.
        relevance: How well it fits the image, compared with its other prompts; above 0.
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
        origin: Where they come from, for messages.
        stems: Whether the names have no suffixes, as those of text files beside images.
    """

    by_name: Mapping[str, Captions]
    origin: str
    stems: bool = False

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Captions]:
        """The prompts of each image: by relative path, or by file name where the prompts name no folders and files differ.

        Raises:
            DataError: Images have no prompts ("prompts-missing").
        """
        keys = self._keys(names)
        without = [name for name, key in zip(names, keys, strict=True) if key not in self.by_name]
        if without:
            unused = min(self.by_name.keys() - set(keys), default=None)
            hint = f"; a prompt without an image is of {short(unused)!r}" if unused is not None else ""
            raise DataError(
                f"{len(without):,} of {len(names):,} images have no prompt in {self.origin}: {some(without)}{hint}; "
                "names must be relative to the source of the images",
                code="prompts-missing",
                path=self.origin,
            )
        return [self.by_name[key] for key in keys]

    def check_used(self, names: Sequence[str]) -> None:
        """Refuse prompts of images that are not in the source.

        Args:
            names: Of all images of the source, chosen or not.

        Raises:
            DataError: There are such prompts ("prompts-unused").
        """
        keys = set(self._keys(names))
        unused = [name for name in self.by_name if name not in keys]
        if unused:
            raise DataError(
                f"{self.origin} has prompts of {len(unused):,} images that are not there: {some(unused)}; the "
                f"images are called such as {short(names[0] if names else 'none')!r}. Were images lost, or is this the file "
                "of another run?",
                code="prompts-unused",
                path=self.origin,
            )

    def _keys(self, names: Sequence[str]) -> list[str]:
        return known_as([stem_of(name) for name in names] if self.stems else names, self.by_name)


@dataclass(frozen=True)
class RowPrompts:
    """Prompts for each image in the order of the source, whether it was used or not."""

    prompts: tuple[Captions, ...]
    origin: str

    def of(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Captions]:
        """The prompts of each image, by its index in the source.

        Raises:
            DataError: There are more or fewer prompts than images in the source ("prompt-count").
        """
        needed = total if total is not None else max(rows, default=-1) + 1
        is_wrong = len(self.prompts) != needed if total is not None else len(self.prompts) < needed
        if is_wrong:
            raise DataError(
                f"{self.origin} holds {len(self.prompts):,} prompts, but there are {needed:,} images, such as "
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
        return _from_path(Path(prompts)) if prompts != BESIDE else _beside(images)
    if isinstance(prompts, Mapping):
        return _by_name(
            [
                (name, prompt, repr(name))
                for name, value in prompts.items()
                for prompt in _captions_of(value, repr(name))
            ],
            "<prompts>",
        )
    if isinstance(prompts, Sequence) and not isinstance(prompts, bytes | bytearray):
        listed = tuple(_captions_of(value, f"prompt {row}") for row, value in enumerate(prompts))
        return RowPrompts(listed, "<prompts>")
    raise UsageError(
        f"{type(prompts).__name__} cannot be read as prompts; needed is {_KINDS}, a mapping, or a list in the order of the "
        "images",
        code="prompts-kind",
    )


def _captions_of(value: object, place: str) -> Captions:
    """One prompt or several, as a program gives them."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(
            f"{short(place)} is {short(repr(value))}; needed is a string, or a list of strings",
            code="prompts-kind",
        )
    return tuple(Prompt(_checked(text, "<prompts>", place)) for text in dict.fromkeys(texts))


def _from_path(path: Path) -> Prompts:
    if is_folder(path):
        return _from_folder(path, "in it")
    if not is_file(path):
        raise UsageError(
            f"there are no prompts at {str(path)!r}; needed is {_KINDS}",
            code="path-not-found",
            path=str(path),
        )
    suffix, origin = path.suffix.lower(), str(path)
    if suffix in {".jsonl", ".ndjson"}:
        return _from_json_lines(_read(path), origin)
    if suffix == ".json":
        return _from_json(_read(path), origin)
    if suffix == ".txt":
        return _from_lines(_read(path), origin)
    if suffix in {".csv", ".tsv"}:
        return _from_csv(_read(path), origin, "\t" if suffix == ".tsv" else ",")
    raise UsageError(
        f"{path} is of unknown kind ({suffix or 'no suffix'}); prompts are {_KINDS}",
        code="prompts-kind",
        path=origin,
    )


def _read(path: Path, most: int = TEXT_BYTES) -> str:
    """The text of a file, with a line feed at the end of each line."""
    text = read_text(path, "prompts", most=most, damaged="prompts-damaged", encoding="prompts-encoding")
    if "\0" in text:
        raise _error(str(path), "it holds NUL characters; is it a text file?")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _beside(images: object) -> NamedPrompts:
    folder = Path(os.fsdecode(images)) if isinstance(images, str | os.PathLike) else None
    if folder is None or not is_folder(folder):
        raise UsageError(
            "prompts beside the images need a folder of images; give a file of prompts instead",
            code="prompts-kind",
        )
    return _from_folder(folder, "beside the images")


def _from_folder(folder: Path, where: str) -> NamedPrompts:
    """A prompt per line of the text file that has the name of the image."""
    origin = f"{folder}/*.txt"
    members = sorted(member for member in walk_files(folder) if member.lower().endswith(".txt"))
    if not members:
        raise _error(origin, f"there is no .txt file {where}")
    found = []
    for member in members:
        lines = [line for line in _read(folder / member, SMALL_TEXT_BYTES).split("\n") if line.strip()]
        if not lines:
            raise _error(origin, f"{member} is empty", code="prompt-empty")
        found += [(stem_of(member), Prompt(_checked(line, origin, member)), member) for line in lines]
    return _by_name(found, origin, stems=True)


class _Entry(NamedTuple):
    """One line of a file; None where it has no such field."""

    place: str
    name: object
    texts: object
    relevance: object
    group: object


def _from_csv(text: str, origin: str, delimiter: str) -> Prompts:
    """A heading with a name and a prompt, or two columns without one; a heading without a name is in the images' order."""
    rows = read_csv(text, origin, delimiter, code="prompts-damaged")
    if not rows:
        raise _error(origin, "it is empty")
    heads = [cell.strip().lower() for cell in rows[0][1]]
    columns = [next((heads.index(key) for key in keys if key in heads), None) for keys in _KEYS]
    has_heading = columns[1] is not None and (columns[0] is not None or columns[1] == 0 or len(heads) != 2)
    if has_heading:
        rows, width, needed = rows[1:], len(heads), f"{len(heads)} as in its heading"
    else:
        width, columns = 2, [0, 1, None, None]
        needed = "2, name and prompt, or a heading that names these"
    entries = []
    for number, row in rows:
        if len(row) != width:
            hint = "; a prompt that holds the separator must stand in quotation marks"
            raise _error(origin, f"line {number} has {len(row)} columns, needed are {needed}{hint}")
        name, prompt, relevance, group = (None if column is None else row[column] for column in columns)
        entries.append(_Entry(f"line {number}", name, prompt, relevance or None, group or None))
    return _from_entries(entries, origin, is_named=columns[0] is not None)


def _from_lines(text: str, origin: str) -> RowPrompts:
    """One prompt per line, in the order of the images."""
    lines = text.rstrip().split("\n")
    if not lines[-1]:
        raise _error(origin, "it is empty")
    prompts = [Prompt(_checked(line, origin, f"line {number}")) for number, line in enumerate(lines, 1)]
    return RowPrompts(tuple((prompt,) for prompt in prompts), origin)


def _from_json_lines(text: str, origin: str) -> Prompts:
    """An object per line, as Hugging Face's metadata.jsonl."""
    try:
        check_json(text)
    except ValueError as error:
        raise _error(origin, str(error)) from error
    entries = [
        _entry(_parsed(line, origin, f"line {number}"), origin, f"line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not entries:
        raise _error(origin, "it is empty")
    return _from_entries(entries, origin, is_named=any(entry.name is not None for entry in entries))


def _from_json(text: str, origin: str) -> Prompts:
    """A mapping from name to prompt or prompts, a list of objects, or COCO's captions."""
    value = _parsed(text, origin, "it")
    if isinstance(value, dict) and isinstance(value.get("annotations"), list):
        return _from_coco(value, origin)
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        entries = [_entry(each, origin, f"entry {number}") for number, each in enumerate(value, 1)]
        return _from_entries(entries, origin, is_named=any(entry.name is not None for entry in entries))
    if isinstance(value, dict):
        entries = [_Entry(repr(short(name)), name, texts, None, None) for name, texts in value.items()]
        return _by_name(
            [
                (str(entry.name), prompt, entry.place)
                for entry in entries
                for prompt in _captions(entry, origin)
            ],
            origin,
        )
    raise _error(origin, 'needed is {"name": "prompt"}, a list of objects, or COCO\'s captions')


def _from_coco(value: Mapping[str, Any], origin: str) -> NamedPrompts:
    """`images` with id and file_name, `annotations` with image_id and caption."""
    try:
        files = {each["id"]: each["file_name"] for each in value["images"]}
        pairs = [(files[each["image_id"]], each["caption"]) for each in value["annotations"]]
    except (KeyError, TypeError) as error:
        raise _error(
            origin,
            f"COCO's captions have images with id and file_name, and annotations with image_id and caption ({error!r})",
        ) from error
    found = []
    for number, (name, caption) in enumerate(pairs, 1):
        place = f"annotation {number}"
        prompt = Prompt(_checked(caption, origin, place))
        found.append((_checked(name, origin, place, is_name=True), prompt, place))
    return _by_name(found, origin)


def _parsed(text: str, origin: str, place: str) -> Any:  # noqa: ANN401 - as JSON gives it
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise _error(
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
        raise _error(origin, f"{place} is no JSON ({error})") from error


def _entry(value: object, origin: str, place: str) -> _Entry:
    if not isinstance(value, dict):
        raise _error(origin, f'{place} is no object such as {{"file_name": ..., "text": ...}}')
    fields = {str(key).strip().lower(): field for key, field in value.items()}
    entry = _Entry(place, *(next((fields[key] for key in keys if key in fields), None) for keys in _KEYS))
    if entry.texts is None:
        raise _error(origin, f"{place} has no prompt; needed is one of {', '.join(_TEXT_KEYS[:3])}")
    return entry


def _from_entries(entries: Sequence[_Entry], origin: str, *, is_named: bool) -> Prompts:
    if not entries:
        raise _error(origin, "it has a heading and nothing below it")
    if not is_named:
        return RowPrompts(tuple(_captions(entry, origin) for entry in entries), origin)
    return _by_name(
        [
            (_checked(entry.name, origin, entry.place, is_name=True), prompt, entry.place)
            for entry in entries
            for prompt in _captions(entry, origin)
        ],
        origin,
    )


def _captions(entry: _Entry, origin: str) -> Captions:
    """The prompts of one line, of which JSON may give several at once."""
    texts = entry.texts if isinstance(entry.texts, list) and entry.texts else [entry.texts]
    relevance, group = _relevance(entry, origin), entry.group
    if group is not None and not isinstance(group, str | int):
        raise _error(
            origin, f"the group of {entry.place} is {short(repr(group))}, needed is a name or an integer"
        )
    group = None if group is None else str(group)
    found = tuple(Prompt(_checked(text, origin, entry.place), relevance, group) for text in texts)
    if len({prompt.text for prompt in found}) != len(found):
        raise _error(origin, f"{entry.place} holds the same prompt twice", code="prompt-repeated")
    return found


def _relevance(entry: _Entry, origin: str) -> float:
    value = entry.relevance
    if value is None:
        return 1.0
    try:
        is_number = isinstance(value, str | int | float) and not isinstance(value, bool)
        relevance = float(value) if is_number else math.nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):  # no number, or an integer of hundreds of digits
        relevance = math.nan
    if not 0 < relevance <= 1e6:
        raise _error(
            origin, f"the relevance of {entry.place} is {short(repr(value))}, needed is a number above 0"
        )
    return relevance


def _by_name(pairs: Iterable[tuple[str, Prompt, str]], origin: str, *, stems: bool = False) -> NamedPrompts:
    """Prompts by name from (name, prompt, place), several of one name in their order."""
    found: dict[str, dict[str, Prompt]] = {}
    for name, prompt, place in pairs:
        captions = found.setdefault(plain_path(name), {})
        if prompt.text in captions:
            raise _error(
                origin,
                f"{place} gives {short(name)!r} the prompt {short(prompt.text)!r} for the second time",
                code="prompt-repeated",
            )
        captions[prompt.text] = prompt
    if not found:
        raise _error(origin, "it is empty")
    return NamedPrompts({name: tuple(captions.values()) for name, captions in found.items()}, origin, stems)


def _checked(text: object, origin: str, place: str, *, is_name: bool = False) -> str:
    """A prompt or name without spaces around it; refused if it is empty, too long, or not valid text."""
    if not isinstance(text, str):
        raise _error(origin, f"{place} holds {short(repr(text))} where a text is needed")
    if not text.strip():
        raise _error(origin, f"the text of {place} is empty", code="prompt-empty")
    reason = None
    if "\0" in text:
        reason = "holds a NUL character; is this a text file?"
    elif len(text) > MAX_CHARACTERS:
        reason = f"has {len(text):,} characters, more than the {MAX_CHARACTERS:,} of any prompt"
    elif not is_name and any("\ud800" <= c <= "\udfff" for c in text):  # names of files may be any bytes
        reason = "holds half a character (a lone surrogate), which no encoding has"
    if reason is not None:
        raise _error(origin, f"the text of {place} {reason}")
    return text.strip()


def _error(origin: str, reason: str, *, code: str = "prompts-damaged") -> DataError:
    return DataError(f"{origin} cannot be used as prompts: {reason}", code=code, path=origin)
