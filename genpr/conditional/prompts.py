"""Read the prompts of images, from one file for all images or from a text file per image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from genpr.errors import DataError, printable, short
from genpr.evaluation.protocols import EvaluationProtocol
from genpr.evaluation.tables import (
    ImageValues,
    TableFormat,
    TableRow,
    is_folder,
    read_records,
    read_text,
)
from genpr.images.folder import walk_files
from genpr.images.item import plain_path, stem_of
from genpr.limits import SMALL_TEXT_BYTES, TEXT_BYTES

MAX_CHARACTERS = 2**16  # of one prompt; longer texts are errors

_FORMAT = TableFormat(
    what="prompts",
    code="prompts-damaged",
    fields={
        "id": "filename 图片 文件名 file name image path imagepath imagename filepath",
        "prompt": "prompt caption text prompts captions texts 提示词 描述",
    },
    main="prompt",
    headless=("id", "prompt"),
)


Captions: TypeAlias = tuple[str, ...]  # all prompts of one image, at least one
Prompts: TypeAlias = ImageValues[Captions]  # the prompts of a set of images


def open_prompts(prompts: object) -> Prompts:
    """Read the prompts of images.

    `prompts` is a `.csv` or `.tsv` with a name and a prompt per line; a `.jsonl` with objects ({"file_name": ..., "text": ...}); a
    `.json` that maps names to prompts; a `.txt` with a prompt per line in the order of the images; a folder
    with a `.txt` for each image, whose lines are its prompts, which may be the folder of the images; a mapping from
    name to prompt or prompts; or prompts, or lists of them, in the order of the images.
    """
    if isinstance(prompts, ImageValues):
        return prompts
    path = Path(os.fsdecode(prompts)) if isinstance(prompts, str | os.PathLike) else None
    if path is not None and is_folder(path):
        return _joined(_folder_rows(path), f"{path}/*.txt")
    if path is not None and path.suffix.lower() == ".txt":
        rows = [TableRow(f"line {at}", {"prompt": line}) for at, line in enumerate(_lines(path), 1)]
        return _joined(rows, str(path))
    return _joined(*read_records(prompts, _FORMAT))


def check_number(prompts: Prompts, recipe: EvaluationProtocol | None) -> None:
    """Raise an error unless there is one prompt for each of the images that a protocol needs ("prompt-count")."""
    captions = prompts.values if prompts.by_name is None else prompts.by_name.values()
    n, images = sum(map(len, captions)), len(captions)
    if recipe is not None and (n, images) != (recipe.n_fake, recipe.n_fake):
        message = f"{printable(prompts.origin)} has {n:,} prompts of {images:,} images, but protocol {recipe.name} needs "
        message += f"{recipe.n_fake:,} prompts, one per image"
        raise DataError(message, code="prompt-count", path=prompts.origin)


def _lines(path: Path, most: int = TEXT_BYTES) -> list[str]:
    """The lines of a text file, without empty lines at its end."""
    text = read_text(path, "prompts", code=_FORMAT.code, most=most)
    stripped = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return stripped.split("\n") if stripped else []


def _folder_rows(folder: Path) -> list[TableRow]:
    """The lines of each text file as the prompts of the image with its name."""
    rows = []
    for member in sorted(member for member in walk_files(folder) if member.lower().endswith(".txt")):
        lines = [line for line in _lines(folder / member, SMALL_TEXT_BYTES) if line.strip()]
        rows.append(TableRow(member, {"id": stem_of(member), "prompt": lines or ""}))
    return rows


def _joined(rows: Sequence[TableRow], origin: str) -> Prompts:
    """Prompts by name, in order for rows of the same name; or by position if rows have no names."""
    named = any("id" in row.values for row in rows)
    found: dict[str, list[str]] = {}
    for at, row in enumerate(rows):
        name = _checked(row.values.get("id"), origin, row.where, is_name=True) if named else str(at)
        known, given = found.setdefault(plain_path(name), []), row.values.get("prompt")
        for text in given if isinstance(given, list | tuple) and given else [given]:
            known.append(_checked(text, origin, row.where))
        if len(set(known)) < len(known):
            reason = f"{row.where} repeats a prompt of the same image"
            raise _FORMAT.error(origin, reason, code="prompt-repeated")
    if not found:
        raise _FORMAT.error(origin, "it is empty")
    values = {name: tuple(known) for name, known in found.items()}
    return ImageValues(values if named else tuple(values.values()), origin, "prompt")


def _checked(text: object, origin: str, where: str, *, is_name: bool = False) -> str:
    """A stripped prompt or name; an error if it is empty, too long, or not valid text."""
    if not isinstance(text, str):
        reason = f"{where} has {short(repr(text))}, expected a {'name' if is_name else 'prompt'}"
        raise _FORMAT.error(origin, reason)
    if not text.strip():
        raise _FORMAT.error(origin, f"the text of {where} is empty", code="prompt-empty")
    is_half = any("\ud800" <= c <= "\udfff" for c in text)  # lone surrogates; names of files may be any bytes
    if "\0" in text or len(text) > MAX_CHARACTERS or (is_half and not is_name):
        reason = f"has NUL, a lone surrogate, or more than {MAX_CHARACTERS:,} characters"
        raise _FORMAT.error(origin, f"the text of {where} {reason}")
    return text.strip()
