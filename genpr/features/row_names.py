"""What the images of an opened side are called, and where each stands in its source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from genpr.errors import DataError
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide
from genpr.images.item import printable


def names_of(opened: OpenedSide) -> list[str] | None:
    """What the images of a side are called, in order; None where that cannot be known without reading them."""
    if isinstance(opened, FeatureSet):
        return [opened.name_of(row) for row in range(len(opened))]
    names = opened.source.names()
    return None if names is None else list(names)


def rows_in_source(opened: OpenedSide, features: FeatureSet, total: int | None) -> Sequence[int]:
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
        else opened.source.names() or (item.name for item in opened.source)
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
