"""Records of images, such as prompts, expected entities and answers, from files or from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from genpr.errors import UsageError
from genpr.evaluation.tables import SUFFIXES, ImageValues, TableFormat, TableRow, is_folder, read_table
from genpr.images.item import plain_path

T = TypeVar("T")


def columns(**names: str) -> dict[str, tuple[str, ...]]:
    """The names that the column of each field may have."""
    return {field: tuple(forms.split()) for field, forms in names.items()}


def read_records(
    source: object,
    form: TableFormat,
    objects: Callable[[Any], list[Any] | None] | None = None,
    hint: str = "",
) -> tuple[list[TableRow], str]:
    """Rows of a file, of a mapping of id -> value, or of values in order, and what to call their source."""
    origin = f"<{form.what}>"
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if (not path.suffix or path.suffix.lower() in SUFFIXES) and not is_folder(path):
            return list(read_table(path, form, objects)), str(source)
    elif isinstance(source, Mapping):
        values = [(f"[{key!r}]", {"id": str(key), form.field_of(each): each}) for key, each in source.items()]
        return [TableRow(*each) for each in values], origin
    elif isinstance(source, Iterable) and not isinstance(source, bytes) and getattr(source, "ndim", 1) == 1:
        return [TableRow(f"[{i}]", {form.field_of(each): each}) for i, each in enumerate(source)], origin
    given = source if isinstance(source, str | os.PathLike) else type(source).__name__
    needed = (
        "a .csv, .tsv, .jsonl or .json file with a record per image, a dictionary by id, or a list in order"
    )
    raise UsageError(f"{given} cannot be read as {form.what}; needed is {needed}{hint}", code="records-kind")


def values_by_id(ids: Sequence[str] | None, values: Sequence[T], origin: str, noun: str) -> ImageValues[T]:
    """Values of images by their ids, or in order where there are none."""
    by_name = None if ids is None else dict(zip(map(plain_path, ids), values, strict=True))
    return ImageValues(values if by_name is None else by_name, origin, noun)
