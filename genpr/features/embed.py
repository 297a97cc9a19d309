"""Images through an extractor: threads read, decode and prepare; the device embeds batches of fixed size.

Every forward pass has the same batch size (the last of a block of 2,048 images is padded), because convolution kernels
may round differently for different batch sizes: so adding files to a folder never changes the features of the others.
Blocks share no batch, so that it does not matter which rank embeds which of them.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from genpr.distributed import Communicator, current_communicator
from genpr.errors import DataError, FeatureError, ImageError, ResourceError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import adopt, describe
from genpr.features.extractor import (
    FeatureExtractor,
    PreparingExtractor,
    device_preparation,
    extractor_device,
    host_preparation,
    prepares_on_device,
)
from genpr.features.feature_set import FeatureSet, ImageFacts
from genpr.features.user_code import evaluation_mode
from genpr.images.decode import content_sha256, decode, decoder_versions
from genpr.images.formats import codec_name
from genpr.images.item import ImageSource, Item, known_length, printable
from genpr.images.policy import BadImagePolicy, DecodePolicy, in_order
from genpr.images.shards import BLOCK, ShardSource, names_sha256
from genpr.images.source import open_source
from genpr.memory import empty_rows
from genpr.notices import emit_notice
from genpr.runtime import empty_device_cache, is_out_of_memory, state_guard, torch_threads, usable_cores

_HASH = 32


class RankShare:
    """The images of a source that are this rank's: block r, r + size, r + 2 size, ...

    Every rank goes through the whole list, and reads only its own images.

    Args:
        source: The same on every rank.
        communicator: The ranks that share it.

    Attributes:
        names: Of all images met so far, the other ranks' too.
        total: How many images the source has; None if it does not know.

    Raises:
        DataError: It has another number of images elsewhere ("ranks-differ").
    """

    def __init__(self, source: ImageSource, communicator: Communicator) -> None:
        self._source, self._communicator = source, communicator
        self.names: list[str] = []
        self.total = known_length(source)
        self._check(self.total, "images")

    def __iter__(self) -> Iterator[Item]:
        rank, size = self._communicator.rank, self._communicator.size
        names = None if self._communicator.is_single_process or self.total is None else self._source.names()
        if (
            names is not None
        ):  # others' images are not even passed by, which for parquet would be to read them
            self.names.extend(names)
            own = (start for start in range(0, self.total or 0, BLOCK) if start // BLOCK % size == rank)
            places = (place for start in own for place in range(start, min(start + BLOCK, self.total or 0)))
            yield from self._source.pick(places)
            return
        for position, item in enumerate(self._source):
            self.names.append(item.name)
            if position // BLOCK % size == rank:
                yield item

    def check_names(self) -> None:
        """Make sure that all ranks went through the same list.

        Raises:
            DataError: They did not ("ranks-differ").
        """
        if not self._communicator.is_single_process:
            facts = [len(self.names), names_sha256(self.names)[:16]]
            self._check(facts, "images and hash of their names")

    def place(self, number: int) -> int:
        """Where in the source this rank's image of a `number` (from 0) is."""
        block, row = divmod(number, BLOCK)
        return (block * self._communicator.size + self._communicator.rank) * BLOCK + row

    @property
    def most(self) -> int | None:
        """How many images this rank has at most; None if unknown."""
        blocks = None if self.total is None else -(-self.total // BLOCK)
        if self.total is None or blocks is None:
            return None
        return min(self.total, -(-blocks // self._communicator.size) * BLOCK)

    def _check(self, own: Any, what: str) -> None:  # noqa: ANN401 - plain JSON types
        if self._communicator.is_single_process:
            return
        for rank, other in enumerate(self._communicator.all_gather_object(own)):
            if other != own:
                raise DataError(
                    f"{printable(self._source.name)} is not the same everywhere: {what} are {own} on rank "
                    f"{self._communicator.rank} and {other} on rank {rank}; do all machines see one file system?",
                    code="ranks-differ",
                    path=self._source.name,
                )


@dataclass
class Collected:
    """What is known of the images of one rank, or of all, in source order whatever the order of batches.

    Attributes:
        features: float32, a row per usable image, and perhaps room for more.
        counts: Usable images by block.
        identities: sha256 of each usable image, 32 bytes after 32 bytes, where bytes objects take 90.
        flags: How many images each decoding flag applies to.
        formats: How many files are of which format.
        sizes: How many are of which (width, height).
        bad: By position in the source, the images that cannot be used.
        n_cached: Images whose features were known.
    """

    features: Tensor
    counts: Counter[int] = field(default_factory=Counter)
    identities: bytearray = field(default_factory=bytearray)
    flags: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    bad: dict[int, ImageError] = field(default_factory=dict)
    n_cached: int = 0

    def new_row(self, image: LoadedImage, place: int) -> int:
        """The row of a usable image at `place` in the source; images come in order."""
        self.counts[place // BLOCK] += 1
        self.identities += image.identity
        self.flags.update(image.flags)
        if image.format is not None:
            self.formats[image.format] += 1
        if image.size is not None:
            self.sizes[image.size] += 1
        if self.n > len(self.features):
            n, dim = self.features.shape
            more = empty_rows(2 * n, dim, torch.float32)
            more[:n] = self.features
            self.features = more
        return self.n - 1

    @property
    def n(self) -> int:
        """Usable images."""
        return len(self.identities) // _HASH

    def put(self, rows: list[int], features: Tensor) -> None:
        """Features (r, d) of some rows."""
        self.features[rows] = features

    def of_all(self, communicator: Communicator) -> Collected:
        """The same of the images of all ranks."""
        if communicator.is_single_process:
            return self
        told = communicator.all_gather_object(self._record())
        counts = {int(block): count for each in told for block, count in each["counts"].items()}
        rows, hashes = self.features[: self.n], self._hashes()
        errors = sorted(entry for each in told for entry in each["bad"])
        return Collected(
            features=_in_order(rows, counts, communicator),
            counts=Counter(counts),
            identities=bytearray(_in_order(hashes, counts, communicator).numpy()),
            flags=_summed(each["flags"].items() for each in told),
            formats=_summed(each["formats"].items() for each in told),
            sizes=_summed((((w, h), count) for w, h, count in each["sizes"]) for each in told),
            bad={place: ImageError(text, code=code, path=path) for place, code, text, path in errors},
            n_cached=sum(each["n_cached"] for each in told),
        )

    def _hashes(self) -> Tensor:
        """(n, 32) uint8, in the same memory."""
        if not self.n:
            return torch.empty(0, _HASH, dtype=torch.uint8)
        return torch.frombuffer(self.identities, dtype=torch.uint8).view(self.n, _HASH)

    def _record(self) -> dict[str, Any]:
        """What is not a tensor, as plain JSON types."""
        return {
            "counts": self.counts,
            "flags": self.flags,
            "formats": self.formats,
            "sizes": [[*size, count] for size, count in self.sizes.items()],
            "bad": [[place, error.code, str(error), error.path] for place, error in self.bad.items()],
            "n_cached": self.n_cached,
        }

    def feature_set(
        self, source: str, names: list[str], extractor: FeatureExtractor, *, seconds: float
    ) -> FeatureSet:
        """All rows, called by the `names` of all images of the source."""
        n = self.n
        return FeatureSet(
            features=self.features[:n],
            source=source,
            extractor=describe(extractor),
            names=tuple(name for place, name in enumerate(names) if place not in self.bad),
            identities=self._hashes(),
            flags=in_order(self.flags),
            facts=ImageFacts.of(self.formats, self.sizes),
            sizes=self.sizes,
            skipped=tuple(self.bad.values()),
            n_embedded=n - self.n_cached,
            n_cached=self.n_cached,
            seconds=seconds,
        )


def _in_order(rows: Tensor, counts: dict[int, int], communicator: Communicator) -> Tensor:
    """The rows of all blocks, of which this rank has its own: (n, ...)."""
    blocks = sorted(counts)
    every = empty_rows(sum(counts.values()), rows.shape[1], rows.dtype)
    parts = dict(zip(blocks, torch.split(every, [counts[block] for block in blocks]), strict=True))
    own = [block for block in blocks if block % communicator.size == communicator.rank]
    for block, part in zip(own, torch.split(rows, [counts[block] for block in own]), strict=True):
        parts[block].copy_(part)
    communicator.broadcast_parts([(block % communicator.size, parts[block]) for block in blocks])
    return every


def _summed(entries: Any) -> Counter[Any]:  # noqa: ANN401 - pairs of some key and a count, of each rank
    total: Counter[Any] = Counter()
    for each in entries:
        for key, count in each:
            total[key] += count
    return total


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


_MAX_WORKERS = 4  # each holds the activations of one batch, about 1 GB for Inception


class ForwardPass:
    """Context manager that runs blocks of prepared images; results come as futures.

    On a CPU several blocks run side by side, each on its share of the cores: that keeps every core busy with
    small networks too, and does not collapse when other processes compete for the cores, as one network on all
    of them does (measured: 5x slower). It needs an extractor that says `thread_safe = True`, as the built-in
    ones do; a user's network may keep state between its layers, so it runs one block at a time.

    Args:
        extractor: What to run.
        batch_size: Images per pass.
    """

    def __init__(self, extractor: FeatureExtractor, batch_size: int) -> None:
        self._extractor = extractor
        self._run = extractor.forward if isinstance(extractor, PreparingExtractor) else extractor
        self._prepare = device_preparation(extractor)
        self._device = extractor_device(extractor)
        self._asked, self.batch_size = batch_size, batch_size  # halved when the device runs out of memory
        parallel = self._device.type == "cpu" and getattr(extractor, "thread_safe", False)
        self.workers = min(usable_cores(), _MAX_WORKERS) if parallel else 1
        self._stack = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.workers > 1:
            self._stack.enter_context(torch_threads(usable_cores() // self.workers))
            self._pool = self._stack.enter_context(ThreadPoolExecutor(self.workers, "genpr-embed"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._stack.close()
        if self.batch_size < self._asked:
            emit_notice("oom-smaller-batches", device=self._device, asked=self._asked, size=self.batch_size)

    def submit(self, images: Sequence[Tensor]) -> Future[Tensor]:
        """Embed n images, (3, h, w) each: float32 (n, dim) on the CPU, now or soon.

        They are of one size, unless the extractor prepares them on its device.

        The future raises FeatureError if the extractor returns something else, and ResourceError if the device
        has no memory for a single image.
        """
        if self._pool is not None:
            return self._pool.submit(self._embed, images)
        done: Future[Tensor] = Future()
        done.set_result(self._embed(images))
        return done

    def _embed(self, images: Sequence[Tensor]) -> Tensor:
        # Both modes belong to a thread; a training loop's autocast would turn features into bfloat16.
        with torch.inference_mode(), torch.autocast(self._device.type, enabled=False):
            return self._embed_in_memory(images)

    def _embed_in_memory(self, images: Sequence[Tensor]) -> Tensor:
        while True:
            size = self.batch_size  # another thread may halve it meanwhile
            try:
                starts = range(0, len(images), size)
                return torch.cat([self._embed_batch(images[start : start + size], size) for start in starts])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if size == 1:
                    remedy = "free it" if self._device.type == "cpu" else "free it or use --device cpu"
                    raise ResourceError(
                        f"{self._device} has no memory left for one image of {tuple(images[0].shape[1:])} pixels; "
                        + remedy,
                        code="oom",
                    ) from error
            empty_device_cache(self._device.type)  # here, where the error no longer holds what the batch took
            self.batch_size = min(self.batch_size, (size + 1) // 2)

    def _call(self, batch: Tensor) -> Tensor:
        try:
            return self._run(batch)
        except Exception as error:
            if not is_out_of_memory(error):
                error.add_note(f"extractor {self._extractor.name} failed")
            raise

    def _embed_batch(self, images: Sequence[Tensor], size: int) -> Tensor:
        padded = [*images, *[images[-1]] * (size - len(images))]
        if self._prepare is None:
            batch = torch.stack(padded).to(self._device)
        else:
            batch = torch.stack([self._prepare(image.to(self._device)) for image in padded])
        output = self._call(batch)
        expected = (size, self._extractor.dim)
        if not isinstance(output, Tensor) or output.shape != expected:
            came = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise FeatureError(
                f"extractor {self._extractor.name} must return one row of {self._extractor.dim} numbers per "
                f"image, {expected} for this batch, but returned {came}",
                code="feature-shape",
            )
        return output[: len(images)].float().cpu()


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
