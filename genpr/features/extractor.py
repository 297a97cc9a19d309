"""Protocols of extractors and text encoders, and the records that identify them.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from genpr.errors import DataError, FeatureError

if TYPE_CHECKING:
    from torch import Tensor

TextProgress = Callable[[int, int], None]
"""Called with the texts that are done, and how many there are."""


@dataclass(frozen=True)
class ExtractorInfo:
    """Which function from pixels to features an extractor is; part of every result and cache key."""

    name: str  # "inception", or what the user gave, such as "path/to/file.py:factory"
    dim: int
    resize: str  # name of the rule; "unknown" when a custom extractor does not say
    weights_sha256: str | None
    comparable: bool  # with published scores
    cache_key: str | None = None  # hex sha256 that identifies the function; None: nothing is cached
    uncached_reason: str | None = None


class FeatureExtractor(Protocol):
    """Anything that turns images into features.

    With an attribute `thread_safe = True` it may be called from several threads at once, which is faster on
    CPUs; networks that keep state between their layers (as hooks do) must not promise that.
    """

    name: str
    dim: int

    def __call__(self, images: Tensor, /) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, dim) features."""
        ...


class DescribedExtractor(FeatureExtractor, Protocol):
    """An extractor that says which function it is."""

    @property
    def info(self) -> ExtractorInfo:
        """What it is now."""
        ...


@runtime_checkable
class PreparingExtractor(FeatureExtractor, Protocol):
    """An extractor that resizes each image by itself, so that a batch may mix sizes.

    With an attribute `prepares_on_device = True` each image is prepared where the network is; with `prepares_stacks = True`,
    too, `prepare` takes images of one size at once there, uint8 (n, 3, h, w), with the same numbers.
    """

    def prepare(self, image: Tensor, /) -> Tensor:
        """Turn one uint8 (3, h, w) image into a float32 (3, s, s) input, where it is, from any thread."""
        ...

    def forward(self, batch: Tensor, /) -> Tensor:
        """Embed prepared float32 (n, 3, s, s) inputs on the extractor's device as float32 (n, dim)."""
        ...


def prepare_batch(extractor: PreparingExtractor, images: Tensor) -> Tensor:
    """Prepare each of uint8 (n, 3, h, w) images, giving float32 (n, 3, s, s), on the CPU or where the extractor prepares stacks."""
    import torch

    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or not len(images):
        came = f"{images.dtype} {tuple(images.shape)}"
        text = f"extractor {extractor.name} needs uint8 images (n, 3, h, w), not {came}"
        raise DataError(text, code="image-tensor")
    if getattr(extractor, "prepares_stacks", False) is True:
        return extractor.prepare(images.to(getattr(extractor, "device", images.device)))
    return torch.stack([extractor.prepare(image) for image in images.cpu()])


def check_same_extractor(name: str, info: ExtractorInfo, other_name: str, other: ExtractorInfo) -> None:
    """Refuse features of two different functions; `name` and `other_name` say whose they are."""
    mine, theirs = (
        f"{each.name} ({each.dim}-d, {each.resize}, weights {str(each.weights_sha256)[:8]})"
        for each in (info, other)
    )
    is_one_key = info.cache_key == other.cache_key
    same = ("name", "dim", "resize", "weights_sha256")
    if all(getattr(info, key) == getattr(other, key) for key in same):
        if is_one_key or None in (info.cache_key, other.cache_key):
            return
        mine, theirs = "now", "with other code or settings"
    elif is_one_key and info.cache_key is not None:
        return
    text = f"{name} and {other_name} were not embedded by the same extractor ({theirs} there, {mine} here)"
    raise FeatureError(text, code="other-extractor")


@dataclass(frozen=True)
class TextEncoderInfo:
    """Which function from texts to vectors an encoder is; None stands for what a user's own does not say."""

    name: str  # that of the extractor whose images it belongs to
    dim: int
    tokenizer: str
    context: int | None  # tokens that are read of a text, its two ends among them
    weights_sha256: str | None  # of the file; for a user's own of the network
    comparable: bool  # whether the weights are the published ones
    logit_scale: float | None  # what a cosine was multiplied by before the softmax in training


class TextEncoder(Protocol):
    """Anything that turns texts into vectors; `name` is that of the extractor whose images it belongs to."""

    name: str
    dim: int

    @property
    def info(self) -> TextEncoderInfo:
        """What it is."""
        ...

    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts, empty ones too, as float32 (n, dim) on the CPU; not scaled to length 1."""
        ...

    def truncated(self, texts: Sequence[str], /) -> list[bool] | None:
        """Of which of the texts the end is not read; None where that is unknown."""
        ...
