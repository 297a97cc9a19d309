"""Images from Python objects: datasets, lists, loaders and generators, and data sets of Hugging Face."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.errors import DataError, ImageError, UsageError, short, some
from genpr.images.arrays import check_images, is_tensor, pixels_of
from genpr.images.decode import decode, load_pillow
from genpr.images.folder import read_file
from genpr.images.item import (
    ImageData,
    ImageSource,
    IndexedSource,
    Item,
    SourceLabels,
    check_encoded_size,
    unreadable_error,
)
from genpr.images.parquet import LABELS_AT_ONCE, Columns, columns_of, labels_in
from genpr.images.paths import is_remote
from genpr.images.policy import DEFAULTS, DecodePolicy
from genpr.images.values import values_of_pillow
from genpr.notices import Notice
from genpr.runtime import iterate_user_items, user_errors
from genpr.validation import is_plain, kind_of

_ELEMENTS = "PIL images, uint8 tensors (3, h, w) or uint8 arrays (h, w, 3) (other types and bands with --value-range and --bands), alone or first in a tuple"
_FAILED = "dataset-failed"


class CountedBatches(Iterable[object]):
    """Base of iterables of batches with a known number of images and possibly notices about them."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of images in all batches."""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Notices about the images, after all batches were read."""
        return ()

    @property
    def drawn_by(self) -> Mapping[str, object] | None:
        """Description of the generator, as plain JSON types, after all batches were read; None if unknown."""
        return None


@dataclass(frozen=True)
class DatasetSource(IndexedSource):
    """Images of a map-style dataset. A lock serializes reads, since datasets are rarely thread-safe.

    `columns` are those of a data set of Hugging Face, whose images are not decoded.
    """

    name: str
    dataset: Any
    columns: Columns | None = None
    policy: DecodePolicy = DEFAULTS
    _turn: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.dataset)

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; others are not read."""
        for index in indices:
            read = user_errors(f"{self.name}[{index}]", _FAILED)(partial(self._read, index))
            yield Item(f"[{index}]", read)

    def _read(self, index: int) -> ImageData:
        name = f"[{index}]"
        try:
            with self._turn:
                element = self.dataset[index]
                if self.columns is not None:
                    return _bytes_of(element[self.columns.image], name)
                image = _without_label(element, name)
                if not isinstance(image, Image.Image):
                    return _pixels(image, name, self.policy)
                values = values_of_pillow(loaded := load_pillow(image, name=name), self.policy)
                return loaded if values is None else values
        except ImageError:
            raise
        except DataError as error:
            raise ImageError(str(error), code=error.code, path=name) from error
        except OSError as error:
            raise unreadable_error(name, error) from error

    def source_labels(self) -> SourceLabels | None:
        """The values of the label column of a data set of Hugging Face."""
        if self.columns is None:
            return None
        return labels_in(self.columns, partial(_values, self.dataset), self.name)


@dataclass
class BatchSource(ImageSource):
    """Images of an iterable: batches uint8 (n, 3, h, w) or (n, h, w, 3), lists of images, or single images.

    It has a length if the iterable is a `CountedBatches`. An iterator can be read only once.
    """

    name: str
    batches: Iterable[object]
    policy: DecodePolicy = DEFAULTS
    _spent: bool = field(default=False, repr=False)

    @property
    def is_one_shot(self) -> bool:
        """Whether the images can be read only once."""
        return self._iterator() is self.batches

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Notices of the iterable about its images, after they were read."""
        return self.batches.notices if isinstance(self.batches, CountedBatches) else ()

    def __len__(self) -> int:
        if isinstance(self.batches, CountedBatches):
            return len(self.batches)
        raise TypeError(f"{self.name} is an iterable and does not know its number of images")

    def __iter__(self) -> Iterator[Item]:
        if self._spent:
            again = "pass something that can be iterated again, such as a list or a DataLoader"
            raise UsageError(f"{self.name} is an iterator and was read already; {again}", code="one-shot")
        iterator = self._iterator()
        self._spent = iterator is self.batches
        index = 0
        for number, batch in enumerate(iterate_user_items(iterator, self.name)):
            for pixels in _batch_pixels(batch, f"{self.name}, batch {number},", self.policy):
                yield Item(f"[{index}]", partial(np.asarray, pixels))
                index += 1

    def _iterator(self) -> Iterator[object]:
        with user_errors(self.name, _FAILED):
            return iter(self.batches)


@user_errors("the dataset", _FAILED)
def open_dataset(dataset: Any, name: str, policy: DecodePolicy) -> DatasetSource | BatchSource:  # noqa: ANN401
    """Open a map-style dataset or a list of batches, depending on the first element."""
    if not len(dataset):
        raise DataError(f"{name} has no images (its length is 0)", code="no-images", path=name)
    first = dataset[0]
    is_batch = _axes_of(first) == 4 or _axes_of(_without_label(first, f"{name}[0]")) == 4
    if is_batch and isinstance(dataset, Iterable):
        return BatchSource(name, dataset, policy)
    _pixels(first, f"{name}[0]", policy)
    return DatasetSource(name, dataset, policy=policy)


def _axes_of(element: Any) -> int:  # noqa: ANN401 - a user's object
    """3 or 2 for an image, 4 for a batch or a list of images, which may have labels, 0 or another number for others."""
    if isinstance(element, list) and element:
        firsts = (each[0] if isinstance(each, tuple | list) and each else each for each in element)
        return 4 * all(_axes_of(first) in {2, 3} for first in firsts)
    if isinstance(element, np.ndarray) or is_tensor(element):
        return element.ndim
    return 3 * isinstance(element, Image.Image)


def _without_label(element: Any, name: str) -> Any:  # noqa: ANN401 - a user's object
    """The image or batch of a tuple or list that has one, or the element itself."""
    if not isinstance(element, tuple | list) or not element:
        return element
    kinds = [(_axes_of(each), getattr(each, "dtype", None)) for each in element]
    if kinds[0][0] in {2, 3, 4} and kinds[0] in kinds[1:]:
        text = f"{name} has several images in one {type(element).__name__}; pass a list of images, or only one of them"
        raise DataError(text, code="array-type", path=name)
    return element[0]


def _batch_pixels(batch: Any, name: str, policy: DecodePolicy) -> Iterator[NDArray[Any]]:  # noqa: ANN401
    """Copies of the images of one element of an iterable, each (h, w, bands), since a loader may reuse its memory."""
    images = batch if _axes_of(batch) == 4 else _without_label(batch, name)
    if getattr(images, "ndim", 0) == 4:
        check_images(images, name, policy)
        return map(partial(pixels_of, copy=True), images.cpu() if is_tensor(images) else images)
    several = images if _axes_of(images) == 4 else [images]
    return (_pixels(image, name, policy) for image in several)


def _pixels(element: object, name: str, policy: DecodePolicy) -> NDArray[Any]:
    """A copy of the pixels (h, w, bands) of one element of a dataset."""
    image = _without_label(element, name)
    if isinstance(image, Image.Image):
        values = values_of_pillow(image, policy)
        return decode(image, name=name, policy=DEFAULTS).pixels if values is None else values.copy()
    if (isinstance(image, np.ndarray) or is_plain(image)) and image.ndim in {2, 3}:
        if image.ndim == 2:
            image = image[None] if is_tensor(image) else image[..., None]
        check_images(image[None], name, policy)
        return pixels_of(image, copy=True)
    is_feature = isinstance(image, Real) or getattr(image, "ndim", 0) == 1
    text = f"{name} needs {_ELEMENTS}; got {kind_of(image)}"
    text += "; pass features as one array (numpy.asarray, .to_numpy())" * is_feature
    raise DataError(text, code="array-type", path=name)


def is_huggingface(source: object) -> bool:
    """Whether an object is of the library `datasets`; does not import it."""
    datasets = sys.modules.get("datasets")
    kinds = tuple(getattr(datasets, name, ()) for name in ("Dataset", "DatasetDict"))
    return isinstance(source, kinds)


def open_huggingface(source: Any, name: str) -> DatasetSource:  # noqa: ANN401 - untyped
    """Find the images in a data set, which must be one split with one column of images, without decoding any.

    genpr reads the bytes, because `datasets` would apply the EXIF orientation and the function given to `set_transform`.
    """
    import datasets

    if isinstance(source, Mapping):
        text = f"{name} holds several splits of a data set ({some(source, 8)}); pass one, such as dataset['train']"
        raise UsageError(text, code="several-splits", path=name)
    columns = columns_of(source.features.arrow_schema, name)
    if not len(source):
        raise DataError(f"{name} has no images (it has no rows)", code="no-images", path=name)
    raw = source.with_format(None).cast_column(columns.image, datasets.Image(decode=False))
    return DatasetSource(name, raw.select_columns([columns.image, *columns.labels]), columns)


def _values(dataset: Any, column: str) -> Iterator[list[object]]:  # noqa: ANN401 - untyped
    for batch in dataset.select_columns([column]).iter(LABELS_AT_ONCE):
        yield list(batch[column])


def _bytes_of(value: object, name: str) -> bytes:
    """The bytes of an undecoded image, or of the file if the data set holds a path."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if isinstance(data, bytes):
        check_encoded_size(name, len(data))
        return data
    path = value.get("path") if isinstance(value, dict) else None
    if not isinstance(path, str):
        raise unreadable_error(name, "the value is null")
    if is_remote(path) or "::" in path:
        raise unreadable_error(name, f"its path {short(path)} is not a local file")
    return read_file(Path(), path, name)
