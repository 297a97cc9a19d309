"""Features of one source: by all networks in one pass, on the CPU where a GPU has too little memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import TypeVar, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.errors import DataError, FeatureError, ResourceError, UsageError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.embed import embed_source
from genpr.features.extractor import DescribedExtractor, ExtractorInfo, FeatureExtractor, check_same_extractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, OpenedInput
from genpr.features.options import EmbedKeywords, EmbedOptions
from genpr.features.registry import (
    check_weights_used,
    dim_of,
    group_by_network,
    is_same_extractor,
    load_joint,
    open_family,
    weights_of,
)
from genpr.images.datasets import BatchSource
from genpr.images.item import known_length, printable
from genpr.images.shards import Shard, shard_of
from genpr.images.source import choose_rows, subset
from genpr.notices import Notice, collect_notices, emit_notice, notice
from genpr.runtime import cache_root, is_out_of_memory, resolve_device
from genpr.validation import check_features

ExtractorKey = str | FeatureExtractor
"""What identifies features: the canonical name of an extractor, or a custom extractor itself."""


@dataclass(frozen=True)
class Embedder:
    """Turns images into features, always with the same options; copies share the loaded networks."""

    options: EmbedOptions = field(default_factory=EmbedOptions)
    device: torch.device = field(init=False)
    _loaded: dict[tuple[str, ...], DescribedExtractor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", resolve_device(self.options.device))

    def with_options(self, **changes: Unpack[EmbedKeywords]) -> Embedder:
        """The same with other options, but on the same device and with the same networks."""
        return replace(self, options=replace(self.options, **changes))

    def on_cpu(self) -> Embedder:
        """The same on the CPU, with networks of its own."""
        return Embedder(replace(self.options, device="cpu"))

    def load(self, keys: Sequence[ExtractorKey]) -> DescribedExtractor:
        """The extractor with one key, or one that gives several layers of one network."""
        first = keys[0]
        if not isinstance(first, str):
            return wrap_extractor(first)
        names = cast("tuple[str, ...]", tuple(keys))
        if names not in self._loaded:
            weights = weights_of(names[0], self.options.weights)
            offline = self.options.offline
            self._loaded[names] = load_joint(names, weights=weights, device=self.device, offline=offline)
        return self._loaded[names]

    def embed(
        self, images: OpenedImages, role: str, groups: Sequence[Sequence[ExtractorKey]], limit: int | None
    ) -> dict[ExtractorKey, FeatureSet]:
        """The features of at most `limit` images by each key; those of a group share a network.

        Each image is decoded once. All networks are on the device at the same time, and batches of one size take turns.
        """
        options, opened, described = self.options, [], []
        source = images.source if limit is None else subset(images.source, limit, options.seed)
        for keys in groups:
            extractor = self.load(keys)
            parts: Sequence[ExtractorInfo] = getattr(extractor, "parts", ()) or (extractor.info,)
            cache, notices = self._open_cache(parts) if images.on_disk and options.cache else (None, [])
            if isinstance(keys[0], str) and open_family(keys[0]):
                given = weights_of(keys[0], options.weights)
                if given is None or Path(given).is_dir():
                    sha256 = parts[0].weights_sha256
                    notices.append(notice("weights-unpinned", extractor=keys[0], sha256=sha256))
            opened.append((extractor, cache))
            described.append((keys, parts, cache, notices))
        found = embed_source(
            source,
            opened,
            batch_size=options.batch_size,
            decode_policy=options.decoding,
            bad_images=options.bad_images,
            progress=None if options.progress is None else partial(options.progress, role),
        )
        sets: dict[ExtractorKey, FeatureSet] = {}
        for features, (keys, parts, cache, notices) in zip(found, described, strict=True):
            # Each rank opened the cache for itself.
            everywhere = notices_of_all_ranks(notices if cache is None else [*notices, *cache.notices])
            whole = replace(features, notices=(*everywhere, *getattr(images.source, "notices", ())))
            sets |= zip(keys, [whole] if len(parts) == 1 else whole.split(parts), strict=True)
        return sets

    def _open_cache(
        self, parts: Sequence[ExtractorInfo]
    ) -> tuple[FeatureCache | JoinedCache | None, list[Notice]]:
        """The cache of an extractor, of which `parts` are the layers; or None, and why."""
        for info in parts:
            if info.cache_key is None:
                reason = info.uncached_reason
                return None, [notice("extractor-not-cached", extractor=info.name, reason=reason)]
        cache_dir, decoding = self.options.cache_dir, self.options.decoding
        root = Path(cache_dir) if cache_dir else cache_root()
        try:
            caches = [FeatureCache(root, info, self.device.type, policy=decoding) for info in parts]
        except ResourceError as error:
            return None, [notice("cache-unusable", reason=error)]
        return (caches[0] if len(caches) == 1 else JoinedCache(caches)), []


def notices_of_all_ranks(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The notices of every rank, each once: rank 0 shows them all."""
    communicator = current_communicator()
    if not communicator.is_single_process:
        gathered = communicator.all_gather_object([asdict(item) for item in notices])
        notices = [Notice(**item) for each in gathered for item in each]
    return tuple(dict.fromkeys(notices))


_Found = TypeVar("_Found")


def with_cpu_fallback(
    embedder: Embedder, work: Callable[[Embedder], _Found], what: str, *, can_move: bool = True
) -> tuple[_Found, tuple[Notice, ...]]:
    """Run `work(embedder)`, and again on the CPU if a GPU that "auto" chose runs out of memory; with notices about memory.

    Ranks that share a score stay together: one that started again would leave the others waiting.
    """
    device = embedder.device
    may_move = can_move and embedder.options.device == "auto" and device.type != "cpu"
    with collect_notices() as notices:
        resolve_device(embedder.options.device)  # so that a result names the GPU that was not used
        try:
            return work(embedder), notices_of_all_ranks(notices)
        except Exception as error:
            if not (may_move and is_out_of_memory(error) and current_communicator().is_single_process):
                raise
        # The error is gone here, and with it the memory that the failed work held.
        torch.cuda.empty_cache()
        emit_notice("oom-cpu", device=device, what=what)
        return work(embedder.on_cpu()), tuple(dict.fromkeys(notices))


FROM_FILE = "<as in the feature file>"
"""Key of a feature file's own features, where no extractor was requested."""


class SourceFeatures:
    """The features of one source, such as the real images of a score.

    `limit` is that of a random subset, beside the embedder's own limit; `declared` is what features are, by the user's word,
    of a file that does not say it.
    """

    def __init__(
        self,
        opened: OpenedInput,
        role: str,
        embedder: Embedder,
        *,
        limit: int | None = None,
        declared: Collection[ExtractorKey] = (),
    ) -> None:
        self.opened = opened
        self.role = role
        asked = embedder.options.prepare
        if isinstance(opened, FeatureSet) and opened.statistics is None and asked is not None:
            _check_prepared(opened, asked)
        self._declared = declared
        self._embedder = embedder
        most = embedder.options.max_images
        self._limit = most if limit is None else limit if most is None else min(limit, most)
        self._known: dict[ExtractorKey, FeatureSet] = {}
        self._total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)

    def require(
        self, keys: Iterable[ExtractorKey], *, minimum: int, elsewhere: Iterable[ExtractorKey] = ()
    ) -> None:
        """Embed what is not known yet, by each network once, in one pass over the images.

        A weights file may also belong to an extractor that is needed `elsewhere`, of other sources only.
        """
        missing = list(filterfalse(self._known.__contains__, dict.fromkeys(keys)))
        if isinstance(self.opened, FeatureSet):
            for key in missing:
                self._known[key] = self._checked(self.opened, key)
        else:
            if FROM_FILE in missing:
                text = (
                    "the reference statistics do not say which extractor made them; name it with --extractor"
                )
                raise FeatureError(text, code="unlabeled-features", path=self.opened.source.name)
            if self._total is not None:
                self._check_number(self.opened.source.name, self._total, minimum)
            if (weights := self._embedder.options.weights) is not None:
                check_weights_used([*missing, *elsewhere], weights)
            if groups := group_by_network(missing):
                self._known |= self._embedded(groups)
        for key in missing:
            if self._known[key].statistics is None:
                self._check_number(self._known[key].source, len(self._known[key]), minimum)

    def _embedded(self, groups: Sequence[Sequence[ExtractorKey]]) -> dict[ExtractorKey, FeatureSet]:
        """The features by every key: by all networks at once, or one after another where memory is too small for that."""
        opened, together = self.opened, len(groups) > 1
        assert isinstance(opened, OpenedImages)
        is_one_shot = isinstance(opened.source, BatchSource) and opened.source.is_one_shot
        # Features of a CPU differ from those of a GPU in their last bits, so all images are embedded again.
        can_move = isinstance(groups[0][0], str) and not is_one_shot and not together
        work = partial(Embedder.embed, images=opened, role=self.role, groups=groups, limit=self._limit)
        try:
            sets, notices = with_cpu_fallback(
                self._embedder, work, f"for {self.role} images", can_move=can_move
            )
        except Exception as error:
            is_single = current_communicator().is_single_process
            if not together or is_one_shot or not (is_out_of_memory(error) and is_single):
                raise
        else:
            if notices:
                sets = {key: replace(each, notices=(*each.notices, *notices)) for key, each in sets.items()}
            return sets
        torch.cuda.empty_cache()  # here, where the error no longer holds memory
        return {key: each for group in groups for key, each in self._embedded([group]).items()}

    def __getitem__(self, key: ExtractorKey) -> FeatureSet:
        """The features by an extractor that was required."""
        return self._known[key]

    def cut(self, most: int) -> SourceFeatures:
        """The same source with at most `most` images: those that a limit of `most` would have chosen at once."""
        if all(len(features) <= most for features in self._known.values()):
            return self
        part = SourceFeatures(self.opened, self.role, self._embedder, limit=most, declared=self._declared)
        for key, features in self._known.items():
            part._known[key] = features.select(self._rows_of_limit(len(features), most))
        return part

    @property
    def n(self) -> int:
        """Images that were embedded."""
        return min(map(len, self._known.values()))

    def halves(self) -> tuple[SourceFeatures, SourceFeatures]:
        """Two random halves of the images, disjoint, by the embedder's seed; the first is not smaller."""
        opened, embedder = self.opened, self._embedder
        first, second = (
            SourceFeatures(opened, self.role, embedder, declared=self._declared) for _ in range(2)
        )
        for key, features in self._known.items():
            n, generator = len(features), torch.Generator().manual_seed(embedder.options.seed)
            order, count = torch.randperm(n, generator=generator), -(-n // 2)
            first._known[key] = features.select(order[:count].sort().values)
            second._known[key] = features.select(order[count:].sort().values)
        return first, second

    def _rows_of_limit(self, n: int, most: int) -> Tensor:
        """Which of n known rows a limit of `most` chooses out of the whole source."""
        total, seed = self._total, self._embedder.options.seed
        if total is None or n != min(total, self._limit or total):  # an iterator, or images were left out
            return torch.as_tensor(choose_rows(n, most, seed))
        positions = np.searchsorted(choose_rows(total, n, seed), choose_rows(total, most, seed))
        return torch.as_tensor(positions)

    def _checked(self, features: FeatureSet, key: ExtractorKey) -> FeatureSet:
        """Features from a file, if they are by `key`; what a file does not say, the user has to declare."""
        if features.statistics is not None:
            return features
        check_features(features.features, features.source)
        info = features.extractor
        if info is None:
            features = self._labeled(features, key)
        elif not isinstance(key, str):
            check_same_extractor("--extractor", extractor_info(key), features.source, info)
        elif key not in {FROM_FILE, info.name} and not is_same_extractor(info.name, key):
            if dim_of(key) is not None:
                text = f"{features.source} holds {info.name} features, but {key} features are needed; embed the images with that"
                raise FeatureError(text, code="other-extractor", path=features.source)
            # A custom extractor may have any name.
            check_same_extractor("--extractor", self._embedder.load([key]).info, features.source, info)
        if self._limit is None or self._limit >= len(features):
            return features
        rows = choose_rows(len(features), self._limit, self._embedder.options.seed)
        return features.select(torch.as_tensor(rows))

    def _labeled(self, features: FeatureSet, key: ExtractorKey) -> FeatureSet:
        dim, source = features.features.shape[1], features.source
        if len(set(self._declared)) > 1:
            text = f"{source} holds features, which are those of one extractor at most; a panel needs images"
            raise UsageError(text, code="already-features", path=source)
        if key == FROM_FILE or not isinstance(key, str):
            return features
        if key not in self._declared:
            text = f"{source} does not say what it holds; if these are {key} features, say so with --extractor {key}"
            raise FeatureError(text, code="unlabeled-features", path=source)
        if dim_of(key) not in {None, dim}:
            text = f"{source} has {dim} features per image, but {key} has {dim_of(key)}"
            raise FeatureError(text, code="feature-shape", path=source)
        return replace(features, extractor=ExtractorInfo(key, dim, "unknown", None, comparable=False))

    def _check_number(self, source: str, n: int, minimum: int) -> None:
        if n < minimum:
            advice = ", or choose a smaller k" * (minimum > 2)  # two are needed for a covariance
            text = f"{self.role} has {n} images in {source}, but at least {minimum} are needed; give more{advice}"
            raise DataError(text, code="too-few-images", path=source)


def _check_prepared(features: FeatureSet, asked: str) -> None:
    """Refuse features of images that were prepared in another way, or do not say how."""
    found = features.decoder.get("prepare", "none")
    if found != asked:
        source = printable(features.source)
        raise UsageError(
            f"{source} holds features of images with prepare = {found}, but {asked} is requested, and only images can be "
            "prepared; leave --prepare out, or give the images",
            code="features-prepared",
            path=features.source,
        )


def features_for_file(
    opened: OpenedInput, key: ExtractorKey | None, embedder: Embedder, shard: Shard | None = None
) -> FeatureSet:
    """The features of `opened` by `key` (None: what feature files are), of a shard after `max_images` are chosen."""
    if shard is None:
        whole = SourceFeatures(opened, "images", embedder)
        whole.require([key or FROM_FILE], minimum=1)
        return whole[key or FROM_FILE]
    if isinstance(opened, FeatureSet):
        text = f"{printable(opened.source)} already holds features; --shard divides images"
        raise UsageError(text, code="already-features", path=opened.source)
    most = embedder.options.max_images
    chosen = opened.source if most is None else subset(opened.source, most, embedder.options.seed)
    source, unlimited = shard_of(chosen, shard), embedder.with_options(max_images=None)
    part = SourceFeatures(OpenedImages(source, opened.on_disk), "images", unlimited)
    part.require([key or FROM_FILE], minimum=0)  # a shard of few images may be empty
    max_bad = embedder.options.max_bad if embedder.options.on_bad == "skip" else 0.0
    return replace(part[key or FROM_FILE], shard=source.info(max_bad=max_bad))
