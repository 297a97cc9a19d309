"""Prompts from where people keep them: one file for all images, or a text file beside each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from genpr.conditional.prompts.formats import from_csv, from_json, from_json_lines, from_lines
from genpr.conditional.prompts.table import (
    NamedPrompts,
    Prompt,
    Prompts,
    RowPrompts,
    by_name,
    checked_text,
    damaged,
)
from genpr.errors import UsageError, short
from genpr.images.damage import damage_reported
from genpr.images.folder import walk_files
from genpr.images.item import printable
from genpr.images.naming import stem_of
from genpr.limits import SMALL_TEXT_BYTES, TEXT_BYTES, check_lines, read_bytes
from genpr.storage import open_regular

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
