"""Open one source, as images or features, and embed it by all networks in one pass.

If a GPU has too little memory, the work is repeated on the CPU.
"""

from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from genpr import __version__
from genpr.content_order import content_hash, random_halves
from genpr.distributed import current_communicator
from genpr.errors import DataError, FeatureError, ResourceError, UsageError, count_of
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.embed import embed_source
from genpr.features.extractor import DescribedExtractor, ExtractorInfo, FeatureExtractor, check_same_extractor
from genpr.features.feature_set import FeatureSet, converted_set, load_features, load_joined
from genpr.features.options import EmbedKeywords, EmbedOptions, shared_options
from genpr.features.registry import (
    check_weights_used,
    dim_of,
    group_by_network,
    is_same_extractor,
    load_joint,
    network_module,
    weights_of,
)
from genpr.features.statistics import ReferenceStatistics, holds_statistics, read_statistics
from genpr.images.arrays import is_image_array, peek_array
from genpr.images.datasets import BatchSource, CountedBatches
from genpr.images.folder import FileSource
from genpr.images.item import ImageSource, known_length, printable
from genpr.images.paths import expand
from genpr.images.policy import DEFAULTS, DecodePolicy
from genpr.images.shards import Shard, shard_of
from genpr.images.source import choose_rows, open_source, subset
from genpr.notices import Notice, collect_notices, emit_notice, notice
from genpr.runtime import cache_root, is_out_of_memory, resolve_device
from genpr.validation import check_features

ExtractorLike = str | FeatureExtractor
"""Identifies features: the canonical name of an extractor, or a custom extractor."""


@dataclass(frozen=True)
class OpenedImages:
    """Images that are listed but not read yet."""

    source: ImageSource
    on_disk: bool  # whether features are cached; arrays in memory are not


OpenedInput = OpenedImages | FeatureSet


def open_input(source: object, role: str, policy: DecodePolicy = DEFAULTS) -> OpenedInput:
    """Open `source` as images or features, reading as little as possible; `policy` declares which arrays are images.

    A 2-D array and a `.safetensors` file are features; a 4-D array of uint8 is images. If the `role` is "real",
    a file of mean and covariance without images gives a feature set without rows.
    """
    if isinstance(source, OpenedImages | FeatureSet):
        return source
    may_lack_rows = role == "real"
    if may_lack_rows and isinstance(source, ReferenceStatistics):
        return FeatureSet.without_rows(source)
    if isinstance(source, str | os.PathLike):
        text = os.fsdecode(source)
        if may_lack_rows and holds_statistics(Path(text)):
            return FeatureSet.without_rows(read_statistics(text))
        is_folder = os.path.isdir(text)  # noqa: PTH112 - a Path raises for names that are too long
        features = None if is_folder else _open_features(text, policy)
        if features is None:
            return OpenedImages(open_source(text, policy=policy), on_disk=True)
        if features.extractor is not None:
            return features
        unlabeled = notice("unlabeled-features", source=features.source)
        return replace(features, notices=(*features.notices, unlabeled))
    if isinstance(source, np.ndarray | Tensor) and not is_image_array(source.shape, source.dtype, policy):
        return converted_set(source, check_features(source, role), f"<{role} features>")
    images = open_source(source, name=f"<{role} images>", policy=policy)
    return OpenedImages(images, on_disk=isinstance(source, FileSource))


def _open_features(text: str, policy: DecodePolicy) -> FeatureSet | None:
    """The features in the file or files that a path or pattern names; None if it names images."""
    several = expand(text)
    if several is None:
        return load_features(Path(text)) if text and holds_features(Path(text), policy) else None
    are_features = [holds_features(path, policy) for path in several]
    if not any(are_features):
        return None
    if not all(are_features):
        other = several[are_features.index(False)]
        message = f"{printable(text)!r} matches feature files and others, such as {printable(str(other))}"
        raise UsageError(message, code="mixed-kinds", path=text)
    return load_joined(several, text)


def holds_features(path: Path, policy: DecodePolicy = DEFAULTS) -> bool:
    """Whether a file has features, by its suffix and array header."""
    if not os.path.isfile(path):  # noqa: PTH113 - a Path raises for names that are too long
        return False
    if path.suffix.lower() == ".safetensors":
        return True
    header = peek_array(path)
    return header is not None and not is_image_array(*header, policy)


def check_same_kind(real: OpenedInput, fake: OpenedInput) -> None:
    """Raise an error for features against images, and for features of different extractors."""
    for features, images in ((real, fake), (fake, real)):
        if not isinstance(features, FeatureSet) or features.statistics is not None:
            continue
        if isinstance(images, OpenedImages):
            text = f"{features.source} has features but {images.source.name} has images; embed the images with `genpr features`"
            raise FeatureError(text, code="features-against-images")
    if isinstance(real, FeatureSet) and isinstance(fake, FeatureSet) and real.extractor and fake.extractor:
        check_same_extractor(real.source, real.extractor, fake.source, fake.extractor)


def check_same_input(real: FeatureSet, fake: FeatureSet) -> None:
    """Raise an error if the sets differ in bands, or the weights of the extractor changed between them, as in a training loop."""
    ours, theirs = (each.decoder.get("n_bands", "3") for each in (real, fake))
    if real.decoder and fake.decoder and ours != theirs:
        text = f"the images of {printable(real.source)} have {ours} bands, but those of {printable(fake.source)} have {theirs}"
        raise FeatureError(f"{text}; choose bands that both have", code="other-bands")
    if real.extractor is None or fake.extractor is None:
        return
    hashes = {real.extractor.weights_sha256, fake.extractor.weights_sha256}
    if len(hashes - {None}) > 1:
        text = (
            f"the weights or buffers of extractor {real.extractor.name} changed after the reals were embedded; "
            "create a new Evaluator after training, and change none in forward"
        )
        raise FeatureError(text, code="other-extractor")


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
        options, opened, described, decoding = self.options, [], [], self.options.decoding
        if isinstance(images.source, BatchSource) and isinstance(images.source.batches, CountedBatches):
            decoding = replace(decoding, value_range=None, bands=None)  # a generator gives RGB
        source = images.source if limit is None else subset(images.source, limit, options.seed)
        for keys in groups:
            if options.bands == "all" and isinstance(keys[0], str) and network_module(keys[0]):
                raise UsageError(
                    "bands = 'all' needs a custom extractor; choose three bands", code="bad-option"
                )
            extractor = self.load(keys)
            parts: Sequence[ExtractorInfo] = getattr(extractor, "parts", ()) or (extractor.info,)
            cache, notices = self._open_cache(parts) if images.on_disk and options.cache else (None, [])
            if options.decoding.bands == "all":  # the cache does not record the number of bands
                cache = None
            if getattr(extractor, "has_unpinned_weights", False):
                sha256 = parts[0].weights_sha256
                notices.append(notice("weights-unpinned", extractor=keys[0], sha256=sha256))
            opened.append((extractor, cache))
            described.append((keys, parts, cache, notices))
        embedded = embed_source(
            source,
            opened,
            batch_size=options.batch_size,
            workers=options.workers,
            decode_policy=decoding,
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


@dataclass(frozen=True, eq=False)
class SourceFeatures(UserDict[ExtractorLike, FeatureSet]):
    """The features of one source by extractor, such as those of the real images of a score.

    `limit` is the number of images of a random subset.
    """

    data: dict[ExtractorLike, FeatureSet]
    opened: OpenedInput
    role: str
    limit: int | None
    seed: int

    @property
    def n(self) -> int:
        """Number of embedded images."""
        return min(map(len, self.values()))

    def limited_to(self, most: int) -> SourceFeatures:
        """The same source with at most `most` images: the subset that a limit of `most` would have chosen."""
        if all(len(features) <= most for features in self.values()):
            return self
        part = {key: each.select(self._rows_of_limit(len(each), most)) for key, each in self.items()}
        return replace(self, data=part, limit=most)

    def select(self, rows: Tensor, keys: Iterable[ExtractorLike]) -> SourceFeatures:
        """The images at the given rows only (ascending indices), with the features of the extractors `keys`."""
        return replace(self, data={key: self[key].select(rows) for key in keys})

    def halves(self) -> list[SourceFeatures]:
        """Two disjoint random halves by the content of the features of each extractor, of whole groups if there are any."""
        sets: list[dict[ExtractorLike, FeatureSet]] = [{}, {}]
        for key, features in self.items():
            for half, rows in zip(sets, random_halves(features.features, features.groups), strict=True):
                half[key] = features.select(rows)
        return [replace(self, data=half) for half in sets]

    def _rows_of_limit(self, n: int, most: int) -> Tensor:
        """The rows among n known ones that a limit of `most` would choose from the whole source."""
        opened = self.opened
        total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
        if total is None or n != min(total, self.limit or total):  # an iterator, or images were left out
            return torch.as_tensor(choose_rows(n, most, self.seed))
        positions = np.searchsorted(choose_rows(total, n, self.seed), choose_rows(total, most, self.seed))
        return torch.as_tensor(positions)


def source_features(
    opened: OpenedInput,
    role: str,
    embedder: Embedder,
    keys: Iterable[ExtractorLike],
    *,
    minimum: int,
    limit: int | None = None,
    declared: Collection[ExtractorLike] = (),
    elsewhere: Iterable[ExtractorLike] = (),
) -> SourceFeatures:
    """The features of a source by the extractors `keys`, each network once, in one pass over the images.

    `minimum` is the least number of images, and `limit` the size of a random subset, in addition to the limit of the embedder.
    `declared` are the extractors that the user declares for feature files without this record. A weights file may also belong
    to an extractor in `elsewhere`, which only other sources need.
    """
    options, wanted = embedder.options, list(dict.fromkeys(keys))
    if options.max_images is not None:
        limit = options.max_images if limit is None else min(limit, options.max_images)
    check_options_of_ranks(options)
    if isinstance(opened, FeatureSet):
        _check_features_of_ranks(opened)
        sets = {key: _checked(opened, key, embedder, limit, declared) for key in wanted}
    else:
        if FROM_FILE in wanted:
            text = "the reference statistics do not name their extractor; declare it with --extractor"
            raise FeatureError(text, code="unlabeled-features", path=opened.source.name)
        check_known_number(opened, role, minimum)
        if options.weights is not None:
            check_weights_used([*wanted, *elsewhere], options.weights)
        sets = _embedded(embedder, opened, role, group_by_network(wanted), limit) if wanted else {}
    for each in sets.values():
        if each.statistics is None:
            _check_number(role, each.source, len(each), minimum)
    return SourceFeatures(sets, opened, role, limit, options.seed)


def _embedded(
    embedder: Embedder,
    opened: OpenedImages,
    role: str,
    groups: Sequence[Sequence[ExtractorLike]],
    limit: int | None,
) -> dict[ExtractorLike, FeatureSet]:
    """The features by key: of all networks at once, or one after another if memory is insufficient."""
    together = len(groups) > 1
    is_one_shot = isinstance(opened.source, BatchSource) and opened.source.is_one_shot
    # Features from CPU and GPU differ in their last bits, so all images are embedded again.
    can_move = isinstance(groups[0][0], str) and not is_one_shot and not together
    work = partial(Embedder.embed, images=opened, role=role, groups=groups, limit=limit)
    try:
        sets, notices = with_cpu_fallback(embedder, work, f"for {role} images", can_move=can_move)
    except Exception as error:
        is_single = current_communicator().is_single_process
        if not together or is_one_shot or not (is_out_of_memory(error) and is_single):
            raise
    else:
        return {key: replace(each, notices=(*each.notices, *notices)) for key, each in sets.items()}
    torch.cuda.empty_cache()  # the error no longer references memory here
    one_by_one = (_embedded(embedder, opened, role, [group], limit) for group in groups)
    return {key: each for sets in one_by_one for key, each in sets.items()}


def _checked(
    features: FeatureSet,
    key: ExtractorLike,
    embedder: Embedder,
    limit: int | None,
    declared: Collection[ExtractorLike],
) -> FeatureSet:
    """Features from a file, checked against `key`; the user must declare what the file does not record."""
    if features.statistics is not None:
        return features
    options, info = embedder.options, features.extractor
    for name, value in {"prepare": options.prepare, **options.decoding.choices}.items():
        if value is not None and (recorded := features.decoder.get(name, "none")) != value:
            raise UsageError(
                f"{printable(features.source)} has features of images with {name} = {recorded}, but {value} is requested, which "
                f"needs images; leave --{name.replace('_', '-')} out, or give the images, as arrays of at least 3 dimensions",
                code="features-prepared",
                path=features.source,
            )
    check_features(features.features, features.source)
    if info is None:
        features = _labeled(features, key, declared)
    elif not isinstance(key, str):
        check_same_extractor("--extractor", extractor_info(key), features.source, info)
    elif key not in {FROM_FILE, info.name} and not is_same_extractor(info.name, key):
        if dim_of(key) is not None:
            text = f"{features.source} has {info.name} features, but {key} features are needed; embed the images with {key}"
            raise FeatureError(text, code="other-extractor", path=features.source)
        # A custom extractor may have any name.
        check_same_extractor("--extractor", embedder.load([key]).info, features.source, info)
    if limit is None or limit >= len(features):
        return features
    return features.select(torch.as_tensor(choose_rows(len(features), limit, options.seed)))


def _labeled(features: FeatureSet, key: ExtractorLike, declared: Collection[ExtractorLike]) -> FeatureSet:
    dim, source = features.features.shape[1], features.source
    if len(set(declared)) > 1:
        text = f"{source} has features of a single extractor, but a panel needs images"
        raise UsageError(text, code="already-features", path=source)
    if key == FROM_FILE or not isinstance(key, str):
        return features
    if key not in declared:
        text = f"{source} does not name its extractor; if it has {key} features, declare them with --extractor {key}"
        raise FeatureError(text, code="unlabeled-features", path=source)
    if dim_of(key) not in {None, dim}:
        text = f"{source} has {dim} features per image, but {key} has {dim_of(key)}"
        raise FeatureError(text, code="feature-shape", path=source)
    return replace(features, extractor=ExtractorInfo(key, dim, "unknown", None, comparable=False))


def check_known_number(opened: OpenedInput, role: str, minimum: int) -> None:
    """Raise an error for a source of images that is known to have fewer than `minimum`, before any is embedded."""
    if isinstance(opened, OpenedImages) and (total := known_length(opened.source)) is not None:
        _check_number(role, opened.source.name, total, minimum)


def _check_number(role: str, source: str, n: int, minimum: int) -> None:
    if n < minimum:
        advice = ", or choose a smaller k" * (minimum > 2)  # a covariance needs two images
        text = f"{role} ({source}) has {count_of(n, 'image')}, but at least {minimum} are needed; use more images{advice}"
        raise DataError(text, code="too-few-images", path=source)


def _check_features_of_ranks(features: FeatureSet) -> None:
    """Raise an error if other ranks have other features or statistics ("ranks-differ")."""
    communicator, statistics = current_communicator(), features.statistics
    if not communicator.is_single_process:
        own = {"features": content_hash(features.features), "statistics": statistics and statistics.content}
        advice = f"{printable(features.source)} must have the same features on all ranks"
        communicator.check_same(own, "features", advice, FeatureError)


def features_for_file(
    opened: OpenedInput, key: ExtractorLike | None, embedder: Embedder, shard: Shard | None = None
) -> FeatureSet:
    """The features of `opened` by `key` (None: those of a feature file), of a shard of the `max_images` chosen images."""
    if shard is None:
        return source_features(opened, "images", embedder, [key or FROM_FILE], minimum=1)[key or FROM_FILE]
    if isinstance(opened, FeatureSet):
        text = f"{printable(opened.source)} already has features; --shard needs images"
        raise UsageError(text, code="already-features", path=opened.source)
    most = embedder.options.max_images
    chosen = opened.source if most is None else subset(opened.source, most, embedder.options.seed)
    source, unlimited = shard_of(chosen, shard), embedder.with_options(max_images=None)
    images, keys = OpenedImages(source, opened.on_disk), [key or FROM_FILE]
    part = source_features(images, "images", unlimited, keys, minimum=0)  # a shard of few images may be empty
    max_bad = embedder.options.max_bad if embedder.options.on_bad == "skip" else 0.0
    return replace(part[key or FROM_FILE], shard=source.info(max_bad=max_bad))
