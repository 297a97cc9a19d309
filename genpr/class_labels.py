"""Which image of a side is of which class: the names and places of images, matched to labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from genpr.errors import DataError
from genpr.features.feature_set import FeatureSet
from genpr.images.archive import TarSource, ZipSource
from genpr.images.arrays import ArraySource, NpzSource, TensorSource
from genpr.images.folder import FolderSource
from genpr.images.item import known_length, printable
from genpr.images.policy import BadImagePolicy
from genpr.labels.read import open_labels
from genpr.labels.sides import LabelledSide, check_labels
from genpr.labels.table import Labels, RowLabels
from genpr.sides import OpenedSide, check_same_kind, holds_features, open_side


def check_sources(
    real: str,
    fake: str,
    *,
    real_labels: object = None,
    fake_labels: object = None,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
) -> None:
    """Refuse labels that do not fit two paths, before an image of either is embedded; features need no such haste.

    Raises:
        UsageError: There is no such path or file.
        DataError: The labels cannot be read, or do not belong together.
    """
    policy = BadImagePolicy(on_bad, max_bad)
    given = zip((real_labels, fake_labels), (real, fake), ("real", "fake"), strict=True)
    are_features = [holds_features(Path(path)) for path in (real, fake)]
    if all(are_features):
        return
    sides = open_side(real, "real"), open_side(fake, "fake")
    check_same_kind(*sides)
    check_names(sides, [open_labels(labels, source, role) for labels, source, role in given], policy)


def check_names(sides: Sequence[OpenedSide], labels: Sequence[Labels], policy: BadImagePolicy) -> None:
    """The same for opened sides, as far as the images' names are known without reading them."""
    found = []
    for role, opened, each in zip(("real", "fake"), sides, labels, strict=True):
        side = of_names(role, opened, each)
        if side is None:
            return
        found.append(side)
    check_labels(found[0], found[1], policy)


def of_names(role: str, opened: OpenedSide, labels: Labels) -> LabelledSide | None:
    """Each image of an opened side with its class; None where its names cannot be known without reading the images."""
    names = _names_of(opened)
    if names is None:
        return None
    source = opened.source if isinstance(opened, FeatureSet) else opened.source.name
    return LabelledSide(role, source, labels.origin, names, labels.of(names, range(len(names)), len(names)))


def labelled(role: str, opened: OpenedSide, features: FeatureSet, labels: Labels) -> LabelledSide:
    """Each embedded image with its class."""
    total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
    # Names are enough for all others, even where an image has gone since it was embedded.
    rows = _rows_in_source(opened, features, total) if isinstance(labels, RowLabels) else range(len(features))
    names = [features.name_of(row) for row in range(len(features))]
    return LabelledSide(role, features.source, labels.origin, names, labels.of(names, rows, total))


def _names_of(opened: OpenedSide) -> list[str] | None:
    """What the images of a side are called, in order; None where that cannot be known without reading them."""
    if isinstance(opened, FeatureSet):
        return [opened.name_of(row) for row in range(len(opened))]
    source = opened.source
    if isinstance(source, ArraySource | TensorSource | NpzSource):
        return [f"[{row}]" for row in range(len(source))]
    return (
        [item.name for item in source] if isinstance(source, FolderSource | ZipSource | TarSource) else None
    )


def _rows_in_source(opened: OpenedSide, features: FeatureSet, total: int | None) -> Sequence[int]:
    """Where each image stands in its source, of which a part may have been chosen and unusable ones left out.

    Raises:
        DataError: One of them is not there any more ("changed").
    """
    if total == len(features):
        return range(total)
    if not isinstance(opened, FeatureSet) and all(_is_place(name) for name in features.names):
        rows = [int(name[1:-1]) for name in features.names]
        gone = next(
            (name for name, row in zip(features.names, rows, strict=True) if row >= (total or row + 1)), None
        )
        return _known(rows, gone, features)
    listed: Iterable[str] = (
        map(opened.name_of, range(len(opened)))
        if isinstance(opened, FeatureSet)
        else (item.name for item in opened.source)
    )
    places = {name: place for place, name in enumerate(listed)}
    gone = next((name for name in features.names if name not in places), None)
    return _known([places.get(name, 0) for name in features.names], gone, features)


def _known(rows: list[int], gone: str | None, features: FeatureSet) -> list[int]:
    if gone is not None:
        raise DataError(
            f"{printable(gone)} was scored and is not in {printable(features.source)} any more; was the source changed?",
            code="changed",
            path=features.source,
        )
    return rows


def _is_place(name: str) -> bool:
    return name.startswith("[") and name.endswith("]") and name[1:-1].isdecimal()
