"""Features of one source by all networks in one pass, with a fallback to the CPU if a GPU has too little memory."""

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

from genpr import __version__
from genpr.content_order import content_hash, random_order
from genpr.distributed import current_communicator
from genpr.errors import DataError, FeatureError, ResourceError, UsageError, count_of
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.embed import embed_source
from genpr.features.extractor import DescribedExtractor, ExtractorInfo, FeatureExtractor, check_same_extractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, OpenedInput
from genpr.features.options import EmbedKeywords, EmbedOptions, shared_options
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

ExtractorLike = str | FeatureExtractor
"""Identifies features: the canonical name of an extractor, or a custom extractor."""


@dataclass(frozen=True)
class Embedder:
    """Turns images into features with fixed options; copies share the loaded networks."""

    options: EmbedOptions = field(default_factory=EmbedOptions)
    device: torch.device = field(init=False)
    _loaded: dict[tuple[str, ...], DescribedExtractor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", resolve_device(self.options.device))

    def with_options(self, **changes: Unpack[EmbedKeywords]) -> Embedder:
        """A copy with other options, on the same device and with the same networks."""
        return replace(self, options=replace(self.options, **changes))

    def on_cpu(self) -> Embedder:
        """An embedder with the same options on the CPU, which loads its networks again."""
        return Embedder(replace(self.options, device="cpu"))

    def load(self, keys: Sequence[ExtractorLike]) -> DescribedExtractor:
        """The extractor of one key, or of several layers of one network."""
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
        self, images: OpenedImages, role: str, groups: Sequence[Sequence[ExtractorLike]], limit: int | None
    ) -> dict[ExtractorLike, FeatureSet]:
        """The features of at most `limit` images by each key; those of a group share a network.

        Each image is decoded once. All networks are on the device at the same time, and their batches take turns.
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
        embedded = embed_source(
            source,
            opened,
            batch_size=options.batch_size,
            decode_policy=options.decoding,
            bad_images=options.bad_images,
            progress=None if options.progress is None else partial(options.progress, role),
        )
        sets: dict[ExtractorLike, FeatureSet] = {}
        for features, (keys, parts, cache, notices) in zip(embedded, described, strict=True):
            # Each rank has opened the cache.
            everywhere = notices_of_all_ranks(notices if cache is None else [*notices, *cache.notices])
            whole = replace(features, notices=(*everywhere, *getattr(images.source, "notices", ())))
            sets |= zip(keys, [whole] if len(parts) == 1 else whole.split(parts), strict=True)
        return sets

    def _open_cache(
        self, parts: Sequence[ExtractorInfo]
    ) -> tuple[FeatureCache | JoinedCache | None, list[Notice]]:
        """The cache of an extractor with the layers `parts`, or None with a notice."""
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
    """The notices of all ranks without duplicates, which rank 0 shows."""
    communicator = current_communicator()
    if not communicator.is_single_process:
        gathered = communicator.all_gather_object([asdict(item) for item in notices], "notices")
        notices = [Notice(**item) for each in gathered for item in each]
    return tuple(dict.fromkeys(notices))


def check_options_of_ranks(options: EmbedOptions) -> None:
    """Raise an error if other ranks have other options or another version of genpr ("ranks-differ")."""
    if not current_communicator().is_single_process:
        current_communicator().check_same({"genpr": __version__, **shared_options(options)}, "options")


_Found = TypeVar("_Found")


def with_cpu_fallback(
    embedder: Embedder, work: Callable[[Embedder], _Found], what: str, *, can_move: bool = True
) -> tuple[_Found, tuple[Notice, ...]]:
    """Run `work(embedder)`, and again on the CPU if a GPU chosen by "auto" runs out of memory; return notices about memory.

    There is no fallback with several ranks, since the other ranks would wait for the one that starts again.
    """
    device = embedder.device
    may_move = can_move and embedder.options.device == "auto" and device.type != "cpu"
    with collect_notices() as notices:
        resolve_device(embedder.options.device)  # for the notice about an unusable GPU
        try:
            return work(embedder), notices_of_all_ranks(notices)
        except Exception as error:
            if not (may_move and is_out_of_memory(error) and current_communicator().is_single_process):
                raise
        # The error no longer references the memory of the failed work here.
        torch.cuda.empty_cache()
        emit_notice("oom-cpu", device=device, what=what)
        return work(embedder.on_cpu()), tuple(dict.fromkeys(notices))


FROM_FILE = "<as in the feature file>"
"""Key of the features of a feature file without a requested extractor."""


class SourceFeatures:
    """The features of one source, such as the real images of a score.

    `limit` is the size of a random subset, in addition to the limit of the embedder. `declared` are the extractors that the
    user declares for feature files without this record.
    """

    def __init__(
        self,
        opened: OpenedInput,
        role: str,
        embedder: Embedder,
        *,
        limit: int | None = None,
        declared: Collection[ExtractorLike] = (),
    ) -> None:
        self.opened = opened
        self.role = role
        prepare = embedder.options.prepare
        if isinstance(opened, FeatureSet) and opened.statistics is None and prepare is not None:
            _check_prepared(opened, prepare)
        self._declared = declared
        self._embedder = embedder
        most = embedder.options.max_images
        self._limit = most if limit is None else limit if most is None else min(limit, most)
        self._known: dict[ExtractorLike, FeatureSet] = {}
        self._total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)

    def require(
        self, keys: Iterable[ExtractorLike], *, minimum: int, elsewhere: Iterable[ExtractorLike] = ()
    ) -> None:
        """Embed missing features, by each network once, in one pass over the images.

        A weights file may also belong to an extractor in `elsewhere`, which only other sources need.
        """
        check_options_of_ranks(self._embedder.options)
        missing = list(filterfalse(self._known.__contains__, dict.fromkeys(keys)))
        if isinstance(self.opened, FeatureSet):
            _check_features_of_ranks(self.opened)
            for key in missing:
                self._known[key] = self._checked(self.opened, key)
        else:
            if FROM_FILE in missing:
                text = "the reference statistics do not name their extractor; declare it with --extractor"
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

    def _embedded(self, groups: Sequence[Sequence[ExtractorLike]]) -> dict[ExtractorLike, FeatureSet]:
        """The features by key: of all networks at once, or one after another if memory is insufficient."""
        opened, together = self.opened, len(groups) > 1
        assert isinstance(opened, OpenedImages)
        is_one_shot = isinstance(opened.source, BatchSource) and opened.source.is_one_shot
        # Features from CPU and GPU differ in their last bits, so all images are embedded again.
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
        torch.cuda.empty_cache()  # the error no longer references memory here
        return {key: each for group in groups for key, each in self._embedded([group]).items()}

    def __getitem__(self, key: ExtractorLike) -> FeatureSet:
        """The features of an extractor that was required."""
        return self._known[key]

    def limited_to(self, most: int) -> SourceFeatures:
        """The same source with at most `most` images: the subset that a limit of `most` would have chosen."""
        if all(len(features) <= most for features in self._known.values()):
            return self
        part = SourceFeatures(self.opened, self.role, self._embedder, limit=most, declared=self._declared)
        for key, features in self._known.items():
            part._known[key] = features.select(self._rows_of_limit(len(features), most))
        return part

    @property
    def n(self) -> int:
        """Number of embedded images."""
        return min(map(len, self._known.values()))

    def halves(self) -> tuple[SourceFeatures, SourceFeatures]:
        """Two disjoint random halves by the content of the features of each extractor; the first has the extra image."""
        first, second = (
            SourceFeatures(self.opened, self.role, self._embedder, declared=self._declared) for _ in range(2)
        )
        for key, features in self._known.items():
            rows = torch.tensor_split(random_order(features.features), 2)
            first._known[key], second._known[key] = (features.select(half.sort().values) for half in rows)
        return first, second

    def _rows_of_limit(self, n: int, most: int) -> Tensor:
        """The rows among n known ones that a limit of `most` would choose from the whole source."""
        total, seed = self._total, self._embedder.options.seed
        if total is None or n != min(total, self._limit or total):  # an iterator, or images were left out
            return torch.as_tensor(choose_rows(n, most, seed))
        positions = np.searchsorted(choose_rows(total, n, seed), choose_rows(total, most, seed))
        return torch.as_tensor(positions)

    def _checked(self, features: FeatureSet, key: ExtractorLike) -> FeatureSet:
        """Features from a file, checked against `key`; the user must declare what the file does not record."""
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
                text = f"{features.source} has {info.name} features, but {key} features are needed; embed the images with {key}"
                raise FeatureError(text, code="other-extractor", path=features.source)
            # A custom extractor may have any name.
            check_same_extractor("--extractor", self._embedder.load([key]).info, features.source, info)
        if self._limit is None or self._limit >= len(features):
            return features
        rows = choose_rows(len(features), self._limit, self._embedder.options.seed)
        return features.select(torch.as_tensor(rows))

    def _labeled(self, features: FeatureSet, key: ExtractorLike) -> FeatureSet:
        dim, source = features.features.shape[1], features.source
        if len(set(self._declared)) > 1:
            text = f"{source} has features of a single extractor, but a panel needs images"
            raise UsageError(text, code="already-features", path=source)
        if key == FROM_FILE or not isinstance(key, str):
            return features
        if key not in self._declared:
            text = f"{source} does not name its extractor; if it has {key} features, declare them with --extractor {key}"
            raise FeatureError(text, code="unlabeled-features", path=source)
        if dim_of(key) not in {None, dim}:
            text = f"{source} has {dim} features per image, but {key} has {dim_of(key)}"
            raise FeatureError(text, code="feature-shape", path=source)
        return replace(features, extractor=ExtractorInfo(key, dim, "unknown", None, comparable=False))

    def _check_number(self, source: str, n: int, minimum: int) -> None:
        if n < minimum:
            advice = ", or choose a smaller k" * (minimum > 2)  # a covariance needs two images
            text = f"{self.role} ({source}) has {count_of(n, 'image')}, but at least {minimum} are needed; use more images{advice}"
            raise DataError(text, code="too-few-images", path=source)


def _check_features_of_ranks(features: FeatureSet) -> None:
    """Raise an error if other ranks have other features or statistics ("ranks-differ")."""
    communicator, statistics = current_communicator(), features.statistics
    if not communicator.is_single_process:
        own = {"features": content_hash(features.features), "statistics": statistics and statistics.content}
        advice = f"{printable(features.source)} must have the same features on all ranks"
        communicator.check_same(own, "features", advice, FeatureError)


def _check_prepared(features: FeatureSet, prepare: str) -> None:
    """Raise an error for features of images with another or an unknown preparation."""
    recorded = features.decoder.get("prepare", "none")
    if recorded != prepare:
        source = printable(features.source)
        raise UsageError(
            f"{source} has features of images with prepare = {recorded}, but {prepare} is requested, which needs images; leave "
            "--prepare out, or give the images",
            code="features-prepared",
            path=features.source,
        )


def features_for_file(
    opened: OpenedInput, key: ExtractorLike | None, embedder: Embedder, shard: Shard | None = None
) -> FeatureSet:
    """The features of `opened` by `key` (None: those of a feature file), of a shard of the `max_images` chosen images."""
    if shard is None:
        whole = SourceFeatures(opened, "images", embedder)
        whole.require([key or FROM_FILE], minimum=1)
        return whole[key or FROM_FILE]
    if isinstance(opened, FeatureSet):
        text = f"{printable(opened.source)} already has features; --shard needs images"
        raise UsageError(text, code="already-features", path=opened.source)
    most = embedder.options.max_images
    chosen = opened.source if most is None else subset(opened.source, most, embedder.options.seed)
    source, unlimited = shard_of(chosen, shard), embedder.with_options(max_images=None)
    part = SourceFeatures(OpenedImages(source, opened.on_disk), "images", unlimited)
    part.require([key or FROM_FILE], minimum=0)  # a shard of few images may be empty
    max_bad = embedder.options.max_bad if embedder.options.on_bad == "skip" else 0.0
    return replace(part[key or FROM_FILE], shard=source.info(max_bad=max_bad))
