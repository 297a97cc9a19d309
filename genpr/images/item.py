"""One image of a source, what a source is, and the rules every source shares.

A source names its images and says how each is read; it neither decodes nor holds pixels. Reading is left to
whoever embeds, so that it can happen in several threads and so that images nobody asked for are never read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genpr.errors import ImageError
from genpr.errors import printable as printable
from genpr.errors import short as short
from genpr.errors import some as some

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm"),
    *(".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)

# No image below any sensible pixel limit needs more, and a file is held in memory while it is decoded.
MAX_ENCODED_BYTES = 2**30


ImageData: TypeAlias = "bytes | NDArray[np.uint8] | Image"
"""What is known of an image before it is decoded: the bytes of a file, pixels (h, w, 3), or what Pillow has loaded."""


@dataclass(frozen=True, slots=True)
class Item:
    """One image, not read yet.

    Attributes:
        name: Label for people: relative POSIX path, member name, or "[17]".
        read: Gives the encoded bytes, decoded (h, w, 3) uint8 pixels, or a loaded Pillow image. May be called from any
            thread, once. Raises `ImageError` if the image cannot be read.
    """

    name: str
    read: Callable[[], ImageData]


@dataclass(frozen=True)
class StatedLabels:
    """What a source says itself about the classes of its images.

    Attributes:
        labels: One per image, in its order: an integer, a name, or None.
        origin: Where they stand, for people.
    """

    labels: Sequence[object]
    origin: str


class ImageSource(Protocol):
    """An ordered collection of images. genpr's own sources name this class as a base.

    Attributes:
        name: The source as the user wrote it, for messages ("fakes/", "<array>").
    """

    name: str

    def __len__(self) -> int:
        """Number of images; `TypeError` for a source that cannot know."""
        ...

    def __iter__(self) -> Iterator[Item]:
        """The images in a fixed order that depends on no locale, file system or hash seed."""
        ...

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places, ascending; a source that can overrides this, so as not to pass by all others."""
        items = enumerate(self)
        for wanted in places:
            yield next(item for place, item in items if place == wanted)

    def names(self) -> Iterator[str] | None:
        """What the images are called, in order; None where that cannot be known without reading them."""
        return None

    def stated_labels(self) -> StatedLabels | None:
        """The classes that the source itself states beside its images; None if it states none."""
        return None


def known_length(source: ImageSource) -> int | None:
    """How many images a source has; None for one that cannot know."""
    try:
        return len(source)
    except TypeError:
        return None


def names_at(source: ImageSource, places: Iterable[int]) -> Iterator[str] | None:
    """What the images at some places, ascending, are called; None where that cannot be known without reading them."""
    names = source.names()
    if names is None:
        return None
    everywhere = enumerate(names)
    return (next(name for at, name in everywhere if at == place) for place in places)


def names_of_places(count: int) -> Iterator[str]:
    """What images are called that have no names.

    Example:
        >>> list(names_of_places(2))
        ['[0]', '[1]']
    """
    return (f"[{place}]" for place in range(count))


def suffix_of(name: str) -> str:
    """Lower-case suffix of a file or member name, "" if it has none."""
    # Not by pathlib, which interns every name that it is asked about.
    suffix = posixpath.splitext(name.rstrip("/"))[1].lower()
    return "" if suffix == "." else suffix


def is_hidden(name: str) -> bool:
    """Whether a relative name lies in a hidden file or folder, or in what macOS adds to archives."""
    parts = name.replace("\\", "/").split("/")
    return any(part == "__MACOSX" or (part[:1] == "." and part not in {".", ".."}) for part in parts)


def is_image_name(name: str) -> bool:
    """Whether a member counts as an image: known suffix, not hidden."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not is_hidden(name)


def too_large_to_read(name: str, size: int) -> ImageError:
    """The error for a file or member that is not worth holding in memory."""
    return ImageError(
        f"{printable(name)}: {size:,} bytes, more than the {MAX_ENCODED_BYTES:,} an image file may have; "
        "not an image, or one far beyond the pixel limit",
        code="image-too-large",
        path=name,
    )


def unreadable(name: str, reason: object) -> ImageError:
    """The error for an image whose bytes cannot be had."""
    return ImageError(f"{printable(name)}: cannot be read ({reason})", code="unreadable", path=name)


def read_at(file: BinaryIO, name: str, *, offset: int, size: int) -> bytes:
    """Read exactly `size` bytes of an open file from `offset` on, or say that they are missing."""
    if size > MAX_ENCODED_BYTES:
        raise too_large_to_read(name, size)
    file.seek(offset)
    data = file.read(size)
    if len(data) != size:
        raise unreadable(name, f"{len(data):,} of {size:,} bytes are there; did the file change?")
    return data
