"""Embed images: threads read, decode and prepare them, and the device embeds batches of fixed size.

One pass serves several extractors: each image is read and decoded once, and the batches of the extractors take turns.

Every forward pass has the same batch size (the last batch of a block of 2,048 images is padded), because convolution kernels
may round differently for different batch sizes. Adding files to a folder therefore never changes the features of other files.
Blocks share no batch, so the assignment of blocks to ranks does not change any feature.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count, groupby
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genpr.distributed import Communicator, current_communicator
from genpr.errors import DataError, FeatureError, ImageError, ResourceError, UsageError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import evaluation_mode, extractor_device, wrap_extractor
from genpr.features.extractor import DescribedExtractor, ExtractorInfo, FeatureExtractor, PreparingExtractor
from genpr.features.feature_set import FeatureSet, ImageFacts
from genpr.features.networks.network import NetworkExtractor
from genpr.features.resize import as_tensor, prepare_decoded
from genpr.images.decode import content_sha256, decoder_versions
from genpr.images.item import ImageSource, Item, known_length, printable
from genpr.images.loading import CachedImage, LoadedImage, Reader, load
from genpr.images.policy import BadImagePolicy, DecodePolicy, in_order
from genpr.images.read_ahead import default_threads, read_ahead
from genpr.images.shards import BLOCK, ShardSource, names_sha256
from genpr.images.source import open_source
from genpr.memory import empty_rows
from genpr.notices import emit_notice
from genpr.runtime import (
    is_out_of_memory,
    reused_memory,
    state_guard,
    torch_threads,
    usable_cores,
    user_errors,
)
from genpr.validation import check_count, entry_point, is_plain, kind_of

Cache = FeatureCache | JoinedCache
Progress = Callable[[int, int | None], None]
Preparation = Callable[[Tensor], Tensor]

_WAITING_BATCHES = 4  # of different image sizes, before the fullest one is run incomplete
_MAX_WORKERS = 4  # each holds the activations of one batch, about 250 MB for Inception
_BATCHES_AHEAD = 2  # batches that are queued on a CUDA device
_UPLOAD_BYTES = 2**26  # of a stack of images; a batch of 64 images of 256 x 256 pixels takes a fifth
_HASH = 32
_MIN_CORES, _MIN_IMAGES = 4, 2000  # from which on processes load the images for a GPU
_COMPARED = 16  # runs of as many images, of which ranks compare the contents
_EMBEDDED = 8  # of these images, which every rank embeds
_ROUNDING = 1e-3  # of the largest feature, by which ranks on processors of different kinds may differ
_IDENTITY = "dim", "resize", "weights_sha256", "cache_key"


@entry_point
def embed(
    source: object, extractor: FeatureExtractor, *, batch_size: int = 64, progress: Progress | None = None
) -> Tensor:
    """Embed images.

    Args:
        source: Images as for `genpr.score`: a path, an array, a Dataset, or an iterable of batches.
        extractor: From `genpr.load_extractor`, or any object that follows the `FeatureExtractor` protocol.
        batch_size: Images per forward pass; more than 2,048 are taken as 2,048.
        progress: Called with the number of finished images and the total (None if unknown).

    Returns:
        float32 (n, dim) on the CPU, in the order of the source.

    Raises:
        BadImagesError: The source contains unusable images.
        DataError: The source has no images.
        UsageError: The source does not exist.
    """
    check_count(batch_size, "batch_size", minimum=1)
    chosen = [(wrap_extractor(extractor), None)]
    (embedded,) = embed_source(open_source(source), chosen, batch_size=batch_size, progress=progress)
    if not len(embedded):
        text = f"{embedded.source} has no images; an iterator can be read only once"
        raise DataError(text, code="no-images", path=embedded.source)
    return embedded.features


def embed_source(
    source: ImageSource,
    extractors: Sequence[tuple[DescribedExtractor, Cache | None]],
    *,
    batch_size: int = 64,
    decode_policy: DecodePolicy | None = None,
    bad_images: BadImagePolicy | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> list[FeatureSet]:
    """Embed all images of `source` with each extractor and its cache.

    The features are bit-identical to those of each extractor alone, since extractors never share a batch. `workers` is the number of
    processes that load images, 0 for threads; None chooses.
    """
    started = time.perf_counter()
    policy = decode_policy or DecodePolicy()
    communicator, total = current_communicator(), known_length(source)
    share = None if communicator.is_single_process else RankShare(source, communicator)
    rows = total if share is None else share.most
    runs = list[ExtractorRun]()
    with ExitStack() as stack:
        stack.enter_context(state_guard())
        for extractor, cache in extractors:
            runs.append(run := ExtractorRun(extractor, cache, batch_size, rows or 1024))
            if not isinstance(extractor, NetworkExtractor):  # which is frozen in evaluation mode
                stack.enter_context(evaluation_mode(extractor))
            elif not run.is_on_gpu:
                stack.enter_context(reused_memory)
        if share is not None:
            _check_extractors_of_ranks(runs, share, policy)
        items = enumerate(source) if share is None else share
        readers, processes = [run.reader for run in runs], _processes(source, runs, rows, workers)
        images = stack.enter_context(closing(read_ahead(items, readers, policy, processes=processes)))
        report = None if progress is None else partial(_report, progress, total, communicator.size)
        batches = stack.enter_context(closing(_batches(images, runs, report)))
        try:
            _embed_batches(batches, runs)
        finally:  # also after an error, before waiting for other work
            for run in runs:
                if run.cache is not None:
                    run.cache.flush()
                if run.batch_size < run.requested:
                    facts = {"device": run.device, "requested": run.requested, "size": run.batch_size}
                    emit_notice("oom-smaller-batches", **facts)
    if share is not None:
        share.check_visited()
    sets = list[FeatureSet]()
    for run in runs:
        embedded = run.embedded if share is None else run.embedded.of_all(communicator, share.names)
        if embedded.bad:
            bad, n = list(embedded.bad.values()), len(embedded.names) + len(embedded.bad)
            n = len(source.source) if isinstance(source, ShardSource) else n
            (bad_images or BadImagePolicy()).check(bad, total=n, source=source.name)
        features = embedded.feature_set(source.name, run.extractor.info)
        decoder, seconds = decoder_versions() | policy.choices, time.perf_counter() - started
        if policy.bands == "all":
            decoder["n_bands"] = _same_bands(communicator, run.bands, source.name)
        others = getattr(source, "passed_over", {})
        sets.append(replace(features, seconds=seconds, decoder=decoder, passed_over=others))
    return sets


def _processes(
    source: ImageSource, runs: Sequence[ExtractorRun], rows: int | None, workers: int | None
) -> int:
    """The number of processes that load images; networks on a CPU need the cores themselves."""
    if workers is None:
        is_large = usable_cores() >= _MIN_CORES and (rows or 0) >= _MIN_IMAGES
        workers = default_threads() if is_large and any(run.is_on_gpu for run in runs) else 0
    return workers if source.is_in_files else 0


def _same_bands(communicator: Communicator, own: int, name: str) -> str:
    """The number of bands of the images of all ranks, of which some may have no images."""
    found = sorted({*communicator.all_gather_object(own, "number of bands")} - {0})
    if len(found) > 1:
        text = f"the images of {printable(name)} have {found[0]} and {found[-1]} bands; choose bands that all have"
        raise DataError(text, code="other-bands", path=name)
    return str(*found)


def _report(progress: Progress, total: int | None, size: int, number: int) -> None:
    """Report the images of all ranks, estimated from the number of this rank."""
    progress(number * size if total is None else min(number * size, total), total)


class RankShare:
    """The images of a source that rank r of several embeds: those of blocks r, r + size, r + 2 size, ...

    Every rank must have the same images ("ranks-differ"). Where their names are known, a rank reads only its own images and
    those at the positions `compared`, of which all ranks compare the contents; otherwise it reads all images and compares
    all. `names` has all images visited so far, and `most` is an upper bound of the number of images of this rank; None for a
    source of unknown length.
    """

    def __init__(self, source: ImageSource, communicator: Communicator) -> None:
        self._source, self.communicator = source, communicator
        self.names: list[str] = []
        self.compared: list[int] = []
        total = self.most = known_length(source)
        self._is_indexed, self._visited = False, dict[str, str]()
        own: dict[str, Any] = {"number of images": total}
        if total is not None:
            blocks_of_rank = -(-total // (BLOCK * communicator.size))
            self.most = min(total, blocks_of_rank * BLOCK)
            if (names := source.names()) is not None:
                self._is_indexed = True
                self.names.extend(names)
                self.compared = _positions_to_compare(total)
                own["hash of names"] = names_sha256(self.names)[:16]
                with ThreadPoolExecutor(usable_cores()) as pool:
                    contents = pool.map(_content, source.select(self.compared))
                    own |= zip(map(self.names.__getitem__, self.compared), contents, strict=True)
        self._check(own)

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        """This rank's images, each with its position in the source."""
        rank, size = self.communicator.rank, self.communicator.size
        if self._is_indexed:
            # Images of other ranks are not iterated over, which for parquet would read them.
            positions = [at for at in range(len(self.names)) if at // BLOCK % size == rank]
            yield from zip(positions, self._source.select(positions), strict=True)
            return
        digest = hashlib.sha256()
        for position, item in enumerate(self._source):
            self.names.append(item.name)
            digest.update(_content(item).encode())  # of an iterable, whose images can be read again
            first = position // BLOCK * BLOCK
            self._visited[f"images {first:,} to {first + BLOCK - 1:,}"] = digest.hexdigest()[:16]
            if position // BLOCK % size == rank:
                yield position, item

    def some_compared(self) -> Iterator[tuple[int, Item]]:
        """Some of the compared images, each with its position in the source."""
        positions = self.compared[:: -(-len(self.compared) // _EMBEDDED) or 1]
        return zip(positions, self._source.select(positions), strict=True)

    def check_visited(self) -> None:
        """Raise an error if the ranks iterated over different images."""
        if not self._is_indexed:
            self._check({"number of images": len(self.names), **self._visited})

    def _check(self, own: Mapping[str, Any]) -> None:
        name = self._source.name
        advice = f"{printable(name)} must have the same images in the same order on all ranks"
        self.communicator.check_same(own, "images", advice, partial(DataError, path=name))


def _positions_to_compare(total: int) -> list[int]:
    """16 runs of 16 images, evenly spaced, so that few row groups of a parquet file are read; or all of fewer images."""
    starts = [total * run // _COMPARED for run in range(_COMPARED)]
    return sorted({at for start in starts for at in range(start, min(start + _COMPARED, total))})


def _content(item: Item) -> str:
    """The hash of an image, or why it cannot be read."""
    try:
        return content_sha256(item.read())[:16]
    except ImageError as error:
        return error.code


def _check_extractors_of_ranks(runs: Sequence[ExtractorRun], share: RankShare, policy: DecodePolicy) -> None:
    """Raise an error if other ranks embed in another way, such as a few of the compared images."""
    infos = [run.extractor.info for run in runs]
    own: dict[str, Any] = {f"extractor {number}": info.name for number, info in enumerate(infos, 1)}
    own |= {f"{key} of {info.name}": getattr(info, key) for info in infos for key in _IDENTITY}
    own |= {"batch_size": runs[0].requested, **decoder_versions(), **policy.choices}
    what, advice = "extractors", "all ranks must embed with the same code, weights and options"
    communicator = share.communicator
    communicator.check_same(own, what, advice)
    loaded = load([*share.some_compared()], [run.reader._replace(cache=None) for run in runs], policy)
    for number, (run, info) in enumerate(zip(runs, infos, strict=True)):
        images = [each[number] for each in loaded]
        usable = [(0, image, as_tensor(image.pixels)) for image in images if image.pixels is not None]
        rows = [row for row in usable if row[2].shape == usable[0][2].shape]
        features = run.embed(rows) if rows else torch.empty(0, info.dim, device="cpu")
        if run.is_on_gpu:
            torch.cuda.synchronize(run.device)
        first, *others = communicator.all_gather(features, "features of images")
        margin = _ROUNDING * float(first.abs().nan_to_num().max()) if rows else 0.0
        for rank, other in enumerate(others, 1):
            if not torch.allclose(first, other, rtol=0, atol=margin, equal_nan=True):
                text = f"rank 0 and rank {rank} have different {what} ({info.name} returns other features for the same images); {advice}"
                communicator.raise_on_all_ranks(UsageError(text, code="ranks-differ"))


_Row = tuple[int, LoadedImage, Tensor]  # row of the features, image, and its pixels


@dataclass
class EmbeddedImages:
    """Features and facts of the images of one rank, or of all ranks, in source order.

    `features` has a row per usable image and possibly spare rows, and `names` their names. `counts` are usable images by block.
    `identities` are concatenated digests of 32 bytes, since a bytes object takes 90. `bad` are unusable images by position.
    """

    features: Tensor
    names: list[str] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    identities: bytearray = field(default_factory=bytearray)
    flags: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    bad: dict[int, ImageError] = field(default_factory=dict)
    n_cached: int = 0

    def add(self, image: LoadedImage) -> int:
        """Record the next image in source order and return the row of its features, or -1 if it is unusable."""
        if image.error is not None:
            self.bad[image.position] = image.error
            return -1
        row = len(self.names)
        self.names.append(image.name)
        self.counts[image.position // BLOCK] += 1
        self.identities += image.identity
        self.flags.update(image.flags)
        if image.format is not None:
            self.formats[image.format] += 1
        if image.size is not None:
            self.sizes[image.size] += 1
        if row == len(self.features):
            n, dim = self.features.shape
            more = empty_rows(2 * n, dim, torch.float32)
            more[:n] = self.features
            self.features = more
        if image.features is not None:
            self.n_cached += 1
            self.features[row] = image.features
        return row

    def of_all(self, communicator: Communicator, names: Sequence[str]) -> EmbeddedImages:
        """The same for the images of all ranks; `names` are those of all images of the source."""
        own = {
            "counts": self.counts,
            "flags": self.flags,
            "formats": self.formats,
            "sizes": [[*size, count] for size, count in self.sizes.items()],
            "bad": [[position, error.code, str(error), error.path] for position, error in self.bad.items()],
            "n_cached": self.n_cached,
        }
        hashes = torch.from_numpy(np.frombuffer(self.identities, np.uint8).reshape(-1, _HASH))
        records = communicator.all_gather_object(own, "facts of images")
        counts = {int(block): count for each in records for block, count in each["counts"].items()}
        errors = sorted(entry for each in records for entry in each["bad"])
        bad = {position: ImageError(text, code=code, path=path) for position, code, text, path in errors}
        return EmbeddedImages(
            features=_in_order(self.features[: len(self.names)], counts, communicator),
            names=[name for position, name in enumerate(names) if position not in bad],
            counts=Counter(counts),
            identities=bytearray(_in_order(hashes, counts, communicator).numpy()),
            flags=sum((Counter(each["flags"]) for each in records), Counter()),
            formats=sum((Counter(each["formats"]) for each in records), Counter()),
            sizes=sum((Counter({(w, h): n for w, h, n in each["sizes"]}) for each in records), Counter()),
            bad=bad,
            n_cached=sum(each["n_cached"] for each in records),
        )

    def feature_set(self, source: str, info: ExtractorInfo | None) -> FeatureSet:
        """All rows as a feature set."""
        n = len(self.names)
        return FeatureSet(
            features=self.features[:n],
            source=source,
            extractor=info,
            names=tuple(self.names),
            identities=torch.from_numpy(np.frombuffer(self.identities, np.uint8).reshape(-1, _HASH)),
            flags=in_order(self.flags),
            facts=ImageFacts.from_counts(self.formats, self.sizes),
            sizes=self.sizes,
            skipped=tuple(self.bad.values()),
            n_embedded=n - self.n_cached,
            n_cached=self.n_cached,
        )


def _in_order(rows: Tensor, counts: dict[int, int], communicator: Communicator) -> Tensor:
    """The rows (n, ...) of all blocks in order, from the blocks of each rank."""
    blocks = sorted(counts)
    every = empty_rows(sum(counts.values()), rows.shape[1], rows.dtype)
    parts = dict(zip(blocks, torch.split(every, [counts[block] for block in blocks]), strict=True))
    own = [block for block in blocks if block % communicator.size == communicator.rank]
    for block, part in zip(own, torch.split(rows, [counts[block] for block in own]), strict=True):
        parts[block].copy_(part)
    communicator.broadcast_parts([(block % communicator.size, parts[block]) for block in blocks])
    return every


def _batches(
    images: Iterable[Sequence[LoadedImage]],
    runs: Sequence[ExtractorRun],
    report: Callable[[int], None] | None,
) -> Generator[tuple[ExtractorRun, list[_Row]]]:
    """Record each image for all extractors, and yield batches to embed; a batch is within one block of the source."""
    numbers = count(1)
    for _, block in groupby(images, key=lambda of_runs: of_runs[0].position // BLOCK):
        for of_runs in block:
            for run, image in zip(runs, of_runs, strict=True):
                if batch := run.add(image):
                    yield run, batch
            if report is not None:
                report(next(numbers))
        for run in runs:
            while run.waiting:  # incomplete batches
                yield run, run.waiting.pop(next(iter(run.waiting)))


def _embed_batches(batches: Iterable[tuple[ExtractorRun, list[_Row]]], runs: Sequence[ExtractorRun]) -> None:
    """Embed batches, and store their features in order.

    On a CUDA device, the next batches are queued while one runs. On a CPU, thread-safe extractors run several batches in
    parallel, each on a share of the cores: one batch on all cores is up to 5 times as slow if other processes compete.
    """
    workers = min(usable_cores(), _MAX_WORKERS)
    ahead = _BATCHES_AHEAD if any(map(attrgetter("is_on_gpu"), runs)) else 0
    running: deque[tuple[ExtractorRun, list[_Row], Callable[[], Tensor]]] = deque()

    def store_all_but(most: int) -> None:
        while len(running) > most:
            run, batch, features = running.popleft()
            run.store(batch, features())

    with ExitStack() as stack:
        pool, own = None, torch.get_num_threads()
        if workers > 1 and any(map(attrgetter("runs_in_threads"), runs)):
            threads = usable_cores() // workers
            stack.enter_context(torch_threads(threads))
            pool = ThreadPoolExecutor(workers, "genpr-embed", _use_threads, (threads,))
            ahead = max(ahead, workers)
            stack.callback(pool.shutdown, cancel_futures=True)
        for run, batch in batches:
            try:
                features: Callable[[], Tensor]
                if run.is_on_gpu:
                    features = run.issue(batch)
                elif pool is None:
                    features = partial(run.embed, batch)
                elif run.runs_in_threads:
                    features = pool.submit(run.embed, batch).result
                else:  # in this thread, with the number of threads that is used without a pool
                    features = partial(torch_threads(own)(run.embed), batch)
            except Exception:
                store_all_but(0)
                raise
            running.append((run, batch, features))
            store_all_but(ahead)
        store_all_but(0)


def _use_threads(count: int) -> None:
    """Set the number of torch threads of the calling thread only."""
    torch.get_num_threads()  # initializes the default of all threads, which the first operation would overwrite
    torch.set_num_threads(count)


def _prepare(extractor: PreparingExtractor, image: Tensor) -> Tensor:
    """The image as prepared by code of the user; errors name the extractor."""
    with user_errors(f"prepare of extractor {extractor.name}", "extractor-failed"):
        prepared = extractor.prepare(image)
    if is_plain(prepared):
        return prepared
    text = f"prepare of extractor {extractor.name} must return a dense torch.Tensor of numbers, but returned {kind_of(prepared)}"
    raise FeatureError(text, code="feature-shape")


class ExtractorRun:
    """One extractor in a pass over images: its cache, its features, and incomplete batches by image size.

    `batch_size` is halved when the device runs out of memory. `reader` has the extractor's `prepare` if images are prepared on the
    CPU after decoding; otherwise they are prepared on the device, and a batch may have images of different sizes.
    """

    def __init__(
        self, extractor: DescribedExtractor, cache: Cache | None, batch_size: int, rows: int = 1024
    ) -> None:
        self.extractor, self.cache = extractor, cache
        self.device = extractor_device(extractor)
        largest = BLOCK  # more images are never in one batch
        if isinstance(extractor, NetworkExtractor) and self.device.type == "cpu":
            largest = extractor.most_on_cpu
        self.batch_size = self.requested = min(batch_size, largest)
        self.waiting: dict[torch.Size | None, list[_Row]] = {}
        self.reader = Reader(cache=cache)
        self._run: Callable[[Tensor], Tensor] = extractor
        self._prepare: Preparation | None = None
        if isinstance(extractor, PreparingExtractor):
            self._run = extractor.forward
            prepare: Preparation = partial(_prepare, extractor)
            if is_portable := isinstance(extractor, NetworkExtractor):
                prepare = extractor.rule.prepare
            if getattr(extractor, "prepares_on_device", False) is True:
                self._prepare = prepare
            else:
                self.reader = Reader(partial(prepare_decoded, prepare), cache, is_portable)
        self.is_on_gpu = self.device.type == "cuda"
        self.bands = 0  # of the first image
        self.runs_in_threads = self.device.type == "cpu" and getattr(extractor, "thread_safe", False)
        self.embedded = EmbeddedImages(empty_rows(rows, extractor.dim, torch.float32))
        # Before the pass, until they are compared.
        self._weights_sha256 = None if cache is None else extractor.info.weights_sha256

    def add(self, image: LoadedImage) -> list[_Row]:
        """Record the next image; return a batch to embed, of one image size unless sizes are mixed, or an empty list."""
        if image.bands and image.bands != (self.bands or image.bands):
            text = f"{image.name}: it has {image.bands} bands, but images before it have {self.bands}"
            image = image.unusable(ImageError(text, code="image-values", path=image.name))
        self.bands = self.bands or image.bands
        row = self.embedded.add(image)
        if image.pixels is None:
            return []
        pixels = as_tensor(image.pixels)
        key = None if self._prepare is not None else pixels.shape
        batch = self.waiting.setdefault(key, [])
        batch.append((row, image, pixels))
        if len(batch) == self.requested:
            return self.waiting.pop(key)
        if key is not None and sum(map(len, self.waiting.values())) >= _WAITING_BATCHES * self.requested:
            return self.waiting.pop(max(self.waiting, key=lambda key: len(self.waiting[key])))
        return []

    def store(self, batch: Sequence[_Row], features: Tensor) -> None:
        """Put the features of a batch into their rows and the cache."""
        before, self._weights_sha256 = self._weights_sha256, None
        # The hash of the weights is in the key of the cache.
        if before is not None and before != self.extractor.info.weights_sha256:
            text = (
                f"extractor {self.extractor.name} changes its parameters or buffers in forward, so its features depend on earlier "
                "images and cannot be cached; change none there"
            )
            raise UsageError(text, code="custom-extractor")
        rows, images, _ = zip(*batch, strict=True)
        finite = features.isfinite().all(dim=1)
        if not finite.all():
            wrong = (~finite).nonzero().flatten().tolist()
            first = images[min(wrong, key=lambda index: rows[index])].name
            text = f"extractor {self.extractor.name} returned NaN or infinity for {first}; check its weights, and use float32 if this is a @bfloat16 variant"
            raise FeatureError(text, code="non-finite", path=first)
        self.embedded.features[list(rows)] = features
        if self.cache is not None:
            pairs = zip(features, images, strict=True)
            known = [CachedImage(row, image.flags, image.size) for row, image in pairs]
            self.cache.add([image.identity for image in images], known)

    def issue(self, batch: list[_Row]) -> Callable[[], Tensor]:
        """Queue a batch on a CUDA device and return a function that waits for its features."""
        batch.sort(key=lambda row: row[2].shape)  # one resize for each size
        rows, done = self.embed(batch), torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(self.device))

        def wait() -> Tensor:
            done.synchronize()
            return rows.clone()  # pageable memory, since the cache keeps the features for a while

        return wait

    def embed(self, batch: Sequence[_Row]) -> Tensor:
        """Embed n images, of one size unless they are prepared on the device, as float32 (n, dim); a copy from CUDA may be incomplete."""
        _, _, images = zip(*batch, strict=True)
        shape, pinned = (len(images), self.extractor.dim), self.is_on_gpu
        # Both modes are per thread. The autocast of a training loop would turn features into bfloat16.
        with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
            while True:
                size = self.batch_size  # another thread may halve it
                try:
                    rows = torch.empty(shape, dtype=torch.float32, device="cpu", pin_memory=pinned)
                    for start in range(0, len(images), size):
                        part = slice(start, start + size)
                        rows[part].copy_(self._embed_batch(images[part], size), non_blocking=pinned)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    if size == 1:
                        side = tuple(images[0].shape[1:])
                        text = f"{self.device} ran out of memory for one image of {side} pixels; free memory, or use another --device"
                        raise ResourceError(text, code="oom") from error
                else:
                    return rows
                # The error no longer references the memory of the batch here.
                torch.cuda.empty_cache()
                self.batch_size = min(self.batch_size, (size + 1) // 2)

    def _embed_batch(self, images: Sequence[Tensor], size: int) -> Tensor:
        """Embed images with copies of the last one up to `size`."""
        if not self.is_on_gpu:
            padded = [*images, *[images[-1]] * (size - len(images))]
            if self._prepare is not None:
                padded = [self._prepare(image.to(self.device, copy=True)) for image in padded]
            batch = torch.stack(padded).to(self.device)
        else:
            batch = self._uploaded(images, size)
        facts = f"{batch.dtype} {tuple(batch.shape)}"
        with user_errors(f"extractor {self.extractor.name} on a batch {facts}", "extractor-failed"):
            output = self._run(batch)
        # The output may be on another GPU of the network, whose stream `issue` does not wait for.
        return output[: len(images)].to(self.device, torch.float32)

    def _uploaded(self, images: Sequence[Tensor], size: int) -> Tensor:
        """The stack of prepared images on a CUDA device."""
        parts = []
        for stack in _stacks_on(self.device, images):
            if self._prepare is None:
                parts.append(stack.contiguous())
            elif getattr(self.extractor, "prepares_stacks", False) is True:
                parts.append(self._prepare(stack))
            else:
                parts.append(torch.stack([self._prepare(image) for image in stack]))
        if len(images) < size:
            last = parts[-1][-1:]
            parts.append(last.expand(size - len(images), *last.shape[1:]))
        # Full and padded batches have one memory layout, since convolutions may round differently in another.
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).contiguous()


def _stacks_on(device: torch.device, images: Iterable[Tensor]) -> Iterator[Tensor]:
    """Stacks (n, ...) of consecutive images of one shape on a CUDA device, in the order and memory format of the images.

    Copies run on a stream of their own, at the same time as the network. torch keeps the pinned memory until the copy is done, and
    the stack until the work that was issued before it is freed is done.
    """
    network, copies = torch.cuda.current_stream(device), _stream_of_copies(device)
    for (shape, strides, _), group in groupby(images, lambda each: (each.shape, each.stride(), each.dtype)):
        members, is_permuted = list(group), len(shape) == 3 and strides[0] == 1
        if is_permuted:  # decoded pixels, which would be copied more slowly
            members = [image.permute(1, 2, 0) for image in members]
        step = max(1, _UPLOAD_BYTES // members[0].nbytes)
        for part in (members[start : start + step] for start in range(0, len(members), step)):
            sides = (len(part), *part[0].shape)
            pinned = torch.empty(sides, dtype=part[0].dtype, device="cpu", pin_memory=True)
            torch.stack(part, out=pinned)
            with torch.cuda.stream(copies):
                stack = pinned.to(device, non_blocking=True)
            network.wait_stream(copies)
            stack.record_stream(network)
            yield stack.permute(0, 3, 1, 2) if is_permuted else stack


@cache
def _stream_of_copies(device: torch.device) -> torch.cuda.Stream:
    """The stream of copies of a device; a single one, since torch caches freed memory per stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
