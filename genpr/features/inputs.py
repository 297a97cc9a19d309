"""The images behind the rows of features: their names, their order in the source, and their pixels, read again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, ImageError, short
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import OpenedInput, open_input
from genpr.images.datasets import BatchSource
from genpr.images.decode import content_sha256, decode
from genpr.images.folder import FileSource
from genpr.images.item import INDEX_NAME, ImageData, ImageSource, printable
from genpr.images.policy import DEFAULTS, DecodePolicy


def image_names(opened: OpenedInput) -> list[str] | None:
    """The names of the images of a source in order; None if they are unknown before the images are read."""
    if isinstance(opened, FeatureSet):
        return [opened.name_of(row) for row in range(len(opened))]
    names = opened.source.names()
    return None if names is None else list(names)


def source_rows(opened: OpenedInput, features: FeatureSet, total: int | None) -> Sequence[int]:
    """The index of each image in its source, from which a subset may have been chosen or unusable images left out."""
    if total == len(features):
        return range(total)
    if not isinstance(opened, FeatureSet) and all(map(INDEX_NAME.fullmatch, features.names)):
        end = float("inf") if total is None else total
        numbers = [int(name[1:-1]) for name in features.names]
        rows = [row if row < end else None for row in numbers]
    else:
        listed = image_names(opened) or [item.name for item in opened.source]  # type: ignore[union-attr]
        index_of = {name: index for index, name in enumerate(listed)}
        # A list may have one file twice, but in archives these may be different images.
        if len(index_of) < len(listed) and not isinstance(getattr(opened, "source", None), FileSource):
            twice = next(name for name, count in Counter(listed).items() if count > 1)
            raise _repeated_name(twice, features.source, "values by order and a part of the images")
        rows = [index_of.get(name) for name in features.names]
    for name, row in zip(features.names, rows, strict=True):
        if row is None:
            text = f"{printable(name)} was scored but is no longer in {printable(features.source)}; do not change the source during a score"
            raise DataError(text, code="changed", path=features.source)
    return [row for row in rows if row is not None]


def check_distinct(features: FeatureSet, what: str) -> None:
    """Raise an error if different images have one name, so that `what` ("labels by name") cannot be matched ("repeated-name")."""
    if len(set(features.names)) == len(features.names):
        return
    digests: dict[str, list[int]] = {}
    for row, name in enumerate(features.names):
        digest = [row] if features.identities is None else features.identities[row].tolist()
        if digests.setdefault(name, digest) != digest:
            raise _repeated_name(name, features.source, what)


def _repeated_name(name: str, source: str, what: str) -> DataError:
    text = f"{printable(source)} has several images with the name {short(name)!r}, as joined archives do, so {what} cannot be "
    return DataError(
        f"{text}matched; rename the images, or divide the archive", code="repeated-name", path=source
    )


Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Pictures:
    """Pictures of a source by their `names` and digests (n, 32) uint8; `keep` converts each as it is read, if given."""

    source: ImageSource
    names: Sequence[str]
    identities: Pixels | None = None
    policy: DecodePolicy = field(default_factory=DecodePolicy)
    keep: Callable[[Pixels], Any] | None = None

    def read(self, rows: Iterable[int]) -> dict[int, Any]:
        """The pixels (h, w, 3) uint8 by row, or what `keep` made of them, without images that are missing, changed or damaged since they were scored."""
        requested: dict[str, list[int]] = defaultdict(list)
        for row in dict.fromkeys(rows):
            requested[self.names[row]].append(row)
        pixels_of: dict[int, Any] = {}
        items, names = iter(self.source), self.source.names()
        if names is not None:  # visit only the requested images
            items = self.source.select(index for index, name in enumerate(names) if name in requested)
        for item in items if requested else ():
            if item.name in requested:
                with suppress(ImageError):
                    data = item.read()
                    row = self._row_of(data, requested[item.name])
                    pixels = decode(data, name=item.name, policy=self.policy).pixels
                    if self.policy.bands == "all":  # the first three, or one as gray
                        pixels = pixels[..., [0, 1, 2] if pixels.shape[2] > 2 else [0] * 3]
                    pixels_of[row] = pixels if self.keep is None else self.keep(pixels)
                    requested[item.name].remove(row)
                if not requested[item.name]:
                    del requested[item.name]
            if not requested:
                break
        return pixels_of

    def _row_of(self, data: ImageData, rows: Sequence[int]) -> int:
        """The row among `rows`, which share a name, of an image; ImageError if there is none."""
        if self.identities is None:
            return rows[0]
        digest = bytes.fromhex(content_sha256(data))
        for row in rows:
            if self.identities[row].tobytes() == digest:
                return row
        raise ImageError("the image has changed since it was scored", code="changed")


def pictures_of(
    source: object,
    names: Sequence[str],
    *,
    identities: Pixels | None = None,
    policy: DecodePolicy | None = None,
    keep: Callable[[Pixels], Any] | None = None,
) -> Pictures | None:
    """The pictures of a source; None if it has features, or can be read only once.

    `names` and `identities` are those of `PerImageScores.fake` or `PerImageScores.real`; `policy` and `keep` are those of `Pictures`.

    >>> pictures = pictures_of(np.zeros((2, 4, 4, 3), np.uint8), ["[0]", "[1]"])
    >>> {row: pixels.shape for row, pixels in pictures.read([1]).items()}
    {1: (4, 4, 3)}
    """
    policy = policy or DEFAULTS
    opened = open_input(source, "source", policy)
    if isinstance(opened, FeatureSet):
        return None
    images = opened.source
    if isinstance(images, BatchSource) and images.is_one_shot:
        return None
    return Pictures(images, names, identities, policy, keep)
