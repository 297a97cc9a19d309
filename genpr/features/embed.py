"""Images through an extractor: threads read, decode and prepare; the device embeds fixed-size blocks.

Every forward pass has the same batch size (the last block is padded), because convolution kernels may round
differently for different batch sizes: so adding files to a folder never changes the features of the others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from genpr.errors import BadImagesError, FeatureError, ImageError, ResourceError
from genpr.features.cache import FeatureCache
from genpr.features.custom import adopt, evaluation_mode
from genpr.features.extractor import FeatureExtractor, PreparingExtractor, describe, extractor_device
from genpr.features.feature_set import FeatureSet
from genpr.features.read_ahead import LoadedImage, read_ahead
from genpr.images.decode import DecodePolicy, decoder_versions
from genpr.images.source import ImageSource, open_source
from genpr.runtime import state_guard

Progress = Callable[[int, int | None], None]

_WAITING_BLOCKS = 4  # of images of different sizes, before the fullest block is run unfilled


@dataclass(frozen=True, slots=True)
class BadImagePolicy:
    """What to do about images that cannot be used.

    Attributes:
        action: "error" refuses the source after listing all of them; "skip" leaves them out.
        max_share: With "skip", the share of unusable images above which the source is refused all the same.
    """

    action: Literal["error", "skip"] = "error"
    max_share: float = 0.01


def embed(
    source: object,
    extractor: FeatureExtractor,
    *,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Tensor:
    """Embed images.

    Args:
        source: What `genpr.score` takes as images: a path, an array, a Dataset, or an iterable of batches.
        extractor: From `genpr.load_extractor`, or any object that follows the `FeatureExtractor` protocol.
        batch_size: Images per forward pass.
        progress: Called with the number of images done and the total (None if unknown).

    Returns:
        float32 (n, dim) on the CPU, in the order of the source.

    Raises:
        BadImagesError: The source holds unusable images.
        UsageError: There is no such source.
    """
    return embed_source(open_source(source), extractor, batch_size=batch_size, progress=progress).features


def embed_source(
    source: ImageSource,
    extractor: FeatureExtractor,
    *,
    batch_size: int = 64,
    cache: FeatureCache | None = None,
    decode_policy: DecodePolicy | None = None,
    bad_images: BadImagePolicy | None = None,
    progress: Progress | None = None,
) -> FeatureSet:
    """Embed all images of `source`, taking from and adding to `cache`, and keep the record of what happened.

    Raises:
        BadImagesError: Unusable images, and `bad_images` does not allow them; usable ones are in the cache.
        FeatureError: The extractor returned something other than finite (n, dim) features.
        ResourceError: The device has no memory for a single image.
    """
    started = time.perf_counter()
    extractor = adopt(extractor)
    total = _length(source)
    collected = _Collected(torch.empty(total or 1024, extractor.dim))
    embedder = _Embedder(extractor, batch_size, collected, cache)
    loaded = read_ahead(source, extractor, cache, decode_policy or DecodePolicy())
    try:
        with state_guard(), evaluation_mode(extractor):
            for done, image in enumerate(loaded, 1):
                embedder.take(image)
                if progress is not None:
                    progress(done, total)
            embedder.finish()
    finally:
        loaded.close()
        if cache is not None:
            cache.flush()
    _refuse_bad(
        collected.bad,
        total=len(collected.names) + len(collected.bad),
        source=source,
        policy=bad_images or BadImagePolicy(),
    )
    return collected.feature_set(source.name, extractor, seconds=time.perf_counter() - started)


def _length(source: ImageSource) -> int | None:
    try:
        return len(source)
    except TypeError:
        return None


def _refuse_bad(bad: list[ImageError], *, total: int, source: ImageSource, policy: BadImagePolicy) -> None:
    if not bad or (policy.action == "skip" and len(bad) <= policy.max_share * total):
        return
    if policy.action == "skip":
        raise BadImagesError(
            f"{len(bad)} of {total} images in {source.name} cannot be used, more than --max-bad "
            f"{policy.max_share:.1%} allows; the first: {bad[0]}",
            bad=bad,
            path=source.name,
        )
    raise BadImagesError(
        f"{len(bad)} of {total} images in {source.name} cannot be used (repair them, or leave them out with "
        f"--on-bad skip); the first: {bad[0]}",
        bad=bad,
        path=source.name,
    )


class _Embedder:
    """Fills blocks of equal-sized images, runs the network on full ones, and puts the rows in place."""

    def __init__(
        self, extractor: FeatureExtractor, batch_size: int, collected: _Collected, cache: FeatureCache | None
    ) -> None:
        self._extractor = extractor
        self._forward = _forward_function(extractor)
        self._device = extractor_device(extractor)
        self._batch_size = batch_size  # halved when the device runs out of memory
        self._block_size = batch_size
        self._collected = collected
        self._cache = cache
        self._blocks: dict[torch.Size, list[tuple[int, LoadedImage]]] = {}

    def take(self, image: LoadedImage) -> None:
        if image.error is not None:
            self._collected.bad.append(image.error)
            return
        row = self._collected.new_row(image)
        if image.features is not None:
            self._collected.n_cached += 1
            self._collected.put([row], image.features[None])
            return
        assert image.pixels is not None
        block = self._blocks.setdefault(image.pixels.shape, [])
        block.append((row, image))
        if len(block) == self._block_size:
            self._run(self._blocks.pop(image.pixels.shape))
        elif sum(map(len, self._blocks.values())) >= _WAITING_BLOCKS * self._block_size:
            self._run(self._blocks.pop(max(self._blocks, key=lambda shape: len(self._blocks[shape]))))

    def finish(self) -> None:
        for block in self._blocks.values():
            self._run(block)
        self._blocks = {}

    def _run(self, block: list[tuple[int, LoadedImage]]) -> None:
        rows, images = [row for row, _ in block], [image for _, image in block]
        features = self._embed(torch.stack([image.pixels for image in images if image.pixels is not None]))
        _check_finite(features, images)
        self._collected.put(rows, features)
        if self._cache is not None:
            self._cache.add([image.identity for image in images], features, [image.flags for image in images])

    def _embed(self, pixels: Tensor) -> Tensor:
        """(n, 3, h, w) -> float32 (n, dim) on the CPU, in padded batches that fit the device."""
        while True:
            try:
                return torch.cat([self._embed_batch(part) for part in torch.split(pixels, self._batch_size)])
            except torch.OutOfMemoryError as error:
                if self._batch_size == 1:
                    raise ResourceError(
                        f"{self._device} has no memory left for one image of {tuple(pixels.shape[2:])} pixels; "
                        "free it or use --device cpu",
                        code="oom",
                    ) from error
                self._batch_size = (self._batch_size + 1) // 2
                torch.cuda.empty_cache()

    def _embed_batch(self, pixels: Tensor) -> Tensor:
        missing = self._batch_size - len(pixels)
        padded = torch.cat([pixels, pixels[-1:].expand(missing, -1, -1, -1)]) if missing else pixels
        output = self._forward(padded.to(self._device))
        expected = (self._batch_size, self._extractor.dim)
        if not isinstance(output, Tensor) or output.shape != expected:
            came = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise FeatureError(
                f"extractor {self._extractor.name} must return one row of {self._extractor.dim} numbers per image, "
                f"{expected} for this batch, but returned {came}",
                code="feature-shape",
            )
        return output[: len(pixels)].float().cpu()


def _forward_function(extractor: FeatureExtractor) -> Callable[[Tensor], Tensor]:
    """The network on prepared images where the extractor prepares, else the whole extractor."""
    return extractor.forward if isinstance(extractor, PreparingExtractor) else extractor


def _check_finite(features: Tensor, images: list[LoadedImage]) -> None:
    finite = features.isfinite().all(dim=1)
    if not finite.all():
        first = images[int((~finite).nonzero()[0])].name
        raise FeatureError(
            f"the extractor returned NaN or infinite features for {first}; its weights may be damaged, or it "
            "overflows in low precision",
            code="non-finite",
            path=first,
        )


@dataclass
class _Collected:
    """Rows as they arrive, in source order whatever the order of the blocks."""

    features: Tensor
    names: list[str] = field(default_factory=list)
    identities: list[bytes] = field(default_factory=list)
    flags: Counter[str] = field(default_factory=Counter)
    bad: list[ImageError] = field(default_factory=list)
    n_cached: int = 0

    def new_row(self, image: LoadedImage) -> int:
        self.names.append(image.name)
        self.identities.append(image.identity)
        self.flags.update(image.flags)
        if len(self.names) > len(self.features):
            self.features = torch.cat([self.features, torch.empty_like(self.features)])
        return len(self.names) - 1

    def put(self, rows: list[int], features: Tensor) -> None:
        self.features[rows] = features

    def feature_set(self, source: str, extractor: FeatureExtractor, *, seconds: float) -> FeatureSet:
        n = len(self.names)
        return FeatureSet(
            features=self.features[:n],
            source=source,
            extractor=describe(extractor),
            names=tuple(self.names),
            identities=torch.frombuffer(bytearray(b"".join(self.identities)), dtype=torch.uint8).view(n, 32)
            if n
            else torch.empty(0, 32, dtype=torch.uint8),
            flags=dict(self.flags),
            skipped=tuple(self.bad),
            n_embedded=n - self.n_cached,
            n_cached=self.n_cached,
            decoder=decoder_versions(),
            seconds=seconds,
        )
