"""Images on their way to the network: threads read, look up in the cache, decode and prepare, in source order."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import ImageError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.extractor import FeatureExtractor, host_preparation
from genpr.images.decode import content_sha256, decode
from genpr.images.formats import codec_name
from genpr.images.item import Item
from genpr.images.policy import DecodePolicy
from genpr.runtime import usable_cores

_CHUNK = 8  # images per task of a thread
_CHUNKS_AHEAD = 3  # per thread; bounds the decoded pixels that wait


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """One image on its way: its input to the network, or its known features, or its error.

    Attributes:
        name: Its label in the source.
        identity: sha256 of its bytes.
        flags: What decoding noticed.
        format: Of the file; None for what came as pixels.
        size: (width, height) of the picture in that file; None if that is not known.
        pixels: uint8 (3, h, w), or float32 (3, s, s) from the extractor's `prepare`, unless that runs on its device.
        features: float32 (d,) from the cache.
        error: Why it cannot be used.
    """

    name: str
    identity: bytes = b""
    flags: tuple[str, ...] = ()
    format: str | None = None
    size: tuple[int, int] | None = None
    pixels: Tensor | None = None
    features: Tensor | None = None
    error: ImageError | None = None


def read_ahead(
    source: Iterable[Item],
    extractor: FeatureExtractor,
    cache: FeatureCache | JoinedCache | None,
    policy: DecodePolicy,
) -> Generator[LoadedImage]:
    """Load every item of `source` in threads, a bounded distance ahead, and yield them in order.

    Threads and not processes: Pillow and torch release the interpreter lock while they work, and nothing
    needs shared memory, which containers often limit to 64 MB.
    """

    def load_chunk(chunk: tuple[Item, ...]) -> list[LoadedImage]:
        return [_load(item, prepare, cache, policy) for item in chunk]

    prepare = host_preparation(extractor)
    threads = max(1, min(32, usable_cores() - 1))  # one core is busy with the network
    pool = ThreadPoolExecutor(threads, thread_name_prefix="genpr-decode")
    waiting: deque[Future[list[LoadedImage]]] = deque()
    try:
        for chunk in _chunks(source):
            waiting.append(pool.submit(load_chunk, chunk))
            if len(waiting) > threads * _CHUNKS_AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _load(
    item: Item,
    prepare: Callable[[Tensor], Tensor] | None,
    cache: FeatureCache | JoinedCache | None,
    policy: DecodePolicy,
) -> LoadedImage:
    try:
        data = item.read()
        identity = bytes.fromhex(content_sha256(data))
        known = None if cache is None else cache.get(identity)
        codec = codec_name(data) if isinstance(data, bytes) else None
        if known is not None:
            return LoadedImage(item.name, identity, known.flags, codec, known.size, features=known.features)
        decoded = decode(data, name=item.name, policy=policy)
    except ImageError as error:
        return LoadedImage(item.name, error=error.detached())
    height, width, _ = decoded.pixels.shape
    size = None if codec is None else (width, height)
    pixels = torch.from_numpy(decoded.pixels).permute(2, 0, 1)
    if prepare is not None:
        with torch.inference_mode():  # each thread has its own mode
            pixels = prepare(pixels)
    return LoadedImage(item.name, identity, decoded.flags, codec, size, pixels=pixels)


def _chunks(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    iterator = iter(items)
    while chunk := tuple(itertools.islice(iterator, _CHUNK)):
        yield chunk
