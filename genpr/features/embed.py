"""Images through an extractor: threads read, decode and prepare; the device embeds fixed-size blocks.

Every forward pass has the same batch size (the last block is padded), because convolution kernels may round
differently for different batch sizes: so adding files to a folder never changes the features of the others.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from genpr.errors import FeatureError, ImageError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import adopt
from genpr.features.extractor import FeatureExtractor, prepares_on_device
from genpr.features.feature_set import FeatureSet
from genpr.features.forward_pass import ForwardPass
from genpr.features.image_facts import ImageFacts
from genpr.features.read_ahead import LoadedImage, read_ahead
from genpr.features.registry import describe
from genpr.features.user_objects import evaluation_mode
from genpr.images.decode import DecodePolicy, decoder_versions
from genpr.images.item import known_length
from genpr.images.policy import BadImagePolicy
from genpr.images.shards import ShardSource
from genpr.images.source import ImageSource, open_source
from genpr.memory import empty_rows
from genpr.runtime import state_guard

Progress = Callable[[int, int | None], None]

_WAITING_BLOCKS = 4  # of images of different sizes, before the fullest block is run unfilled


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
    cache: FeatureCache | JoinedCache | None = None,
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
    policy = decode_policy or DecodePolicy()
    total = known_length(source)
    collected = _Collected(empty_rows(total or 1024, extractor.dim, torch.float32))
    loaded = read_ahead(source, extractor, cache, policy)
    try:
        with (
            state_guard(),
            evaluation_mode(extractor),
            ForwardPass(extractor, batch_size) as forward,
            _kept(cache),
        ):
            blocks = _Blocks(forward, batch_size, collected, cache, mixed=prepares_on_device(extractor))
            for done, image in enumerate(loaded, 1):
                blocks.take(image)
                if progress is not None:
                    progress(done, total)
            blocks.finish()
    finally:
        loaded.close()
    total = source.total if isinstance(source, ShardSource) else len(collected.names) + len(collected.bad)
    (bad_images or BadImagePolicy()).check(collected.bad, total=total, source=source.name)
    found = collected.feature_set(source.name, extractor, seconds=time.perf_counter() - started)
    return replace(found, decoder=decoder_versions() | policy.choices)


@contextmanager
def _kept(cache: FeatureCache | JoinedCache | None) -> Iterator[None]:
    """Write what was embedded in the block, however it ends, before anything else that is under way is waited for."""
    try:
        yield
    finally:
        if cache is not None:
            cache.flush()


class _Blocks:
    """Gathers blocks of images, sends full ones through the network, and puts the rows in place.

    The images of a block are of one size, unless they may be `mixed`.
    """

    def __init__(
        self,
        forward: ForwardPass,
        size: int,
        collected: _Collected,
        cache: FeatureCache | JoinedCache | None,
        *,
        mixed: bool,
    ) -> None:
        self._forward = forward
        self._size = size
        self._collected = collected
        self._cache = cache
        self._mixed = mixed
        self._gathering: dict[torch.Size | None, list[tuple[int, LoadedImage]]] = {}
        self._running: deque[tuple[list[tuple[int, LoadedImage]], Future[Tensor]]] = deque()

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
        key = None if self._mixed else image.pixels.shape
        block = self._gathering.setdefault(key, [])
        block.append((row, image))
        if len(block) == self._size:
            self._run(self._gathering.pop(key))
        elif sum(map(len, self._gathering.values())) >= _WAITING_BLOCKS * self._size:
            self._run(self._gathering.pop(max(self._gathering, key=lambda key: len(self._gathering[key]))))

    def finish(self) -> None:
        for block in self._gathering.values():
            self._run(block)
        self._gathering = {}
        while self._running:
            self._store_first()

    def _run(self, block: list[tuple[int, LoadedImage]]) -> None:
        pixels = [image.pixels for _, image in block if image.pixels is not None]
        self._running.append((block, self._forward.submit(pixels)))
        if len(self._running) > self._forward.workers:
            self._store_first()

    def _store_first(self) -> None:
        block, running = self._running.popleft()
        rows, images = [row for row, _ in block], [image for _, image in block]
        features = running.result()
        _check_finite(features, images)
        self._collected.put(rows, features)
        if self._cache is not None:
            self._cache.add(
                [image.identity for image in images],
                features,
                [image.flags for image in images],
                [image.size for image in images],
            )


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
    identities: bytearray = field(default_factory=bytearray)  # 32 bytes an image, where bytes objects take 90
    flags: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    bad: list[ImageError] = field(default_factory=list)
    n_cached: int = 0

    def new_row(self, image: LoadedImage) -> int:
        self.names.append(image.name)
        self.identities += image.identity
        self.flags.update(image.flags)
        if image.format is not None:
            self.formats[image.format] += 1
        if image.size is not None:
            self.sizes[image.size] += 1
        if len(self.names) > len(self.features):
            n, dim = self.features.shape
            more = empty_rows(2 * n, dim, torch.float32)
            more[:n] = self.features
            self.features = more
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
            identities=torch.frombuffer(self.identities, dtype=torch.uint8).view(n, 32)
            if n
            else torch.empty(0, 32, dtype=torch.uint8),
            flags=dict(self.flags),
            facts=ImageFacts.of(self.formats, self.sizes),
            sizes=self.sizes,
            skipped=tuple(self.bad),
            n_embedded=n - self.n_cached,
            n_cached=self.n_cached,
            seconds=seconds,
        )
