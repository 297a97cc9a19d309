"""Read the prompts of images, from a file for all of them or a text file beside each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from genpr.errors import UsageError, short
from genpr.evaluation.tables import (
    SUFFIXES,
    ImageValues,
    TableFormat,
    TableRow,
    is_file,
    is_folder,
    read_table,
    read_text,
)
from genpr.images.folder import walk_files
from genpr.images.item import plain_path, stem_of
from genpr.limits import SMALL_TEXT_BYTES, TEXT_BYTES

BESIDE = "beside"
"""Stands for text files beside the images."""

MAX_CHARACTERS = 2**16
"""Most characters of one prompt; a longer text is another kind of file."""

_KINDS = (
    ".csv or .tsv with name and prompt, .jsonl or .json, .txt with a prompt per line in the order of the images, a folder "
    "with a .txt for each image, or the word beside"
)
_FORMAT = TableFormat(
    what="prompts",
    code="prompts-damaged",
    fields={
        "id": (
            *("filename", "图片", "文件名", "file", "name", "image", "path"),
            *("imagepath", "imagename", "filepath"),
        ),
        "prompt": ("prompt", "caption", "text", "prompts", "captions", "texts", "提示词", "描述"),
        "group": ("group", "groupid", "promptgroup"),
    },
    main="prompt",
    headless=("id", "prompt"),
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of an image, and its group, of which prompts are never ranked against each other."""

    text: str
    group: str | None = None


Captions: TypeAlias = tuple[Prompt, ...]
"""All prompts of one image: one or more."""

Prompts: TypeAlias = ImageValues[Captions]
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
    if isinstance(prompts, ImageValues):
        return prompts
    if isinstance(prompts, str | os.PathLike):
        if prompts != BESIDE:
            return _from_path(Path(prompts))
        folder = Path(os.fsdecode(images)) if isinstance(images, str | os.PathLike) else None
        if folder is not None and is_folder(folder):
            return _from_folder(folder)
        raise UsageError("prompts beside the images need a folder of images", code="prompts-kind")
    if isinstance(prompts, Mapping):
        return _by_name((name, _given(each, repr(name)), repr(name)) for name, each in prompts.items())
    if isinstance(prompts, Sequence) and not isinstance(prompts, bytes | bytearray):
        return _in_order([_given(each, f"prompt {row}") for row, each in enumerate(prompts)])
    raise UsageError(
        f"{type(prompts).__name__} cannot be read as prompts; needed is {_KINDS}, a mapping, or a list in the order of the "
        "images",
        code="prompts-kind",
    )


def _given(value: object, where: str) -> Captions:
    """One prompt or several, as a program gives them."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(
            f"{short(where)} is {short(repr(value))}; needed is a string, or a list of strings",
            code="prompts-kind",
        )
    return tuple(Prompt(_checked(text, "<prompts>", where)) for text in dict.fromkeys(texts))


def _from_path(path: Path) -> Prompts:
    suffix, origin = path.suffix.lower(), str(path)
    if is_folder(path):
        return _from_folder(path)
    if not is_file(path):
        raise UsageError(
            f"there are no prompts at {short(origin, 60)!r}; needed is {_KINDS}",
            code="path-not-found",
            path=origin,
        )
    if suffix == ".txt":
        lines = enumerate(_lines(path), 1)
        return _in_order([(Prompt(_checked(line, origin, f"line {at}")),) for at, line in lines], origin)
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{path} is of unknown kind ({suffix or 'no suffix'}); prompts are {_KINDS}",
            code="prompts-kind",
            path=origin,
        )
    rows = list(read_table(path, _FORMAT, lambda value: _coco(value, origin)))
    entries = [_captions(row, origin) for row in rows]
    if not any("id" in row.values for row in rows):
        return _in_order(entries, origin)
    names = [_checked(row.values.get("id"), origin, row.where, is_name=True) for row in rows]
    return _by_name(zip(names, entries, (row.where for row in rows), strict=True), origin)


def _lines(path: Path, most: int = TEXT_BYTES) -> list[str]:
    """The lines of a text file, without empty ones at its end."""
    text = read_text(path, "prompts", code=_FORMAT.code, most=most)
    stripped = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return stripped.split("\n") if stripped else []


def _from_folder(folder: Path) -> Prompts:
    """A prompt per line of the text file that has the name of the image."""
    origin = f"{folder}/*.txt"
    found = []
    for member in sorted(member for member in walk_files(folder) if member.lower().endswith(".txt")):
        lines = [line for line in _lines(folder / member, SMALL_TEXT_BYTES) if line.strip()]
        captions = tuple(Prompt(_checked(line, origin, member)) for line in lines or [""])
        found.append((stem_of(member), captions, member))
    return _by_name(found, origin)


def _coco(value: Any, origin: str) -> list[Any] | None:  # noqa: ANN401 - any JSON
    """COCO's captions: `images` with id and file_name, `annotations` with image_id and caption; None for another file."""
    if not isinstance(value, dict) or not isinstance(value.get("annotations"), list):
        return None
    try:
        names = {each["id"]: each["file_name"] for each in value["images"]}
        return [
            {"file": names[each["image_id"]], "caption": each["caption"]} for each in value["annotations"]
        ]
    except (KeyError, TypeError) as error:
        reason = f"images need id and file_name, annotations image_id and caption ({error!r})"
        raise _FORMAT.error(origin, reason) from error


def _captions(row: TableRow, origin: str) -> Captions:
    """The prompts of one row, of which JSON may give several at once."""
    value, group = row.values.get("prompt"), row.values.get("group") or None
    if value is None:
        raise _FORMAT.error(origin, f"{row.where} has no prompt; needed is one of prompt, caption, text")
    if group is not None and not isinstance(group, str | int):
        raise _FORMAT.error(origin, f"the group of {row.where} is {short(repr(group))}, needed is a name")
    texts = value if isinstance(value, list) and value else [value]
    named = None if group is None else str(group)
    return tuple(Prompt(_checked(text, origin, row.where), named) for text in texts)


def _in_order(entries: Sequence[Captions], origin: str = "<prompts>") -> Prompts:
    numbered = ((str(at), captions, f"entry {at}") for at, captions in enumerate(entries, 1))
    return ImageValues(tuple(_joined(numbered, origin).values()), origin, "prompt")


def _by_name(entries: Iterable[tuple[str, Captions, str]], origin: str = "<prompts>") -> Prompts:
    return ImageValues(_joined(entries, origin), origin, "prompt")


def _joined(entries: Iterable[tuple[str, Captions, str]], origin: str) -> dict[str, Captions]:
    """Prompts by name from (name, prompts, where), several of one name in their order."""
    found: dict[str, dict[str, Prompt]] = {}
    for name, captions, where in entries:
        known = found.setdefault(plain_path(name), {})
        for prompt in captions:
            if known.setdefault(prompt.text, prompt) is not prompt:
                raise _FORMAT.error(
                    origin, f"{where} repeats a prompt of the same image", code="prompt-repeated"
                )
    if not found:
        raise _FORMAT.error(origin, "it is empty")
    return {name: tuple(known.values()) for name, known in found.items()}


def _checked(text: object, origin: str, where: str, *, is_name: bool = False) -> str:
    """A prompt or name without spaces around it; refused if it is empty, too long, or not valid text."""
    if not isinstance(text, str):
        raise _FORMAT.error(origin, f"{where} holds {short(repr(text))} where a text is needed")
    if not text.strip():
        raise _FORMAT.error(origin, f"the text of {where} is empty", code="prompt-empty")
    is_half = any("\ud800" <= c <= "\udfff" for c in text)  # lone surrogates; names of files may be any bytes
    if "\0" in text or len(text) > MAX_CHARACTERS or (is_half and not is_name):
        reason = f"holds NUL or half a character, or more than {MAX_CHARACTERS:,} characters"
        raise _FORMAT.error(origin, f"the text of {where} {reason}")
    return text.strip()
