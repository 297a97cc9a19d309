"""`datasets.Dataset` and `IterableDataset`: the bytes that they hold, our decoder.

Left to themselves they open images with Pillow, turn them by their EXIF orientation, and run what `set_transform` was
given, so that the numbers would depend on how a data set was handed over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from genpr.errors import DataError, ImageError, UsageError, short
from genpr.images.arrow import Columns, columns_of, given, labels_in
from genpr.images.folder import read_file
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    StatedLabels,
    names_of_places,
    printable,
    too_large_to_read,
    unreadable,
)
from genpr.images.patterns import is_remote
from genpr.images.saved_dataset import several_splits

_LABELS_AT_ONCE = 8192


@dataclass(frozen=True)
class HuggingFaceSource(ImageSource):
    """The images in one column of a `datasets.Dataset`, in its order; reads take turns.

    Attributes:
        dataset: Without format and transforms, its column of images undecoded.
        columns: Where images and classes are.
    """

    name: str
    dataset: Any
    columns: Columns
    _turn: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Item]:
        return self.pick(range(len(self)))

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places; others are not read."""
        images = self.dataset.select_columns([self.columns.image])
        for place in places:
            yield Item(f"[{place}]", partial(self._read, images, place))

    def _read(self, images: Any, place: int) -> bytes:  # noqa: ANN401 - untyped
        with self._turn:
            value = images[place][self.columns.image]
        return given(_bytes_of(value, f"[{place}]"))

    def names(self) -> Iterator[str]:
        """Row numbers."""
        return names_of_places(len(self))

    def stated_labels(self) -> StatedLabels | None:
        """The values of the label column."""
        return labels_in(self.columns, partial(_values, self.dataset), self.name)


@dataclass(frozen=True)
class StreamedSource(ImageSource):
    """The images in one column of a `datasets.IterableDataset`, as they come; how many is not known."""

    name: str
    dataset: Any
    columns: Columns

    def __len__(self) -> int:
        raise TypeError(f"{self.name} is streamed and does not know its number of images")

    def __iter__(self) -> Iterator[Item]:
        for place, row in enumerate(self.dataset):
            name = f"[{place}]"
            yield Item(name, partial(given, _bytes_of(row[self.columns.image], name)))

    def stated_labels(self) -> StatedLabels | None:
        """The values of the label column, for which the data set is streamed once more."""
        return labels_in(self.columns, partial(_values, self.dataset), self.name)


def is_huggingface(source: object) -> bool:
    """Whether something comes from the library `datasets`; where that was never imported, nothing does."""
    datasets = sys.modules.get("datasets")
    names = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")
    kinds = tuple(kind for name in names if isinstance(kind := getattr(datasets, name, None), type))
    return isinstance(source, kinds)


def open_huggingface(source: Any, name: str) -> HuggingFaceSource | StreamedSource:  # noqa: ANN401 - untyped
    """Find the images in a data set, without decoding any.

    Raises:
        UsageError: It has several splits, or several columns of images.
        DataError: It has no images.
    """
    import datasets

    if isinstance(source, Mapping):
        raise several_splits(name, [str(each) for each in source], [])
    if source.features is None:
        raise UsageError(
            f"{printable(name)} does not know its columns; pass it after "
            ".cast_column('image', datasets.Image(decode=False)), with the name of its column of images",
            code="several-columns",
        )
    columns = columns_of(source.features.arrow_schema, None, name)
    raw = source.with_format(None).cast_column(columns.image, datasets.Image(decode=False))
    if isinstance(source, datasets.IterableDataset):
        return StreamedSource(name, raw, columns)
    if not len(source):
        raise DataError(f"{printable(name)} has no images (it has no rows)", code="no-images", path=name)
    return HuggingFaceSource(name, raw, columns)


def _values(dataset: Any, column: str) -> Iterator[list[object]]:  # noqa: ANN401 - untyped
    for batch in dataset.select_columns([column]).iter(_LABELS_AT_ONCE):
        yield list(batch[column])


def _bytes_of(value: object, name: str) -> bytes | ImageError:
    """The bytes of an undecoded image; of one that is only a path, which the user's own data set says, the file's."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if isinstance(data, bytes):
        return too_large_to_read(name, len(data)) if len(data) > MAX_ENCODED_BYTES else data
    path = value.get("path") if isinstance(value, dict) else None
    if not isinstance(path, str):
        return unreadable(name, "the value is null")
    if is_remote(path) or "::" in path:
        return unreadable(name, f"it lies at {short(path)}, which is no file here")
    try:
        return read_file(Path(path), name)
    except ImageError as error:
        return error
