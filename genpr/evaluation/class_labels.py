"""Which image of a side is of which class: the names and places of images, matched to labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from genpr.evaluation.label_files import open_labels
from genpr.evaluation.label_table import Labels, RowLabels
from genpr.evaluation.labeled_source import LabelledSide, check_labels
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, check_same_kind, holds_features, labels_lie_in, open_side
from genpr.features.row_names import names_of, rows_in_source
from genpr.images.item import known_length
from genpr.images.policy import BadImagePolicy


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
    found = [
        open_labels(labels, labels_lie_in(source, side), role)
        for (labels, source, role), side in zip(given, sides, strict=True)
    ]
    check_names(sides, found, policy)


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
    names = names_of(opened)
    if names is None:
        return None
    source = opened.source if isinstance(opened, FeatureSet) else opened.source.name
    return LabelledSide(role, source, labels.origin, names, labels.of(names, range(len(names)), len(names)))


def labelled(role: str, opened: OpenedSide, features: FeatureSet, labels: Labels) -> LabelledSide:
    """Each embedded image with its class."""
    total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
    # Names are enough for all others, even where an image has gone since it was embedded.
    rows = rows_in_source(opened, features, total) if isinstance(labels, RowLabels) else range(len(features))
    names = [features.name_of(row) for row in range(len(features))]
    return LabelledSide(role, features.source, labels.origin, names, labels.of(names, rows, total))
