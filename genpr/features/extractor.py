"""Protocols of extractors and text encoders, and the records that identify them.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from genpr.errors import DataError, FeatureError
from genpr.validation import is_plain, kind_of

if TYPE_CHECKING:
    from torch import Tensor

TextProgress = Callable[[int, int], None]
"""Called with the number of finished texts and the total."""


@dataclass(frozen=True)
class ExtractorInfo:
    """Identity of an extractor, that is, of a function from pixels to features; part of every result and cache key."""

    name: str  # "inception", or as given by the user, such as "path/to/file.py:factory"
    dim: int
    resize: str  # name of the resize rule; "unknown" if a custom extractor does not declare it
    weights_sha256: str | None
    comparable: bool  # with published scores
    cache_key: str | None = None  # hex sha256 that identifies the function; None disables caching
    uncached_reason: str | None = None

    @property
    def resize_text(self) -> str:
        """The resize rule in words."""
        return "resize not recorded" if self.resize == "unknown" else f"resize {self.resize}"


class FeatureExtractor(Protocol):
    """A callable that turns images into features.

    With an attribute `thread_safe = True` it may be called from several threads at once, which is faster on CPUs. Networks
    with state between their layers, such as hooks, are not thread-safe.
    """

    name: str
    dim: int

    def __call__(self, images: Tensor, /) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, dim) features."""
        ...


class DescribedExtractor(FeatureExtractor, Protocol):
    """An extractor with a record of its identity."""

    @property
    def info(self) -> ExtractorInfo:
        """The current identity."""
        ...


@runtime_checkable
class PreparingExtractor(FeatureExtractor, Protocol):
    """An extractor that resizes each image, so that a batch may have images of different sizes.

    With an attribute `prepares_on_device = True` images are prepared on the device of the network. If `prepares_stacks = True`
    is set as well, `prepare` also takes several images of one size, uint8 (n, 3, h, w), with the same result for each.
    """

    def prepare(self, image: Tensor, /) -> Tensor:
        """Turn one uint8 (3, h, w) image into a new float32 (3, s, s) tensor on the same device; called from any thread."""
        ...

    def forward(self, batch: Tensor, /) -> Tensor:
        """Embed prepared float32 (n, 3, s, s) inputs on the extractor's device as float32 (n, dim)."""
        ...


def prepare_batch(extractor: PreparingExtractor, images: Tensor) -> Tensor:
    """Prepare uint8 (n, 3, h, w) images as float32 (n, 3, s, s), on the CPU or on the device of an extractor with `prepares_stacks`."""
    import torch

    if (
        not is_plain(images)
        or images.dtype != torch.uint8
        or images.ndim != 4
        or (images.shape[1] != 3 and hasattr(extractor, "rule"))
        or not len(images)
    ):
        text = f"extractor {extractor.name} needs uint8 images (n, 3, h, w), not {kind_of(images)}"
        raise DataError(text, code="image-tensor")
    if getattr(extractor, "prepares_stacks", False) is True:
        return extractor.prepare(images.to(getattr(extractor, "device", images.device)))
    return torch.stack([extractor.prepare(image) for image in images.cpu()])


def check_same_extractor(name: str, info: ExtractorInfo, other_name: str, other: ExtractorInfo) -> None:
    """Raise an error for features of two different extractors; `name` and `other_name` are the sources."""
    mine, theirs = (
        f"{each.name} ({each.dim}-d, {each.resize_text}, weights {str(each.weights_sha256)[:8]})"
        for each in (info, other)
    )
    is_one_key = info.cache_key == other.cache_key
    same = ("name", "dim", "resize", "weights_sha256")
    if all(getattr(info, key) == getattr(other, key) for key in same):
        if is_one_key or None in (info.cache_key, other.cache_key):
            return
        mine, theirs = "this one", "one with other code or settings"
    elif is_one_key and info.cache_key is not None:
        return
    text = f"{name} and {other_name} were embedded by different extractors ({mine} and {theirs})"
    raise FeatureError(text, code="other-extractor")


@dataclass(frozen=True)
class TextEncoderInfo:
    """Identity of a text encoder; None for properties that a custom encoder does not declare."""

    name: str  # name of the extractor of images in the same space
    dim: int
    tokenizer: str
    context: int | None  # maximum number of tokens, including the start and end tokens
    weights_sha256: str | None  # of the file, or of the network of a custom encoder
    comparable: bool  # whether the weights are the published ones
    logit_scale: float | None  # factor of cosine similarities before the softmax in training


class TextEncoder(Protocol):
    """A text encoder; `name` is the name of the extractor of images in the same space."""

    name: str
    dim: int

    @property
    def info(self) -> TextEncoderInfo:
        """The identity."""
        ...

    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts, which may be empty, as float32 (n, dim) on the CPU, without normalization."""
        ...

    def truncated(self, texts: Sequence[str], /) -> list[bool] | None:
        """Whether each text exceeds the context and is truncated; None if unknown."""
        ...
