"""Read class labels (sub-folders, dataset.json, CSV, arrays), match them to images, and check both data sets."""

from __future__ import annotations

import csv
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Any, Self, cast

import numpy as np

from genpr.errors import DataError, UsageError, short, some
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, image_names, source_rows
from genpr.images.archive import damage_reported, open_member
from genpr.images.arrays import Header, read_array, read_npy
from genpr.images.item import (
    SHARD_SUFFIXES,
    ImageSource,
    JoinedSource,
    known_as,
    known_length,
    plain_path,
    printable,
)
from genpr.images.policy import BadImagePolicy
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

_NAME_COLUMNS = {"name", "filename", "file", "path", "image"}
_LABEL_COLUMNS = {"label", "class", "target"}
_KINDS = "a .csv of name,label, a dataset.json, an .npy in the order of the images, or the word folders"
_SEPARATOR = ";"
_MIN_IMAGES_PER_FOLDER = 10  # on average; folders of fewer images are not taken for classes
LABELS_HINT = "say where they are with real_labels and fake_labels (--real-labels, --fake-labels)"

Label = str | None
"""The class of one image; None where it has none."""


@dataclass(frozen=True)
class FolderLabels:
    """The class of an image is the folder that it lies in, below the folders that all images share."""

    origin: str = "sub-folders"

    def match(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image; None for those beside the folders of the others."""
        folders = [_folders(name) for name in names]
        if not folders:
            return []
        first, last = min(folders), max(folders)
        pairs = enumerate(zip(first, last, strict=False))
        shared = next((depth for depth, (a, b) in pairs if a != b), min(len(first), len(last)))
        if all(len(folder) == shared for folder in folders):
            shared = max(0, shared - 1)  # all in one folder, which is then the one class
        return [folder[shared] if len(folder) > shared else None for folder in folders]


def _folders(name: str) -> tuple[str, ...]:
    """The folders that an image lies in; a shard is none, and within it they begin anew."""
    parts = PurePosixPath(name.replace("\\", "/")).parts[:-1]
    shards = [index for index, part in enumerate(parts, 1) if part.lower().endswith(SHARD_SUFFIXES)]
    return parts[shards[-1] :] if shards else parts


@dataclass(frozen=True)
class NamedLabels:
    """A class by the name of each image.

    Attributes:
        by_name: With POSIX separators, relative to the source.
        origin: Where they come from, for messages.
    """

    by_name: Mapping[str, str]
    origin: str

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], origin: str) -> Self:
        """From names and labels; an empty label is none.

        Raises:
            DataError: One name has two classes ("label-conflict").
        """
        by_name: dict[str, str] = {}
        for raw, label in pairs:
            name = plain_path(raw)
            if label and by_name.setdefault(name, label) != label:
                raise DataError(
                    f"{printable(origin)} gives {short(name)!r} two labels, {short(by_name[name])!r} and {short(label)!r}; "
                    "each image is of one class",
                    code="label-conflict",
                    path=origin,
                )
        return cls(by_name, origin)

    def match(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image: by relative path, or by file name where the labels name no folders and files differ.

        Raises:
            DataError: They name none of the images ("labels-match-nothing").
        """
        found = [self.by_name.get(name) for name in known_as(names, self.by_name)]
        if names and all(label is None for label in found):
            theirs = next(iter(self.by_name), "nothing")
            raise DataError(
                f"{printable(self.origin)} names none of the {len(names):,} images: it has {short(theirs)!r}, they are "
                f"called {short(names[0])!r}; names must be relative to the source",
                code="labels-match-nothing",
                path=self.origin,
            )
        return found


@dataclass(frozen=True)
class RowLabels:
    """A class for each image in the order of the source, whether it was used or not."""

    labels: tuple[Label, ...]
    origin: str

    def match(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image, by its row in the source.

        Raises:
            DataError: There are more or fewer labels than images in the source ("label-count").
        """
        needed = total if total is not None else max(rows, default=-1) + 1
        if len(self.labels) < needed or (total is not None and len(self.labels) != needed):
            raise DataError(
                f"{printable(self.origin)} holds {len(self.labels):,} labels, but there are {needed:,} images, such as "
                f"{short(names[0] if names else 'none')!r}; needed is one label for each, in their order",
                code="label-count",
                path=self.origin,
            )
        return [self.labels[row] for row in rows]


Labels = FolderLabels | NamedLabels | RowLabels
"""Labels of one data set, not yet matched to its images."""


def open_labels(labels: object, source: object, role: str, *, sets: bool = False) -> Labels:
    """Read the labels of one data set.

    Args:
        labels: A file: `.csv` or `.tsv` with a name and a label per line, `.json` as StyleGAN's tools write it, `.npy` with
            a label per image; "folders"; a sequence or 1-D array of labels in the order of the source; or None to look
            into the source: dataset.json, arr_1 of an .npz file, labels beside the images of shards, else sub-folders.
        source: The data set as the user gave it, or as it was opened.
        role: "real" or "fake", for messages.
        sets: Whether an image may have several labels or none: lists in JSON and Python, which become the text of a JSON
            list (`join_labels`), as does an empty cell of a CSV.

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
        return _read_file(Path(labels), role, sets=sets)
    return RowLabels(_classes(labels, f"{role}_labels", sets=sets), f"{role}_labels")


def _read_file(path: Path, role: str, *, sets: bool = False) -> Labels:
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
        return _parse_json_labels(data, shown, sets=sets)
    return _parse_csv_labels(data, shown, "\t" if suffix == ".tsv" else ",", sets=sets)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _in_source(source: object) -> Labels:
    """The labels that the source itself holds; sub-folders where it holds none."""
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
        return _read_file(path / "dataset.json", "")
    if path.is_file() and path.suffix.lower() == ".zip":
        return _in_zip(path) or FolderLabels()
    if path.is_file() and path.suffix.lower() == ".npz":
        return _in_npz(path) or FolderLabels()
    return FolderLabels()


def _in_parts(source: JoinedSource) -> Labels:
    """The labels of several containers; images of those without labels have no class, if others have one."""
    found, joined = [_in_source(part) for part in source.parts], list[Label]()
    origins = [each.origin for each in found if not isinstance(each, FolderLabels)]
    if not origins:
        return FolderLabels()
    for part, labels in zip(source.parts, found, strict=True):
        total = len(part)
        if isinstance(labels, FolderLabels):
            joined += [None] * total
        else:
            names = list(part.names() or (item.name for item in part))
            joined += labels.match(names, range(total), total)
    more = " and others" if len(found) > 1 else ""
    return RowLabels(tuple(joined), origins[0] + more)


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
    labels = _parse_json_labels(data, shown, most=ARCHIVED_PARSED_BYTES)
    folder = member.filename.removesuffix("dataset.json")
    return NamedLabels({folder + name: label for name, label in labels.by_name.items()}, labels.origin)


def _in_npz(path: Path) -> Labels | None:
    """`arr_1`, where guided-diffusion's sampler writes classes; None if there is none."""
    with damage_reported(path, ".npz file", code="npz-damaged"), zipfile.ZipFile(path) as archive:
        if "arr_1.npy" not in archive.namelist():
            return None
        origin = f"arr_1 of {printable(str(path))}"
        check = partial(_check_array, origin=origin, most=ARCHIVED_PARSED_BYTES)
        array = read_array(archive, "arr_1.npy", check=check)
    return RowLabels(_classes(array, origin), origin)


def _check_array(header: Header, origin: str, most: int = PARSED_BYTES) -> None:
    """Refuse an array that holds no labels, or too many, before it is read."""
    if len(header.shape) != 1 or header.dtype.kind not in "iuUO":
        raise _wrong_array(header.dtype, header.shape, origin)
    try:
        check_label_count(header.shape[0], header.dtype.itemsize, most)
    except ValueError as error:
        raise DataError(
            f"{origin} holds too many labels: {error}", code="labels-damaged", path=origin
        ) from error


def _classes(labels: Any, origin: str, *, sets: bool = False) -> tuple[Label, ...]:  # noqa: ANN401 - a user's object
    """Integers and strings as text; None and empty ones are no class."""
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1 or labels.dtype.kind not in "iuUO":
            raise _wrong_array(labels.dtype, labels.shape, origin)
        try:
            labels = labels.tolist()
        except SystemError as error:  # numpy checks no code points
            raise _wrong_label(origin, "text that is not Unicode", "save the array again") from error
    if isinstance(labels, bytes) or not isinstance(labels, Sequence):
        raise _wrong_label(
            origin, type(labels).__name__, "pass a list or an array in the order of the images"
        )
    return tuple(_class(label, origin, sets=sets) for label in labels)


def _class(label: object, origin: str, *, sets: bool = False) -> Label:
    if sets and isinstance(label, list | tuple | set | frozenset):
        return join_labels([_class(each, origin) for each in label])
    if label is None or isinstance(label, str):
        return label or None
    if isinstance(label, Integral) and not isinstance(label, bool):
        return str(int(label))
    raise _wrong_label(origin, short(repr(label)), "for one-hot rows pass their argmax")


def _wrong_array(dtype: np.dtype[Any], shape: tuple[int, ...], origin: str) -> DataError:
    return _wrong_label(origin, f"{dtype} of shape {shape}", "for one-hot rows pass x.argmax(axis=1)")


def _wrong_label(origin: str, found: str, action: str) -> DataError:
    return DataError(
        f"{printable(origin)} needs one class per image, an integer or a name, found {found}; {action}",
        code="label-kind",
        path=origin,
    )


def _parse_json_labels(
    data: bytes, origin: str, *, sets: bool = False, most: int = PARSED_BYTES
) -> NamedLabels:
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
    return NamedLabels.from_pairs((_json_pair(entry, origin, sets=sets) for entry in entries), origin)


def _json_pair(entry: object, origin: str, *, sets: bool) -> tuple[str, str]:
    if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], str):
        raise _damaged(origin, "JSON", f"{short(repr(entry))} is no [name, class]")
    return entry[0], _class(entry[1], origin, sets=sets) or ""


def _parse_csv_labels(data: bytes, origin: str, delimiter: str, *, sets: bool = False) -> NamedLabels:
    """Two columns, name and label, or more with a heading that names these two."""
    text = data.decode("utf-8-sig", errors="surrogateescape")  # names of files may be any bytes
    try:
        return NamedLabels.from_pairs(_csv_pairs(text, delimiter, origin, sets=sets), origin)
    except DataError:  # which is a ValueError
        raise
    except (csv.Error, ValueError) as error:
        raise _damaged(origin, "CSV", error) from error


def _csv_pairs(text: str, delimiter: str, origin: str, *, sets: bool) -> Iterator[tuple[str, str]]:
    empty = join_labels([]) if sets else ""
    name, label, width, is_heading = 0, 1, 0, False
    for number, row in csv_rows(text, delimiter):
        if not width:
            heads = [cell.strip().lower() for cell in row]
            columns = [
                next((index for index, head in enumerate(heads) if head in known), None)
                for known in (_NAME_COLUMNS, _LABEL_COLUMNS)
            ]
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
            yield row[name], row[label].strip() or empty
    if not width:
        raise _damaged(origin, "CSV", "it is empty")


def _damaged(origin: str, kind: str, reason: object) -> DataError:
    return DataError(
        f"{printable(origin)} is no {kind} of labels ({printable(str(reason))}); was it cut short, or is it another file?",
        code="labels-damaged",
        path=origin,
    )


def join_labels(labels: Iterable[Label]) -> str:
    """Several labels of one image as the text of a JSON list, in order and each label once.

    Example:
        >>> join_labels(["hat", "cat", "hat"])
        '["cat", "hat"]'
    """
    return json.dumps(sorted({label for label in labels if label}), ensure_ascii=False)


def is_label_list(text: str) -> bool:
    """Whether a text stands for several labels, or none, rather than for one."""
    return _SEPARATOR in text or _json_list(text) is not None


def split_labels(text: str) -> Sequence[str]:
    """The labels that a text stands for.

    Example:
        >>> split_labels("cat; hat"), split_labels('["cat", 3]'), split_labels("[]"), split_labels("cat")
        (['cat', 'hat'], ['cat', '3'], [], ['cat'])
    """
    listed = _json_list(text)
    if listed is not None:
        return listed
    return [label for part in text.split(_SEPARATOR) if (label := part.strip())]


def _json_list(text: str) -> list[str] | None:
    """The entries of a JSON list of texts and integers; None if it is no such list."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    if not all(isinstance(each, str | int) and not isinstance(each, bool) for each in found):
        return None
    return [str(each) for each in found if each != ""]


@dataclass(frozen=True)
class LabeledImages:
    """The images of one data set with their labels.

    Attributes:
        role: "real" or "fake".
        source: As the user wrote it.
        origin: Where the labels come from, for messages.
        names: Of the images.
        labels: Of the images; None for those without a class.
    """

    role: str
    source: str
    origin: str
    names: Sequence[str]
    labels: Sequence[Label]

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """The images of each class, ascending; classes sorted by `class_order`."""
        found: dict[str, list[int]] = {}
        for row, label in enumerate(self.labels):
            if label is not None:
                found.setdefault(label, []).append(row)
        return dict(sorted(found.items(), key=lambda entry: class_order(entry[0])))

    @cached_property
    def unlabeled(self) -> tuple[str, ...]:
        """Names of the images without a class."""
        pairs = zip(self.names, self.labels, strict=True)
        return tuple(name for name, label in pairs if label is None)

    def __str__(self) -> str:
        """What was found, for a message."""
        if not self.rows:
            return f"{self.role} has no labels ({printable(self.origin)} of {printable(self.source)})"
        sizes = [f"{short(label)} ({len(rows):,})" for label, rows in self.rows.items()]
        shown = some(sizes, 5, longest=60)
        count = f"{len(sizes):,} class{'es' * (len(sizes) > 1)}"
        return f"{self.role} has {count} from {printable(self.origin)}: {shown}"


def class_order(label: str) -> tuple[bool, int, str]:
    """Sort key of classes: numbers first and by their size, then names."""
    is_number = label.isdecimal()
    return not is_number, len(label) if is_number else 0, label


def match_names(role: str, opened: OpenedInput, labels: Labels) -> LabeledImages | None:
    """Each image of an opened source with its class; None where names are unknown before the images are read."""
    names = image_names(opened)
    if names is None:
        return None
    source = opened.source if isinstance(opened, FeatureSet) else opened.source.name
    matched = labels.match(names, range(len(names)), len(names))
    return LabeledImages(role, source, labels.origin, names, matched)


def match_labels(role: str, opened: OpenedInput, features: FeatureSet, labels: Labels) -> LabeledImages:
    """Each embedded image with its class.

    Args:
        role: "real" or "fake".
        opened: The source of the images.
        features: Its embedded images, perhaps fewer than the source has.
        labels: Labels of the source.

    Raises:
        DataError: The labels do not belong to the images ("labels-match-nothing", "label-count", "changed").
    """
    total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
    # Names are enough for all others, even where an image has gone since it was embedded.
    rows = source_rows(opened, features, total) if isinstance(labels, RowLabels) else range(len(features))
    names = [features.name_of(row) for row in range(len(features))]
    return LabeledImages(role, features.source, labels.origin, names, labels.match(names, rows, total))


def check_complete(images: LabeledImages, policy: BadImagePolicy) -> None:
    """Refuse a data set of which more images have no class than may be left out.

    Raises:
        DataError: They are listed ("unlabelled").
    """
    few = images.unlabeled
    share = len(few) / len(images.labels)
    if not few or (policy.action == "skip" and share <= policy.max_share):
        return
    limit = f", and at most {policy.max_share:.1%} may be left out" if policy.action == "skip" else ""
    raise DataError(
        f"{len(few):,} of {len(images.labels):,} {images.role} images have no label in "
        f"{printable(images.origin)}{limit}: "
        f'{some(few)}; give all of them one, or leave them out with on_bad="skip" and max_bad (--on-bad, --max-bad)',
        code="unlabelled",
        path=images.source,
    )


def check_shared(real: LabeledImages, fake: LabeledImages) -> None:
    """Refuse data sets that have no class in common.

    Raises:
        DataError: "labels-disagree".
    """
    if real.rows.keys() & fake.rows.keys():
        return
    numbers = [all(label.isdecimal() for label in images.rows) for images in (real, fake)]
    stripped = [{label.casefold().lstrip("0 ") for label in images.rows} for images in (real, fake)]
    if numbers[0] != numbers[1]:
        by_number, by_name = ("real", "fake") if numbers[0] else ("fake", "real")
        cause = f"the {by_number} classes are numbers and the {by_name} ones names; give both the same with a CSV of name,label"
    elif stripped[0] & stripped[1]:
        cause = "they differ in case or leading zeros; labels are compared letter by letter"
    else:
        cause = "are these the same data set, and are the folders classes?"
    raise DataError(f"no class is on both sides: {real}; {fake}; {cause}", code="labels-disagree")


@dataclass(frozen=True)
class OptionalLabels:
    """The labels of one data set, if it has any: `genpr modes` names its clusters by them.

    Attributes:
        role: "real" or "fake".
        labels: Those that were found; None where there are none.
        is_guess: Whether they are sub-folders that nobody called classes.
    """

    role: str
    labels: Labels | None
    is_guess: bool

    @classmethod
    def open(cls, given: object, source: object, role: str) -> Self:
        """The labels that were given, or those of the source, as `open_labels` finds them.

        Raises:
            UsageError: There is no such file, or it is of no such kind.
            DataError: It is damaged, or holds something else than one class per image.
        """
        try:
            labels = open_labels(given, source, role)
        except DataError as error:
            if given is None and error.code == "no-labels":  # a dataset.json that says so: none are needed
                return cls(role, None, is_guess=False)
            raise
        return cls(role, labels, is_guess=given is None and isinstance(labels, FolderLabels))

    def check(self, opened: OpenedInput, policy: BadImagePolicy) -> None:
        """Refuse labels that do not fit, from the names of the images alone, if these are known.

        Raises:
            DataError: They are of other images ("labels-match-nothing", "label-count"), or some images have none
                ("unlabelled").
        """
        if self.labels is not None and not self.is_guess:
            images = match_names(self.role, opened, self.labels)
            if images is not None:
                check_complete(images, policy)

    def match(
        self, opened: OpenedInput, features: FeatureSet, policy: BadImagePolicy
    ) -> LabeledImages | None:
        """Each embedded image with its class; None where no classes are known.

        Raises:
            DataError: As `check`.
        """
        if self.labels is None:
            return None
        images = match_labels(self.role, opened, features, self.labels)
        if self.is_guess:
            return images if look_like_classes(images.labels) else None
        check_complete(images, policy)
        return images


def look_like_classes(folders: Sequence[Label]) -> bool:
    """Whether folders may be taken for classes: all images have one, and each has at least 10 images on average.

    Example:
        >>> look_like_classes(["cat"] * 10 + ["dog"] * 10), look_like_classes(["2026-01", "2026-02"])
        (True, False)
    """
    different = len(set(folders))
    return None not in folders and different > 1 and _MIN_IMAGES_PER_FOLDER * different <= len(folders)
