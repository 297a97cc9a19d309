"""The pictures behind rows of a score, read once more from where they came from.

What is read is what was scored: where the hashes of the images are known, a picture that has changed since is not given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from genpr.errors import ImageError
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import open_side
from genpr.images.datasets import BatchSource
from genpr.images.decode import content_sha256, decode
from genpr.images.item import ImageData, ImageSource, Item
from genpr.images.policy import DecodePolicy

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Pictures:
    """Pictures of the images of one side of a score.

    Attributes:
        source: Where they are.
        names: Of the images that were scored, as `genpr.evaluation.per_image.FakeSamples.names`.
        identities: (n, 32) uint8, sha256 of their bytes; None where they are not known.
        policy: How they are decoded.
        keep: What is kept of the pixels of each, since thousands of large pictures fill the memory; None for all of them.
    """

    source: ImageSource
    names: Sequence[str]
    identities: Pixels | None = None
    policy: DecodePolicy = field(default_factory=DecodePolicy)
    keep: Callable[[Pixels], Pixels] | None = None

    def read(self, rows: Iterable[int]) -> dict[int, Pixels]:
        """The pixels (h, w, 3) uint8 of the wanted rows, in one pass over the names of the source.

        Only wanted images are decoded; an .npz file and a compressed archive are read up to the last of them. A row
        is missing where the image is gone, has changed since it was scored, or cannot be decoded.

        Args:
            rows: Of the score, 0 to n - 1, in any order.

        Raises:
            DataError: The source as a whole cannot be read any more.
        """
        wanted: dict[str, list[int]] = defaultdict(list)
        for each in dict.fromkeys(rows):
            wanted[self.names[each]].append(each)
        found: dict[int, Pixels] = {}
        for item in self._items_called(wanted) if wanted else ():
            if item.name not in wanted:
                continue
            try:
                data = item.read()
                row = self._row_of(data, wanted[item.name])
                pixels = None if row is None else decode(data, name=item.name, policy=self.policy).pixels
            except ImageError:
                continue
            if row is not None and pixels is not None:
                found[row] = pixels if self.keep is None else self.keep(pixels)
                wanted[item.name].remove(row)
                if not wanted[item.name]:
                    del wanted[item.name]
            if not wanted:
                break
        return found

    def _items_called(self, wanted: Collection[str]) -> Iterator[Item]:
        """The images of some names, as long as these are wanted; where names are known, no others are looked at."""
        names = self.source.names()
        if names is None:
            return iter(self.source)
        return self.source.pick(place for place, name in enumerate(names) if name in wanted)

    def _row_of(self, data: ImageData, rows: Sequence[int]) -> int | None:
        """Which of `rows`, which share a name, an image is; None if it is none of them."""
        if self.identities is None:
            return rows[0]
        digest = bytes.fromhex(content_sha256(data))
        return next((row for row in rows if self.identities[row].tobytes() == digest), None)


def pictures_of(
    source: object,
    names: Sequence[str],
    *,
    identities: Pixels | None = None,
    policy: DecodePolicy | None = None,
    keep: Callable[[Pixels], Pixels] | None = None,
) -> Pictures | None:
    """The pictures behind one side of a score; None where the source holds features, or gives its images once.

    Args:
        source: As it was given to the score: a folder, archive, .npz or .npy file, array, tensor or dataset.
        names: What the scored images are called, as `Evidence.fake.names` or `Evidence.real.names`.
        identities: Their hashes, as `Evidence` gives them too.
        policy: How images are decoded; None for the default limits.
        keep: As of `Pictures`.

    Raises:
        UsageError: The path does not exist any more.
        DataError: It is empty or damaged.

    Example:
        >>> images = np.zeros((2, 4, 4, 3), np.uint8)
        >>> pictures = pictures_of(images, ["[0]", "[1]"])
        >>> {row: pixels.shape for row, pixels in pictures.read([1]).items()}
        {1: (4, 4, 3)}
        >>> pictures_of(np.zeros((2, 8)), ["row 0", "row 1"]) is None  # features
        True
    """
    opened = open_side(source, "source")
    if isinstance(opened, FeatureSet):
        return None
    images = opened.source
    if isinstance(images, BatchSource) and images.is_one_shot:
        return None
    return Pictures(images, names, identities, policy or DecodePolicy(), keep)
