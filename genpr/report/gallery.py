"""Galleries of a page: images with captions, perhaps each beside another; chosen by reference, then read and made small."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from genpr.errors import GenprError, UsageError
from genpr.features.inputs import Pictures, pictures_of
from genpr.images.policy import DecodePolicy
from genpr.report.text import shown

Pixels = NDArray[np.uint8]
Role = Literal["real", "fake"]
ImageRef = tuple[Role, int]
"""An image by its set and row."""

_MARKUP = 500  # bytes around a picture
_MAGIC = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
_EDGE = 128  # pixels of the longest edge of a thumbnail; smaller pictures stay as they are


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of a gallery.

    Attributes:
        data: A whole JPEG or PNG file; or a reference, which `ImageLoader.gallery` replaces by one.
        caption: What it is; a file name may be part of it, whatever that holds.
        partner: The image shown next to it, such as the nearest real, in the form of `data`; None without one.
        partner_caption: What that is.
        group: Pictures of one group stand together below this heading; empty for none.
    """

    data: bytes | ImageRef
    caption: str
    partner: bytes | ImageRef | None = None
    partner_caption: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        for data in (self.data, self.partner):
            if isinstance(data, bytes):
                _format(data)

    @property
    def refs(self) -> list[ImageRef]:
        """The images that it refers to."""
        return [data for data in (self.data, self.partner) if isinstance(data, tuple)]

    @property
    def size(self) -> int:
        """At most so many bytes in the page: its data as base64 text, its captions and the markup around."""
        files = [data for data in (self.data, self.partner) if isinstance(data, bytes)]
        captions = sum(len(escape(shown(text)).encode()) for text in (self.caption, self.partner_caption))
        return sum(4 * ((len(data) + 2) // 3) for data in files) + 2 * captions + _MARKUP


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures that show one thing.

    Attributes:
        title: The heading.
        sentence: What is shown, and how it was chosen.
        pictures: In display order; empty says that there is nothing to show.
        more: How many there are beside these.
        is_wide: Whether captions are long, as prompts are: they stand beside the pictures in full.
    """

    title: str
    sentence: str
    pictures: tuple[Picture, ...]
    more: int = 0
    is_wide: bool = False

    @property
    def groups(self) -> list[tuple[str, list[Picture]]]:
        """The pictures by group, groups in order of their first picture."""
        found: dict[str, list[Picture]] = {}
        for picture in self.pictures:
            found.setdefault(picture.group, []).append(picture)
        return list(found.items())


def within(galleries: Sequence[Gallery], most_bytes: int) -> list[Gallery]:
    """The same galleries with as many pictures as fit, dealt out one to each in turn.

    Args:
        galleries: In the order of the page.
        most_bytes: For all pictures together, as text.

    Returns:
        Galleries whose `more` counts what was left out, too.
    """
    if sum(picture.size for gallery in galleries for picture in gallery.pictures) <= most_bytes:
        return list(galleries)
    kept, left = [0] * len(galleries), most_bytes
    open_ones = list(range(len(galleries)))
    while open_ones:
        for index in list(open_ones):
            pictures = galleries[index].pictures
            if kept[index] < len(pictures) and pictures[kept[index]].size <= left:
                left -= pictures[kept[index]].size
                kept[index] += 1
            else:
                open_ones.remove(index)
    return [
        replace(each, pictures=each.pictures[:count], more=each.more + len(each.pictures) - count)
        for each, count in zip(galleries, kept, strict=True)
    ]


def data_uri(data: bytes) -> str:
    """A picture as a data URI.

    Raises:
        UsageError: It is neither JPEG nor PNG ("not-a-picture").
    """
    return f"data:image/{_format(data)};base64,{base64.b64encode(data).decode()}"


def _format(data: bytes) -> str:
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return name
    raise UsageError(
        f"a picture of a page is a JPEG or PNG file, not {len(data):,} bytes that start with {data[:8]!r}; "
        "was it given as pixels?",
        code="not-a-picture",
    )


def thumbnail(pixels: Pixels) -> bytes:
    """A picture (h, w, 3) as a JPEG file, no edge longer than 128 pixels.

    Example:
        >>> len(thumbnail(np.zeros((256, 512, 3), np.uint8))) < 2000
        True
    """
    buffer = io.BytesIO()
    # Colors of small pictures are detail, too.
    Image.fromarray(made_small(pixels)).save(buffer, "JPEG", quality=88, subsampling=0)
    return buffer.getvalue()


def made_small(pixels: Pixels) -> Pixels:
    """The pixels of a picture with no edge longer than 128; of a smaller picture, its own.

    Example:
        >>> made_small(np.zeros((256, 512, 3), np.uint8)).shape
        (64, 128, 3)
    """
    if max(pixels.shape[:2]) <= _EDGE:
        return pixels
    image = Image.fromarray(pixels)
    image.thumbnail((_EDGE, _EDGE), Image.Resampling.LANCZOS)
    return np.asarray(image)


class ImageLoader:
    """Reads the images of a page once, and makes them small.

    Args:
        sources: By role, the source (None, features, or an iterable that gives its images once shows none), the names of
            its rows, and (n, 32) sha256 of their bytes, where known, to leave out images that have changed.
        policy: How images are decoded.

    Attributes:
        pixels: (h, w, 3) uint8 of every image that could be read.

    Raises:
        GenprError: A source cannot be opened any more.
    """

    def __init__(
        self, sources: Mapping[Role, tuple[object, Sequence[str], Pixels | None]], policy: DecodePolicy
    ) -> None:
        self.names = {role: names for role, (_, names, _) in sources.items()}
        self.pixels: dict[ImageRef, Pixels] = {}
        opened: dict[Role, Pictures | None] = {
            role: pictures_of(source, names, identities=hashes, policy=policy, keep=made_small)
            for role, (source, names, hashes) in sources.items()
            if source is not None
        }
        self._pictures = {role: found for role, found in opened.items() if found is not None}

    @property
    def has_images(self) -> bool:
        """Whether any source has images."""
        return bool(self._pictures)

    def read(self, refs: Iterable[ImageRef]) -> None:
        """Read these images; those that are gone, or have changed since they were scored, are left out."""
        requested = dict.fromkeys(refs)
        for role, pictures in self._pictures.items():
            try:
                found = pictures.read(row for each, row in requested if each == role)
            except GenprError:  # the whole source is gone: the page is made without it
                continue
            self.pixels |= {(role, row): pixels for row, pixels in found.items()}

    def gallery(self, gallery: Gallery) -> Gallery:
        """The gallery with files in place of references, as far as the images could be read."""
        loaded = []
        for picture in gallery.pictures:
            data, partner = (self._file(each) for each in (picture.data, picture.partner))
            if data is not None:
                loaded.append(replace(picture, data=data, partner=partner))
        sentence = gallery.sentence
        if gone := len(gallery.pictures) - len(loaded):
            sentence += (
                f" {gone:,} could not be read again: the image is missing or has changed since it was scored."
            )
        kept = {picture.group for picture in loaded}
        lost = [name for name, _ in gallery.groups if name and name not in kept]
        sentence += f" Not shown: {'; '.join(lost)}." if lost else ""
        return replace(gallery, sentence=sentence, pictures=tuple(loaded))

    def _file(self, data: bytes | ImageRef | None) -> bytes | None:
        if not isinstance(data, tuple):
            return data
        pixels = self.pixels.get(data)
        return None if pixels is None else thumbnail(pixels)
