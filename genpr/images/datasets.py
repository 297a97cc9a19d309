"""Images that Python hands over one by one or in batches: datasets, lists, loaders, generators, and Hugging Face's."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.errors import DataError, ImageError, UsageError, printable, short
from genpr.images.arrays import check_images, is_tensor, pixels_at
from genpr.images.arrow import Columns, columns_of, labels_in, require_bytes, several_splits
from genpr.images.decode import loaded, rgb_of_image
from genpr.images.folder import read_file
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    NumberedSource,
    StatedLabels,
    too_large_to_read,
    unreadable,
)
from genpr.images.paths import is_remote
from genpr.notices import Notice

_ELEMENTS = "PIL images, uint8 tensors (3, h, w) or uint8 arrays (h, w, 3), alone or first in a tuple"
_LABELS_AT_ONCE = 8192


class Dataset(Protocol):
    """What torch calls a map-style dataset; lists qualify."""

    def __len__(self) -> int:
        """Number of images."""
        ...

    def __getitem__(self, index: int, /) -> Any:  # noqa: ANN401 - checked when it arrives
        """The image at `index`, perhaps first in a tuple."""
        ...


class CountedBatches(Iterable[object]):
    """Base of iterables of batches that know their number of images, and may have something to say about them."""

    @property
    @abstractmethod
    def n_images(self) -> int:
        """Number of images in all batches."""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What a reader of the score should know, once all batches were read."""
        return ()

    @property
    def drawn_by(self) -> Mapping[str, object] | None:
        """What drew the images, as plain JSON types, once they were read; None if unknown."""
        return None


@dataclass(frozen=True)
class DatasetSource(ImageSource):
    """Images of a map-style dataset, from which images are read one at a time.

    Datasets are written for worker processes, not for threads, so reads take turns. The dataset must give the
    same image for the same index: one that augments at random gives features that are random too.
    """

    name: str
    dataset: Dataset
    _turn: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Item]:
        for index in range(len(self.dataset)):
            yield Item(f"[{index}]", partial(self._read, index))

    def _read(self, index: int) -> NDArray[np.uint8] | Image.Image:
        name = f"[{index}]"
        try:
            with self._turn:
                image = _without_label(self.dataset[index])
                return loaded(image, name=name) if isinstance(image, Image.Image) else _pixels(image, name)
        except ImageError:
            raise
        except DataError as error:
            raise ImageError(str(error), code=error.code, path=name) from error
        except OSError as error:
            raise unreadable(name, error) from error


@dataclass
class BatchSource(ImageSource):
    """Images of an iterable: batches uint8 (n, 3, h, w) or (n, h, w, 3), or single images.

    It has a length if the iterable is `CountedBatches`. An iterator gives its images only once, and raises an error when it
    is iterated again.
    """

    name: str
    batches: Iterable[object]
    _spent: bool = field(default=False, repr=False)

    @property
    def is_one_shot(self) -> bool:
        """Whether it gives its images only once."""
        return iter(self.batches) is self.batches

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What the iterable says about its images, once they were read."""
        return self.batches.notices if isinstance(self.batches, CountedBatches) else ()

    def __len__(self) -> int:
        if isinstance(self.batches, CountedBatches):
            return self.batches.n_images
        raise TypeError(f"{self.name} is an iterable and does not know its number of images")

    def __iter__(self) -> Iterator[Item]:
        if self._spent:
            raise UsageError(
                f"{self.name} is an iterator and was read already; pass something that can be iterated again, "
                "such as a list or a DataLoader",
                code="one-shot",
            )
        iterator = iter(self.batches)
        self._spent = iterator is self.batches
        index = 0
        for number, batch in enumerate(iterator):
            for pixels in _batch_pixels(batch, f"{self.name}, batch {number},"):
                yield Item(f"[{index}]", partial(np.asarray, pixels))
                index += 1


def open_dataset(dataset: Dataset, name: str) -> DatasetSource | BatchSource:
    """Take a dataset, or a list of batches, after a look at its first element.

    Raises:
        DataError: It is empty, or its elements are not images.
    """
    if not len(dataset):
        raise DataError(f"{printable(name)} has no images (its length is 0)", code="no-images", path=name)
    first = dataset[0]
    if getattr(_without_label(first), "ndim", 0) == 4 and isinstance(dataset, Iterable):
        return BatchSource(name, dataset)
    _pixels(first, f"{name}[0]")
    return DatasetSource(name, dataset)


def _without_label(element: Any) -> Any:  # noqa: ANN401 - a user's object
    return element[0] if isinstance(element, tuple | list) and element else element


def _batch_pixels(batch: object, name: str) -> Iterable[NDArray[np.uint8]]:
    """The images of one element of an iterable, each (h, w, 3)."""
    images = _without_label(batch)
    if getattr(images, "ndim", 0) != 4:
        return [_pixels(images, name)]
    check_images(images, name)
    if is_tensor(images):
        every: NDArray[np.uint8] = images.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        return every
    return np.asarray(images)


def _pixels(element: object, name: str) -> NDArray[np.uint8]:
    """Pixels (h, w, 3) of one element of a dataset."""
    image = _without_label(element)
    if isinstance(image, Image.Image):
        return rgb_of_image(image, name=name)
    if (is_tensor(image) or isinstance(image, np.ndarray)) and image.ndim == 3:
        check_images(image[None], name)
        return pixels_at(image[None], 0)
    came = f"{type(image).__name__}{tuple(getattr(image, 'shape', ())) or ''}"
    raise DataError(f"{printable(name)} needs {_ELEMENTS}; got {came}", code="array-type", path=name)


@dataclass(frozen=True)
class HuggingFaceSource(NumberedSource):
    """The images in one column of a `datasets.Dataset`, in its order; reads take turns.

    genpr takes the bytes that it holds. Left to itself it opens images with Pillow, turns them by their EXIF orientation,
    and runs what `set_transform` was given, so that the numbers would depend on how a data set was handed over.

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

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; others are not read."""
        images = self.dataset.select_columns([self.columns.image])
        for index in indices:
            yield Item(f"[{index}]", partial(self._read, images, index))

    def _read(self, images: Any, index: int) -> bytes:  # noqa: ANN401 - untyped
        with self._turn:
            value = images[index][self.columns.image]
        return require_bytes(_bytes_of(value, f"[{index}]"))

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
        for index, row in enumerate(self.dataset):
            name = f"[{index}]"
            yield Item(name, partial(require_bytes, _bytes_of(row[self.columns.image], name)))

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
        return read_file(Path(), path, name)
    except ImageError as error:
        return error
