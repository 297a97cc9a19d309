"""Load images: read, hash, decode and prepare them on the host. Does not import torch.

`genpr.images.read_ahead` does it in threads or processes ahead of a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genpr.errors import ImageError
from genpr.images.decode import content_sha256, decode, readable_format
from genpr.images.item import Item
from genpr.images.policy import DecodePolicy

if TYPE_CHECKING:
    from torch import Tensor

Pixels: TypeAlias = "NDArray[np.uint8] | NDArray[np.float32] | Tensor"
"""A decoded image, uint8 (h, w, 3), or what `Reader.prepare` made of it."""
Positioned = tuple[int, Item]  # the position of an image in its source, and the image


class CachedImage(NamedTuple):
    """A cached image: float32 (d,) features, decoding flags, and (width, height) if known."""

    features: Tensor
    flags: tuple[str, ...] = ()
    size: tuple[int, int] | None = None


class ImageCache(Protocol):
    """Features by the sha256 of images. `keys` has sorted arrays with the last 8 bytes of it, and an image is in all of them."""

    @property
    def keys(self) -> tuple[NDArray[np.uint64], ...]:
        """The arrays."""
        ...

    def get(self, identity: bytes, /) -> CachedImage | None:
        """The image with this sha256, or None."""
        ...


class Reader(NamedTuple):
    """What an extractor needs of an image on the host.

    `prepare` turns the decoded pixels, which it may modify, into the input of the extractor. If it `is_portable` it can be pickled.
    """

    prepare: Callable[[Pixels], Pixels] | None = None
    cache: ImageCache | None = None
    is_portable: bool = False


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """A loaded image: its input to the network, or its known features (d,), or an error.

    `identity` is the sha256 of its bytes. `format` is that of its file, None for images in memory, and `size` that after preparation. `bands` is
    the number of decoded bands, 0 if it is not decoded.
    """

    position: int
    name: str
    identity: bytes = b""
    flags: tuple[str, ...] = ()
    format: str | None = None
    size: tuple[int, int] | None = None
    bands: int = 0
    pixels: Pixels | None = None
    features: Tensor | None = None
    error: ImageError | None = None

    def unusable(self, error: ImageError) -> LoadedImage:
        """The same image with an error."""
        error.path = self.name
        return LoadedImage(self.position, self.name, error=error.detached())

    def known(self, cached: CachedImage) -> LoadedImage:
        """The same image with cached features."""
        return replace(self, flags=cached.flags, size=cached.size, features=cached.features)

    def prepared(self, reader: Reader, *, is_shared: bool) -> LoadedImage:
        """The same image with pixels prepared for a reader, who may modify those that no other uses."""
        if reader.prepare is None or not isinstance(self.pixels, np.ndarray):
            return self
        try:
            return replace(self, pixels=reader.prepare(self.pixels.copy() if is_shared else self.pixels))
        except ImageError as error:  # of this extractor
            return self.unusable(error)


def load(
    items: Sequence[Positioned], readers: Sequence[Reader], policy: DecodePolicy
) -> list[list[LoadedImage]]:
    """Read images, look them up in the caches, and decode those that a cache lacks, once for all readers."""
    loaded: list[list[LoadedImage]] = []
    for at, item in items:
        image, decoded, results = LoadedImage(at, item.name), None, []
        try:
            data = item.read()
            identity = bytes.fromhex(content_sha256(data))
            codec = readable_format(data) if isinstance(data, bytes) else None
            image = replace(image, identity=identity, format=codec)
            for reader in readers:
                cached = None if reader.cache is None else reader.cache.get(identity)
                if cached is not None:
                    results.append(image.known(cached))
                    continue
                if decoded is None:
                    found = decode(data, name=item.name, policy=policy)
                    height, width, bands = found.pixels.shape
                    facts = {"flags": found.flags, "size": (width, height), "bands": bands}
                    decoded = replace(image, **facts, pixels=found.pixels)
                results.append(decoded.prepared(reader, is_shared=len(readers) > 1))
        except ImageError as error:
            results = [image.unusable(error)] * len(readers)
        loaded.append(results)
    return loaded
