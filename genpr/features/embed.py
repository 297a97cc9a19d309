"""Images through an extractor: threads read, decode and prepare; the device embeds batches of fixed size.

Every forward pass has the same batch size (the last of a block of 2,048 images is padded), because convolution kernels
may round differently for different batch sizes: so adding files to a folder never changes the features of the others.
Blocks share no batch, so that it does not matter which rank embeds which of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.errors import FeatureError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.collected import Collected, RankShare
from genpr.features.custom import adopt
from genpr.features.extractor import FeatureExtractor, prepares_on_device
from genpr.features.feature_set import FeatureSet
from genpr.features.forward_pass import ForwardPass
from genpr.features.read_ahead import LoadedImage, read_ahead
from genpr.features.user_objects import evaluation_mode
from genpr.images.decode import decoder_versions
from genpr.images.item import ImageSource
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.images.shards import BLOCK, ShardSource
from genpr.images.source import open_source
from genpr.memory import empty_rows
from genpr.runtime import state_guard

Progress = Callable[[int, int | None], None]

_WAITING_BATCHES = 4  # of images of different sizes, before the fullest batch is run unfilled


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
    opened = open_source(source, communicator=current_communicator())
    return embed_source(opened, extractor, batch_size=batch_size, progress=progress).features


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
    communicator = current_communicator()
    share = RankShare(source, communicator)
    collected = Collected(empty_rows(share.most or 1024, extractor.dim, torch.float32))
    loaded = read_ahead(share, extractor, cache, policy)
    try:
        with (
            state_guard(),
            evaluation_mode(extractor),
            ForwardPass(extractor, batch_size) as forward,
            _kept(cache),
        ):
            batches = _Batches(forward, batch_size, collected, cache, mixed=prepares_on_device(extractor))
            for number, image in enumerate(loaded):
                batches.take(image, share.place(number))
                if progress is not None:
                    done = (number + 1) * communicator.size  # by all ranks, if they are as fast
                    progress(done if share.total is None else min(done, share.total), share.total)
            batches.finish()
    finally:
        loaded.close()
    share.check_names()
    everything = collected.of_all(communicator)
    names, bad = share.names, list(everything.bad.values())
    total = source.total if isinstance(source, ShardSource) else len(names)
    (bad_images or BadImagePolicy()).check(bad, total=total, source=source.name)
    found = everything.feature_set(source.name, names, extractor, seconds=time.perf_counter() - started)
    return replace(found, decoder=decoder_versions() | policy.choices)


@contextmanager
def _kept(cache: FeatureCache | JoinedCache | None) -> Iterator[None]:
    """Write what was embedded in the block, however it ends, before anything else that is under way is waited for."""
    try:
        yield
    finally:
        if cache is not None:
            cache.flush()


class _Batches:
    """Gathers batches of images, sends full ones through the network, and puts the rows in place.

    The images of a batch are of one size, unless they may be `mixed`, and of one block of the source.
    """

    def __init__(
        self,
        forward: ForwardPass,
        size: int,
        collected: Collected,
        cache: FeatureCache | JoinedCache | None,
        *,
        mixed: bool,
    ) -> None:
        self._forward = forward
        self._size = size
        self._collected = collected
        self._cache = cache
        self._mixed = mixed
        self._block = 0
        self._gathering: dict[torch.Size | None, list[tuple[int, LoadedImage]]] = {}
        self._running: deque[tuple[list[tuple[int, LoadedImage]], Future[Tensor]]] = deque()

    def take(self, image: LoadedImage, place: int) -> None:
        """The next image, at its place in the source."""
        if place // BLOCK != self._block:
            self._end_block()
            self._block = place // BLOCK
        if image.error is not None:
            self._collected.bad[place] = image.error
            return
        row = self._collected.new_row(image, place)
        if image.features is not None:
            self._collected.n_cached += 1
            self._collected.put([row], image.features[None])
            return
        assert image.pixels is not None
        key = None if self._mixed else image.pixels.shape
        batch = self._gathering.setdefault(key, [])
        batch.append((row, image))
        if len(batch) == self._size:
            self._run(self._gathering.pop(key))
        elif sum(map(len, self._gathering.values())) >= _WAITING_BATCHES * self._size:
            self._run(self._gathering.pop(max(self._gathering, key=lambda key: len(self._gathering[key]))))

    def _end_block(self) -> None:
        for batch in self._gathering.values():
            self._run(batch)
        self._gathering = {}

    def finish(self) -> None:
        """Run what was not enough for a batch, and wait for all."""
        self._end_block()
        while self._running:
            self._store_first()

    def _run(self, batch: list[tuple[int, LoadedImage]]) -> None:
        pixels = [image.pixels for _, image in batch if image.pixels is not None]
        self._running.append((batch, self._forward.submit(pixels)))
        if len(self._running) > self._forward.workers:
            self._store_first()

    def _store_first(self) -> None:
        batch, running = self._running.popleft()
        rows, images = [row for row, _ in batch], [image for _, image in batch]
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
