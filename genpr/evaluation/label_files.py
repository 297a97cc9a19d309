"""Labels from where people keep them: sub-folders, StyleGAN's dataset.json, a CSV, an array."""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import numpy as np

from genpr.errors import DataError, UsageError
from genpr.evaluation.label_sets import as_text
from genpr.evaluation.label_table import FolderLabels, Label, Labels, NamedLabels, RowLabels, named, short
from genpr.images.array_file import read_array, read_npy
from genpr.images.arrays import Header
from genpr.images.damage import damage_reported
from genpr.images.item import ImageSource, printable
from genpr.images.joined import JoinedSource
from genpr.images.zip_members import open_member
from genpr.limits import (
    ARCHIVED_PARSED_BYTES,
    ARCHIVED_TEXT_BYTES,
    PARSED_BYTES,
    TEXT_BYTES,
    check_label_count,
    csv_rows,
    parse_json,
    read_bytes,
)
from genpr.storage import open_regular

_NAME_HEADS = {"name", "filename", "file", "path", "image"}
_LABEL_HEADS = {"label", "class", "target"}
_KINDS = "a .csv of name,label, a dataset.json, an .npy in the order of the images, or the word folders"


def open_labels(labels: object, source: object, role: str, *, sets: bool = False) -> Labels:
    """Read the labels of one side.

    Args:
        labels: A file: `.csv` or `.tsv` with a name and a label per line, `.json` as StyleGAN's tools write it, `.npy` with
            a label per image; "folders"; a sequence or 1-D array of labels in the order of the source; or None to look
            into the source: dataset.json, arr_1 of an .npz file, labels beside the images of shards, else sub-folders.
        source: The side as the user gave it, or as it was opened.
        role: "real" or "fake", for messages.
        sets: Whether an image may have several labels or none: lists in JSON and Python, which become the text of a JSON
            list (`genpr.evaluation.label_sets`), as does an empty cell of a CSV.

    Raises:
        UsageError: There is no such file, or it is of no such kind.
        DataError: It is damaged, or holds something else than one class per image.
    """
    if isinstance(labels, FolderLabels | NamedLabels | RowLabels):
        return labels
    if labels is None:
        return _in_source(source)
    if isinstance(labels, str) and labels == "folders":
        return FolderLabels()
    if isinstance(labels, str | os.PathLike):
        return _from_file(Path(labels), role, sets=sets)
    return RowLabels(_classes(labels, f"{role}_labels", sets=sets), f"{role}_labels")


def _from_file(path: Path, role: str, *, sets: bool = False) -> Labels:
    shown = printable(str(path))
    if not _is_file(path):
        raise UsageError(
            f"there is no file {shown!r} with labels of the {role} images; needed is {_KINDS}",
            code="path-not-found",
            path=str(path),
        )
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with damage_reported(path, ".npy file", code="npy-damaged"):
            array = read_npy(path, check=partial(_check_array, origin=shown))
        return RowLabels(_classes(array, shown), shown)
    if suffix not in {".csv", ".tsv", ".json"}:
        raise UsageError(
            f"{shown} is of unknown kind ({suffix or 'no suffix'}); labels are {_KINDS}",
            code="labels-kind",
            path=str(path),
        )
    with damage_reported(path, "file of labels", code="labels-damaged"), open_regular(path) as file:
        data = read_bytes(file, TEXT_BYTES, name=shown, what="labels", code="labels-damaged")
    if suffix == ".json":
        return _from_json(data, shown, sets=sets)
    return _from_csv(data, shown, suffix, sets=sets)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _in_source(source: object) -> Labels:
    """What the source itself says; sub-folders where it says nothing."""
    if ImageSource in type(source).__mro__:
        opened = cast("ImageSource", source)
        stated = opened.stated_labels()
        if stated is not None:
            return RowLabels(_classes(list(stated.labels), stated.origin), stated.origin)
        if isinstance(opened, JoinedSource):
            return _in_parts(opened)
        source = opened.name
    path = Path(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else None
    if path is None:
        return FolderLabels()
    if path.is_dir() and (path / "dataset.json").is_file():
        return _from_file(path / "dataset.json", "")
    if path.is_file() and path.suffix.lower() == ".zip":
        return _in_zip(path) or FolderLabels()
    if path.is_file() and path.suffix.lower() == ".npz":
        return _in_npz(path) or FolderLabels()
    return FolderLabels()


def _in_parts(source: JoinedSource) -> Labels:
    """What each of several containers says itself; images of those that say nothing have no class, if others do."""
    found, stated = [_in_source(part) for part in source.parts], list[Label]()
    origins = [each.origin for each in found if not isinstance(each, FolderLabels)]
    if not origins:
        return FolderLabels()
    for part, labels in zip(source.parts, found, strict=True):
        total = len(part)
        if isinstance(labels, FolderLabels):
            stated += [None] * total
        else:
            names = list(part.names() or (item.name for item in part))
            stated += labels.of(names, range(total), total)
    more = " and others" if len(found) > 1 else ""
    return RowLabels(tuple(stated), origins[0] + more)


def _in_zip(path: Path) -> Labels | None:
    """The dataset.json nearest to the root, whose names are relative to it."""
    with damage_reported(path, "zip archive", code="archive-damaged"), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.split("/")[-1] == "dataset.json"]
        if not members:
            return None
        member = min(members, key=lambda info: info.filename.count("/"))
        shown = f"{printable(str(path))}/{printable(member.filename)}"
        with open_member(archive, member) as file:
            data = read_bytes(file, ARCHIVED_TEXT_BYTES, name=shown, what="labels", code="labels-damaged")
    labels = _from_json(data, shown, most=ARCHIVED_PARSED_BYTES)
    folder = member.filename.removesuffix("dataset.json")
    return NamedLabels({folder + name: label for name, label in labels.by_name.items()}, labels.origin)


def _in_npz(path: Path) -> Labels | None:
    """`arr_1`, where guided-diffusion's sampler writes classes; None if there is none."""
    with damage_reported(path, ".npz file", code="npz-damaged"), zipfile.ZipFile(path) as archive:
        if "arr_1.npy" not in archive.namelist():
            return None
        origin = f"arr_1 of {printable(str(path))}"
        array = read_array(
            archive, "arr_1.npy", check=partial(_check_array, origin=origin, most=ARCHIVED_PARSED_BYTES)
        )
    return RowLabels(_classes(array, origin), origin)


def _check_array(header: Header, origin: str, most: int = PARSED_BYTES) -> None:
    """Refuse an array that holds no labels, or too many, before it is read."""
    if len(header.shape) != 1 or header.dtype.kind not in "iuUO":
        raise _no_labels(header.dtype, header.shape, origin)
    try:
        check_label_count(header.shape[0], header.dtype.itemsize, most)
    except ValueError as error:
        raise DataError(
            f"{origin} holds too many labels: {error}", code="labels-damaged", path=origin
        ) from error


def _no_labels(dtype: np.dtype[Any], shape: tuple[int, ...], origin: str) -> DataError:
    return _no_class(origin, f"{dtype} of shape {shape}", "for one-hot rows pass x.argmax(axis=1)")


def _classes(labels: Any, origin: str, *, sets: bool = False) -> tuple[Label, ...]:  # noqa: ANN401 - a user's object
    """Integers and strings as text; None and empty ones are no class.

    Raises:
        DataError: Something else ("label-kind").
    """
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1 or labels.dtype.kind not in "iuUO":
            raise _no_labels(labels.dtype, labels.shape, origin)
        try:
            labels = labels.tolist()
        except SystemError as error:  # numpy checks no code points
            raise _no_class(origin, "text that is not Unicode", "save the array again") from error
    if isinstance(labels, bytes) or not isinstance(labels, Sequence):
        raise _no_class(origin, type(labels).__name__, "pass a list or an array in the order of the images")
    return tuple(_class(label, origin, sets=sets) for label in labels)


def _class(label: object, origin: str, *, sets: bool = False) -> Label:
    if sets and isinstance(label, list | tuple | set | frozenset):
        return as_text([_class(each, origin) for each in label])
    if label is None or isinstance(label, str):
        return label or None
    if isinstance(label, Integral) and not isinstance(label, bool):
        return str(int(label))
    raise _no_class(origin, short(repr(label)), "for one-hot rows pass their argmax")


def _no_class(origin: str, came: str, cause: str) -> DataError:
    return DataError(
        f"{printable(origin)} needs one class per image, an integer or a name, found {came}; {cause}",
        code="label-kind",
        path=origin,
    )


def _from_json(data: bytes, origin: str, *, sets: bool = False, most: int = PARSED_BYTES) -> NamedLabels:
    """`{"labels": [[name, class], ...]}`, as dataset_tool.py of StyleGAN writes it."""
    try:
        record = parse_json(data, most=most)
    except ValueError as error:
        raise _damaged(origin, "JSON", error) from error
    labels = record.get("labels") if isinstance(record, dict) else None
    if isinstance(record, dict) and "labels" in record and labels is None:
        raise DataError(
            f'{printable(origin)} says that there are no labels ("labels": null); was the dataset made without them? '
            "Give them otherwise, or say folders if sub-folders are classes",
            code="no-labels",
            path=origin,
        )
    if not isinstance(labels, list | dict):
        raise _damaged(origin, "JSON", 'needed is {"labels": [[name, class], ...]}')
    entries = labels.items() if isinstance(labels, dict) else labels
    return named((_pair(entry, origin, sets=sets) for entry in entries), origin)


def _pair(entry: object, origin: str, *, sets: bool) -> tuple[str, str]:
    if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], str):
        raise _damaged(origin, "JSON", f"{short(repr(entry))} is no [name, class]")
    return entry[0], _class(entry[1], origin, sets=sets) or ""


def _from_csv(data: bytes, origin: str, suffix: str, *, sets: bool = False) -> NamedLabels:
    """Two columns, name and label, or more with a heading that names these two."""
    text = data.decode("utf-8-sig", errors="surrogateescape")  # names of files may be any bytes
    try:
        return named(_pairs(text, "\t" if suffix == ".tsv" else ",", origin, sets=sets), origin)
    except DataError:  # which is a ValueError
        raise
    except (csv.Error, ValueError) as error:
        raise _damaged(origin, "CSV", error) from error


def _pairs(text: str, delimiter: str, origin: str, *, sets: bool) -> Iterator[tuple[str, str]]:
    """Names and labels, one row after another."""
    nothing = as_text([]) if sets else ""
    name, label, width, is_heading = 0, 1, 0, False
    for number, row in csv_rows(text, delimiter):
        if not width:
            heads = [cell.strip().lower() for cell in row]
            columns = _column(heads, _NAME_HEADS), _column(heads, _LABEL_HEADS)
            is_heading = None not in columns
            name, label = (columns[0] or 0, columns[1] or 0) if is_heading else (0, 1)
            width = len(heads) if is_heading else 2
        if len(row) != width:
            raise _damaged(
                origin,
                "CSV",
                f"line {number} has {len(row)} columns, needed are name,label, or a heading with name and label",
            )
        if is_heading:
            is_heading = False
        else:
            yield row[name], row[label].strip() or nothing
    if not width:
        raise _damaged(origin, "CSV", "it is empty")


def _column(heads: Sequence[str], known: set[str]) -> int | None:
    return next((place for place, head in enumerate(heads) if head in known), None)


def _damaged(origin: str, kind: str, reason: object) -> DataError:
    return DataError(
        f"{printable(origin)} is no {kind} of labels ({printable(str(reason))}); was it cut short, or is it another file?",
        code="labels-damaged",
        path=origin,
    )
