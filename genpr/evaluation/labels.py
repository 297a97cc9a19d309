"""Read class labels (sub-folders, names, dataset.json, CSV, arrays), match them to images, and check both data sets."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Any, Self, TypeAlias, cast

import numpy as np
import torch

from genpr.errors import DataError, UsageError, short, some
from genpr.evaluation.options import PATTERN
from genpr.evaluation.tables import ImageValues, TableFormat, is_file, read_table, read_text
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import check_distinct, image_names, source_rows
from genpr.features.source_features import OpenedInput
from genpr.images.archive import open_member, open_npz, reraise_corrupt
from genpr.images.arrays import Header, read_array, read_npy
from genpr.images.formats import SHARD_SUFFIXES
from genpr.images.item import (
    ConcatSource,
    ImageSource,
    known_length,
    plain_path,
    printable,
)
from genpr.images.policy import BadImagePolicy
from genpr.limits import (
    ARCHIVED_TEXT_BYTES,
    TEXT_BYTES,
    read_bytes,
)
from genpr.notices import Notice
from genpr.validation import is_plain, kind_of

_FORMAT = TableFormat(
    what="labels",
    code="labels-damaged",
    fields={"id": "name filename file path image", "label": "label class target"},
    main="label",
    headless=("id", "label"),
    any_names=True,
)
_KINDS = "a .csv of name,label, a dataset.json, an .npy in the order of the images, the word folders, or pattern:REGEX"
_MIN_IMAGES_PER_FOLDER = 10  # on average; folders with fewer images are not used as classes
LABELS_HINT = "give them with real_labels and fake_labels (--real-labels, --fake-labels)"
GROUPS_HINT = "give groups with real_groups and fake_groups (--real-groups, --fake-groups)"

Label = str | None  # the label of one image; None without one


@dataclass(frozen=True)
class FolderLabels:
    """Classes by folder: the first folder of an image below the common folders of all images."""

    origin: str = "sub-folders"

    def match(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image; None for images that are in no such folder."""
        folders = [_folders(name) for name in names]
        pairs = zip(min(folders, default=()), max(folders, default=()), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if all(len(folder) == shared for folder in folders):
            shared = max(0, shared - 1)  # all images are in one folder, the only class
        return [folder[shared] if len(folder) > shared else None for folder in folders]


def _folders(name: str) -> tuple[str, ...]:
    """The folders of an image; in a shard, those within the shard only."""
    parts = PurePosixPath(name.replace("\\", "/")).parts[:-1]
    shards = [index for index, part in enumerate(parts, 1) if part.lower().endswith(SHARD_SUFFIXES)]
    return parts[shards[-1] :] if shards else parts


@dataclass(frozen=True)
class PatternLabels:
    """Classes by `pattern:REGEX`: the first group of the expression in the name of an image, or all that it matches."""

    origin: str
    expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The labels by the expression after the prefix; UsageError "bad-pattern" if it is none."""
        of_user = text.removeprefix(PATTERN)
        try:
            return cls(text, re.compile(of_user))
        except (re.error, OverflowError, RecursionError) as error:
            reason = f"{printable(text)} is not a regular expression of Python ({printable(str(error))})"
            advice = r"; expected is one such as pattern:^(.+)_\d+\.png$"
            raise UsageError(reason + advice, code="bad-pattern") from None

    def match(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
        """One label per image; None for images that do not match, or whose label is empty."""
        found = [self.expression.search(plain_path(name)) for name in names]
        return [each and (each[min(1, self.expression.groups)] or None) for each in found]


Labels: TypeAlias = FolderLabels | PatternLabels | ImageValues[Label]  # not matched to images yet


def labels_of(labels: Labels, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[Label]:
    """The label of each image, by its name or by its row in a source of `total` images; None without one."""
    found = labels.match(names, rows, total)
    of_file = labels.by_name if isinstance(labels, ImageValues) else None
    if (of_file is not None or isinstance(labels, PatternLabels)) and names and not any(found):
        theirs = "" if of_file is None else f" (it has {short(next(iter(of_file), 'nothing'))!r})"
        raise DataError(
            f"{printable(labels.origin)} has none of the {len(names):,} images{theirs}, which have names such as "
            f"{short(names[0])!r}; names must be relative to the source",
            code="labels-match-nothing",
            path=labels.origin,
        )
    return found


def open_labels(labels: object, source: object, role: str) -> Labels:
    """Read the labels of one data set.

    `labels` are a file (`.csv` or `.tsv` with a name and a label per line, `.json` in the format of StyleGAN's tools, `.npy` with a
    label per image), "folders", "pattern:REGEX" (`PatternLabels`), a sequence or 1-D array of labels in the order of the source, or None for the labels in the
    source: dataset.json, arr_1 of an .npz file, labels in shards, else sub-folders.
    """
    if isinstance(labels, FolderLabels | PatternLabels | ImageValues):
        return labels
    if labels is None:
        return _in_source(source)
    if isinstance(labels, str) and labels == "folders":
        return FolderLabels()
    if isinstance(labels, str) and labels.startswith(PATTERN):
        return PatternLabels.parse(labels)
    if isinstance(labels, str | os.PathLike):
        return _read_file(Path(labels), role)
    return _in_order(labels, f"{role}_labels")


def _read_file(path: Path, role: str) -> ImageValues[Label]:
    shown, suffix = printable(str(path)), path.suffix.lower()
    if not is_file(path):
        text = f"there is no file {shown!r} with labels of the {role} images; expected {_KINDS}"
        raise UsageError(text, code="path-not-found", path=str(path))
    if suffix == ".npy":
        with reraise_corrupt(path, ".npy file", code="npy-damaged"):
            return _in_order(read_npy(path, check=partial(_check_array, origin=shown)), shown)
    if suffix == ".json":
        return _from_json(read_text(path, "labels", code="labels-damaged"), shown)
    if suffix not in {".csv", ".tsv"}:
        text = f"{shown} has an unknown format ({suffix or 'no suffix'}); expected {_KINDS}"
        raise UsageError(text, code="labels-kind", path=str(path))
    pairs = []
    for row in read_table(path, _FORMAT):
        if len(row.values) < 2:
            raise _FORMAT.error(str(path), "expected name,label, or a header with name and label")
        pairs.append((row.values["id"], row.values["label"].strip()))
    return _by_name(pairs, shown)


def _by_name(pairs: Iterable[tuple[str, Label]], origin: str) -> ImageValues[Label]:
    by_name: dict[str, Label] = {}
    for raw, label in pairs:
        name = plain_path(raw)
        if label and by_name.setdefault(name, label) != label:
            raise DataError(
                f"{printable(origin)} has two labels of {short(name)!r}, {short(str(by_name[name]))!r} and {short(label)!r}; "
                "expected one per image",
                code="label-conflict",
                path=origin,
            )
    return ImageValues(by_name, origin, "label")


def _in_source(source: object) -> Labels:
    """The labels in a source; sub-folders without any."""
    if ImageSource in type(source).__mro__:
        opened = cast("ImageSource", source)
        stated = opened.source_labels()
        if stated is not None:
            return replace(_in_order(list(stated.labels), stated.origin), from_source=True)
        if isinstance(opened, ConcatSource):
            return _in_parts(opened)
        source = opened.name
    is_path = isinstance(source, str | os.PathLike) and os.path.exists(source)  # noqa: PTH110 - a Path raises for long names
    path = Path(os.fsdecode(source)) if is_path else None  # type: ignore[arg-type]
    found: Labels | None = None
    if path is not None and path.is_dir() and (path / "dataset.json").is_file():
        found = _read_file(path / "dataset.json", "")
    elif path is not None and path.is_file():
        found = {".zip": _in_zip, ".npz": _in_npz}.get(path.suffix.lower(), lambda _: None)(path)
    return found or FolderLabels()


def _in_parts(source: ConcatSource) -> Labels:
    """The labels of several containers; if some have labels, images of the others have no class."""
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
            joined += labels_of(labels, names, range(total), total)
    more = " and others" if len(found) > 1 else ""
    return ImageValues(tuple(joined), origins[0] + more, "label", from_source=True)


def _in_zip(path: Path) -> ImageValues[Label] | None:
    """The labels of the dataset.json nearest to the root, with names relative to it."""
    with reraise_corrupt(path, "zip archive", code="archive-damaged"), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.split("/")[-1] == "dataset.json"]
        if not members:
            return None
        member = min(members, key=lambda info: info.filename.count("/"))
        shown = f"{printable(str(path))}/{printable(member.filename)}"
        with open_member(archive, member) as file:
            data = read_bytes(file, ARCHIVED_TEXT_BYTES, name=shown, what="labels", code="labels-damaged")
    labels = _from_json(data, shown)
    folder = member.filename.removesuffix("dataset.json")
    by_name = {folder + name: label for name, label in (labels.by_name or {}).items()}
    return ImageValues(by_name, labels.origin, "label")


def _in_npz(path: Path) -> ImageValues[Label] | None:
    """The classes in `arr_1`, written by guided-diffusion's sampler; None without it."""
    with reraise_corrupt(path, ".npz file", code="npz-damaged"), open_npz(path) as archive:
        if "arr_1.npy" not in archive.namelist():
            return None
        origin = f"arr_1 of {printable(str(path))}"
        check = partial(_check_array, origin=origin, most=ARCHIVED_TEXT_BYTES)
        return _in_order(read_array(archive, "arr_1.npy", check=check), origin)


def _check_array(header: Header, origin: str, most: int = TEXT_BYTES) -> None:
    """Raise an error for an array without labels, or with too many, before it is read."""
    _check_kind(header.shape, header.dtype, origin)
    size = max(
        header.total_bytes, 8 * header.shape[0]
    )  # a label becomes an object, even of a type without bytes
    if size > most:
        reason = (
            f"it has {header.shape[0]:,} labels of {size:,} bytes, and labels may have {most:,}; divide it"
        )
        raise _FORMAT.error(origin, reason)


def _check_kind(shape: Sequence[int], dtype: np.dtype[Any], origin: str) -> None:
    if len(shape) != 1 or dtype.kind not in "iuUO":
        raise _wrong_label(origin, f"{dtype} of shape {tuple(shape)}")


def _in_order(labels: Any, origin: str) -> ImageValues[Label]:  # noqa: ANN401 - a user's object
    """Labels in order, with integers as text; None and empty strings are no class."""
    if hasattr(labels, "detach"):
        if not is_plain(labels):
            raise _wrong_label(origin, kind_of(labels))
        labels = labels.double() if labels.is_floating_point() else labels
        labels = labels.detach().cpu().resolve_neg().numpy()
    if isinstance(labels, np.ndarray):
        _check_kind(labels.shape, labels.dtype, origin)
        try:
            labels = labels.tolist()
        except SystemError as error:  # invalid code points
            raise _wrong_label(origin, "text that is not Unicode") from error
    if isinstance(labels, bytes) or not isinstance(labels, Sequence):
        raise _wrong_label(origin, type(labels).__name__)
    return ImageValues(tuple(_class(label, origin) for label in labels), origin, "label")


def _class(label: object, origin: str) -> Label:
    if label is None or isinstance(label, str):
        return label or None
    if isinstance(label, Integral) and not isinstance(label, bool):
        return str(int(label))
    raise _wrong_label(origin, short(repr(label)))


def _wrong_label(origin: str, found: str) -> DataError:
    return DataError(
        f"{printable(origin)} must have one class per image, an integer or a name, in a list or a 1-D array (use the argmax of "
        f"one-hot rows), found {found}",
        code="label-kind",
        path=origin,
    )


def _from_json(data: bytes | str, origin: str) -> ImageValues[Label]:
    """Labels from `{"labels": [[name, class], ...]}`, the format of StyleGAN's dataset_tool.py."""
    record = _FORMAT.parsed(data, origin)
    labels = record.get("labels", "") if isinstance(record, dict) else ""
    if labels is None:
        text = f'{printable(origin)} has no labels ("labels": null); give them in another file, or use the word folders'
        raise DataError(text, code="no-labels", path=origin)
    entries = list(labels.items()) if isinstance(labels, dict) else labels
    if not isinstance(entries, list) or not all(
        isinstance(entry, list | tuple) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries
    ):
        raise _FORMAT.error(origin, 'expected {"labels": [[name, class], ...]}')
    return _by_name(((name, _class(label, origin)) for name, label in entries), origin)


@dataclass(frozen=True)
class LabeledImages:
    """The images of one data set ("real" or "fake") with their names and labels, None without a label."""

    role: str
    source: str
    origin: str
    names: Sequence[str]
    labels: Sequence[Label]
    notices: tuple[Notice, ...] = ()

    @cached_property
    def rows(self) -> dict[str, list[int]]:
        """The rows of each class, ascending; classes are sorted by `class_order`."""
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
        """The classes, for messages."""
        if not self.rows:
            return f"{self.role} has no labels ({printable(self.origin)} of {printable(self.source)})"
        sizes = [f"{short(label)} ({len(rows):,})" for label, rows in self.rows.items()]
        shown = some(sizes, 5, longest=60)
        count = f"{len(sizes):,} class{'es' * (len(sizes) > 1)}"
        return f"{self.role} has {count} from {printable(self.origin)}: {shown}"


def class_order(label: str) -> tuple[bool, int, str]:
    """Sort key of classes: numbers by value, then names."""
    is_number = label.isdecimal()
    return not is_number, len(label) if is_number else 0, label


def check_complete(images: LabeledImages, policy: BadImagePolicy, hint: str = LABELS_HINT) -> LabeledImages:
    """The images; an error if none has a class ("no-labels"), or fewer than the policy requires ("unlabeled")."""
    if not images.rows:
        raise DataError(f"labels are needed, but {images}; {hint}", code="no-labels")
    few = images.unlabeled
    if not few or (policy.action == "skip" and len(few) / len(images.labels) <= policy.max_share):
        return images
    limit = f", and at most {policy.max_share:.1%} may be left out" if policy.action == "skip" else ""
    raise DataError(
        f"{len(few):,} of {len(images.labels):,} {images.role} images have no label in {printable(images.origin)}{limit}: "
        f'{some(few)}; add their labels, or leave them out with on_bad="skip" and max_bad (--on-bad, --max-bad)',
        code="unlabeled",
        path=images.source,
    )


def check_shared(real: LabeledImages, fake: LabeledImages) -> None:
    """Raise an error for data sets without a common class ("labels-disagree")."""
    if real.rows.keys() & fake.rows.keys():
        return
    raise DataError(
        f"reals and fakes have no class in common: {real}; {fake}; check that both are of the same data set. Matching of labels is "
        "exact, so 1 and 01 differ; a CSV of name,label can give both sets the same labels",
        code="labels-disagree",
    )


@dataclass(frozen=True)
class SourceLabels:
    """The labels of one opened source, which are matched with its images."""

    role: str
    opened: OpenedInput
    policy: BadImagePolicy  # whether images without a label may be left out
    labels: Labels | None  # None for a source that states that it has none
    is_guess: bool = False  # whether they are sub-folders that the user did not declare as classes
    hint: str = LABELS_HINT

    @classmethod
    def open(
        cls,
        given: object,
        opened: OpenedInput,
        role: str,
        policy: BadImagePolicy,
        *,
        is_optional: bool = False,
        hint: str = LABELS_HINT,
    ) -> Self:
        """The given labels, or those in the source, by `open_labels`."""
        try:
            labels = open_labels(given, opened.source, role)
        except DataError as error:
            if given is not None or not is_optional or error.code != "no-labels":
                raise
            return cls(role, opened, policy, None)  # stated by a dataset.json
        is_guess = is_optional and given is None and isinstance(labels, FolderLabels)
        return cls(role, opened, policy, labels, is_guess, hint)

    @cached_property
    def named(self) -> LabeledImages | None:
        """The images with their labels before they are embedded; None if their names are unknown or may be no classes."""
        names = None if self.labels is None or self.is_guess else image_names(self.opened)
        if names is None or self.labels is None:
            return None
        source = self.opened.source if isinstance(self.opened, FeatureSet) else self.opened.source.name
        matched = labels_of(self.labels, names, range(len(names)), len(names))
        notices = self.labels.order_notices(names) if isinstance(self.labels, ImageValues) else ()
        images = LabeledImages(self.role, source, self.labels.origin, names, matched, notices)
        return check_complete(images, self.policy, self.hint)

    def match(self, features: FeatureSet) -> LabeledImages | None:
        """Each embedded image with its label, without unusable images of the source; None without classes."""
        labels, opened = self.labels, self.opened
        if labels is None:
            return None
        total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
        # Labels by name do not need rows, which are unknown if an image was removed since it was embedded.
        is_ordered = isinstance(labels, ImageValues) and labels.by_name is None
        rows = source_rows(opened, features, total) if is_ordered else range(len(features))
        names, notices = [features.name_of(row) for row in range(len(features))], tuple[Notice, ...]()
        if isinstance(labels, ImageValues):
            if labels.by_name is None:
                notices = labels.order_notices(image_names(opened) or names)
            else:
                check_distinct(features, "labels by name")
        found = labels_of(labels, names, rows, total)
        images = LabeledImages(self.role, features.source, labels.origin, names, found, notices)
        if self.is_guess:
            return images if look_like_classes(found) else None
        return check_complete(images, self.policy, self.hint)

    def match_all(self, features: FeatureSet) -> LabeledImages:
        """The same for labels that are not optional."""
        images = self.match(features)
        assert images is not None
        return images


def check_groups(images: LabeledImages) -> None:
    """Raise an error for images that are all in one group, which have no independent halves ("one-group")."""
    if len(images.rows) + len(images.unlabeled) < 2:
        text = f"groups of dependent images need at least two of them, but {images}; leave the groups out if images are independent"
        raise DataError(text, code="one-group", path=images.source)


def in_groups(features: FeatureSet, groups: SourceLabels) -> FeatureSet:
    """The features with the groups of their images; an image without one is by itself."""
    found, numbers = groups.match_all(features), dict[object, int]()
    check_groups(found)
    keys = [row if label is None else label for row, label in enumerate(found.labels)]
    rows = torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys])
    return replace(features, groups=rows, notices=(*features.notices, *found.notices))


def look_like_classes(folders: Sequence[Label]) -> bool:
    """Whether folders are likely classes: all images are in one, and they have at least 10 images on average."""
    different = len(set(folders))
    return None not in folders and different > 1 and _MIN_IMAGES_PER_FOLDER * different <= len(folders)
