"""Features of one source: embedded once per network, on the CPU where a GPU has too little memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, Unpack

import numpy as np
import torch
from torch import Tensor

from genpr.distributed import current_communicator
from genpr.errors import DataError, FeatureError, ResourceError, UsageError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import adopt, describe
from genpr.features.embed import embed_source
from genpr.features.extractor import ExtractorInfo, FeatureExtractor, check_same_extractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, OpenedSide, is_one_shot, refuse_one_shot
from genpr.features.options import EmbedKeywords, EmbedOptions, StageProgress
from genpr.features.registry import (
    check_weights_used,
    dim_of,
    group_by_network,
    is_same_extractor,
    load_joint,
    members_of,
    weights_of,
)
from genpr.features.weights.verify import records
from genpr.images.item import known_length, printable
from genpr.images.policy import DecodePolicy
from genpr.images.shards import Share, shard_of
from genpr.images.source import choose_rows, subset
from genpr.notices import Notice, notice
from genpr.runtime import cache_root, resolve_device, with_cpu_fallback
from genpr.validation import check_features

Space = str | FeatureExtractor
"""A space of features: the canonical name of an extractor, or an extractor of the user's own."""


@dataclass(frozen=True)
class Embedder:
    """Turns images into features, always with the same options; copies share the loaded networks.

    Attributes:
        options: How.
        device: Where, as it was found on this machine.
    """

    options: EmbedOptions = field(default_factory=EmbedOptions)
    device: torch.device = field(init=False)
    _loaded: dict[tuple[str, ...], FeatureExtractor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", resolve_device(self.options.device))

    def with_options(self, **changes: Unpack[EmbedKeywords]) -> Embedder:
        """The same with other options, but on the same device and with the same networks."""
        return replace(self, options=replace(self.options, **changes))

    def on_cpu(self) -> Embedder:
        """The same on the CPU, with networks of its own."""
        return Embedder(replace(self.options, device="cpu"))

    @property
    def on(self) -> str | torch.device:
        """The device that was requested."""
        return self.options.device

    @property
    def seed(self) -> int:
        """Of everything that is random."""
        return self.options.seed

    @property
    def max_images(self) -> int | None:
        """Images of each source that are used at most."""
        return self.options.max_images

    @property
    def progress(self) -> StageProgress | None:
        """What is called as work proceeds."""
        return self.options.progress

    @property
    def decoding(self) -> DecodePolicy:
        """How images are decoded."""
        return self.options.decoding

    def load(self, spaces: Sequence[Space]) -> FeatureExtractor:
        """The extractor of one space, or of several layers of one network."""
        first = spaces[0]
        if not isinstance(first, str):
            return adopt(first)
        names = tuple(space for space in spaces if isinstance(space, str))
        if names not in self._loaded:
            self._loaded[names] = load_joint(
                names,
                weights=weights_of(names[0], self.options.weights),
                device=self.device,
                offline=self.options.offline,
            )
        return self._loaded[names]

    def embed(
        self, side: OpenedImages, role: str, spaces: Sequence[Space], limit: int | None
    ) -> list[FeatureSet]:
        """The features of `side` in each of `spaces`, which share a network; of at most `limit` images."""
        source = side.source if limit is None else subset(side.source, limit, self.seed)
        extractor = self.load(spaces)
        parts: Sequence[ExtractorInfo] = getattr(extractor, "parts", (describe(extractor),))
        cache, notices = self._open_cache(parts) if side.on_disk else (None, [])
        notices += _notices_of_weights(parts)
        report = None if self.progress is None else partial(self.progress, role)
        features = embed_source(
            source,
            extractor,
            batch_size=self.options.batch_size,
            cache=cache,
            decode_policy=self.decoding,
            bad_images=self.options.bad_images,
            progress=report,
        )
        if cache is not None:
            notices += cache.notices
        told = told_by_ranks(notices)  # each has opened the cache for itself
        features = replace(features, notices=(*told, *getattr(side.source, "notices", ())))
        return [features] if len(parts) == 1 else features.split(parts)

    def _open_cache(
        self, parts: Sequence[ExtractorInfo]
    ) -> tuple[FeatureCache | JoinedCache | None, list[Notice]]:
        if not self.options.cache:
            return None, []
        for info in parts:
            if info.cache_key is None:
                return None, [
                    notice("extractor-not-cached", extractor=info.name, reason=info.uncached_reason)
                ]
        cache_dir = self.options.cache_dir
        root = Path(cache_dir) if cache_dir else cache_root()
        try:
            caches = [FeatureCache(root, info, self.device.type, policy=self.decoding) for info in parts]
        except ResourceError as error:
            return None, [notice("cache-unusable", reason=error)]
        return (caches[0] if len(caches) == 1 else JoinedCache(caches, [info.dim for info in parts])), []


def _notices_of_weights(parts: Iterable[ExtractorInfo]) -> list[Notice]:
    """Which weights were not published with a sha256."""
    digests = {info.weights_sha256 for info in parts} - {None}
    found = [record for record in records() if record.sha256 in digests] if digests else []
    return [notice("weights-first-use", file=record.name, date=record.date) for record in found]


def told_by_ranks(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The notices of every rank, each once: rank 0 shows them all."""
    told = current_communicator().all_gather_object([asdict(item) for item in notices])
    return tuple(dict.fromkeys(Notice(**item) for each in told for item in each))


_Found = TypeVar("_Found")


def going_on(
    embedder: Embedder, work: Callable[[Embedder], _Found], what: str, *, can_move: bool = True
) -> tuple[_Found, tuple[Notice, ...]]:
    """`with_cpu_fallback` for work that takes an embedder; the CPU is used only where "auto" chose a GPU.

    Ranks that share a score stay together: one that started again would leave the others waiting.
    """
    first = embedder.device

    def run(device: torch.device) -> _Found:
        return work(embedder if device == first else embedder.on_cpu())

    may_move = can_move and embedder.on == "auto" and current_communicator().is_single_process
    found, notices = with_cpu_fallback(first, run, what, can_move=may_move)
    return found, told_by_ranks(notices)


def embed_patiently(
    embedder: Embedder, side: OpenedImages, role: str, spaces: Sequence[Space], limit: int | None
) -> list[FeatureSet]:
    """As `Embedder.embed`, and the features say what was done about memory.

    Those of a CPU differ from those of a GPU in their last bits, so all images of the side are embedded anew there.
    """

    def embedded(where: Embedder) -> list[FeatureSet]:
        return where.embed(side, role, spaces, limit)

    # An object of the user's is where the user put it.
    can_move = all(isinstance(space, str) for space in spaces) and not is_one_shot(side.source)
    sets, told = going_on(embedder, embedded, f"for {role} images", can_move=can_move)
    return [replace(features, notices=(*features.notices, *told)) for features in sets]


OWN = "<as in the feature file>"
"""The space of a feature file for which no extractor was asked for."""


class SideFeatures:
    """The features of one side.

    Args:
        side: The opened source.
        role: "real" or "fake", for messages and progress.
        embedder: How images become features.
        limit: Use a random subset of at most so many images, beside the embedder's own limit.
        own: What the user says that features are which do not say it themselves.
    """

    def __init__(
        self,
        side: OpenedSide,
        role: str,
        embedder: Embedder,
        *,
        limit: int | None = None,
        own: Collection[Space] = (),
    ) -> None:
        self.side = side
        self.role = role
        self._own = own
        self._embedder = embedder
        limits = [number for number in (limit, embedder.max_images) if number is not None]
        self._limit = min(limits, default=None)
        self._known: dict[Space, FeatureSet] = {}
        self._total = len(side) if isinstance(side, FeatureSet) else known_length(side.source)

    def require(self, spaces: Iterable[Space], *, minimum: int, for_metrics: Iterable[Space] = ()) -> None:
        """Embed what is not known yet, each network once.

        Args:
            spaces: What is needed.
            minimum: Of images.
            for_metrics: What the metrics need alone, were there no control; nothing for what has none.

        Raises:
            UsageError: Images that come once are needed for several networks ("one-shot").
            DataError: Too few or unusable images, or a feature file of another extractor.
            ResourceError: Weights, device or memory are missing.
        """
        missing = [space for space in dict.fromkeys(spaces) if space not in self._known]
        if isinstance(self.side, FeatureSet):
            self._known.update({space: self._checked(self.side, space) for space in missing})
        else:
            if self._total is not None and self._total < minimum:
                raise self._too_few(self.side.source.name, self._total, minimum)
            check_weights_used(
                [space for space in missing if isinstance(space, str)], self._embedder.options.weights
            )
            groups = _groups(missing)
            if len(groups) > 1:
                fewer = _groups(list(dict.fromkeys(for_metrics)))
                refuse_one_shot(self.side.source, is_for_control=len(fewer) == 1)
            for group in groups:
                sets = embed_patiently(self._embedder, self.side, self.role, group, self._limit)
                self._known.update(zip(group, sets, strict=True))
        for space in missing:
            if len(self._known[space]) < minimum:
                raise self._too_few(self._known[space].source, len(self._known[space]), minimum)

    def __getitem__(self, space: Space) -> FeatureSet:
        """The features in a space that was required."""
        return self._known[space]

    def cut(self, most: int | None) -> SideFeatures:
        """The same side with at most `most` images: those that a limit of `most` would have chosen at once."""
        if most is None or all(len(features) <= most for features in self._known.values()):
            return self
        part = SideFeatures(self.side, self.role, self._embedder, limit=most, own=self._own)
        part._known = {
            space: features.select(self._rows_of_limit(len(features), most))
            for space, features in self._known.items()
        }
        return part

    @property
    def n(self) -> int:
        """Images that were embedded."""
        return min(len(features) for features in self._known.values())

    def halves(self) -> tuple[SideFeatures, SideFeatures]:
        """Two random halves of the images, disjoint, by the embedder's seed; the first is not smaller."""
        sizes, seed = {len(features) for features in self._known.values()}, self._embedder.seed
        order = {n: torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for n in sizes}
        return (
            self._part(lambda n: order[n][: -(-n // 2)].sort().values),
            self._part(lambda n: order[n][-(-n // 2) :].sort().values),
        )

    def _part(self, rows: Callable[[int], Tensor]) -> SideFeatures:
        """Of n images, those that `rows` of n names."""
        part = SideFeatures(self.side, self.role, self._embedder, own=self._own)
        part._known = {space: features.select(rows(len(features))) for space, features in self._known.items()}
        return part

    def _rows_of_limit(self, n: int, most: int) -> Tensor:
        """Which of n known rows a limit of `most` chooses out of the whole source."""
        total, seed = self._total, self._embedder.seed
        if total is None or n != min(total, self._limit or total):  # an iterator, or images were left out
            return torch.as_tensor(choose_rows(n, most, seed))
        positions = np.searchsorted(choose_rows(total, n, seed), choose_rows(total, most, seed))
        return torch.as_tensor(positions)

    def _checked(self, features: FeatureSet, space: Space) -> FeatureSet:
        """A feature file, if it is of `space`; one that does not say what it holds is taken at the user's word."""
        check_features(features.features, features.source)
        if features.extractor is None:
            features = self._labelled(features, space)
        elif isinstance(space, str):
            self._check_name(features, features.extractor, space)
        else:
            check_same_extractor("--extractor", describe(adopt(space)), features.source, features.extractor)
        if self._limit is None or self._limit >= len(features):
            return features
        return features.select(torch.as_tensor(choose_rows(len(features), self._limit, self._embedder.seed)))

    def _check_name(self, features: FeatureSet, info: ExtractorInfo, space: str) -> None:
        if space in {OWN, info.name} or is_same_extractor(info.name, space):
            return
        if dim_of(space) is None:  # one of the user's own may call itself as it likes
            check_same_extractor("--extractor", describe(self._embedder.load([space])), features.source, info)
        else:
            raise FeatureError(
                f"{features.source} holds {info.name} features, but {space} features are needed; embed the images with "
                f"that extractor (genpr features IMAGES OUT.safetensors --extractor {space})",
                code="other-extractor",
                path=features.source,
            )

    def _labelled(self, features: FeatureSet, space: Space) -> FeatureSet:
        if space == OWN or not isinstance(space, str):
            return features
        if space not in self._own:
            raise FeatureError(
                f"{features.source} does not say what it holds, but {space} features are needed; if that is what they "
                f"are, say so with --extractor {space}",
                code="unlabelled-features",
                path=features.source,
            )
        dim, members = features.features.shape[1], members_of(space)
        known = dim_of(space)
        if known is not None and known != dim:
            raise FeatureError(
                f"{features.source} has {dim} features per image, but {space} has {known}",
                code="feature-shape",
                path=features.source,
            )
        info = ExtractorInfo(space, dim, "unknown", None, comparable=False, members=members)
        return replace(features, extractor=info)

    def _too_few(self, source: str, n: int, minimum: int) -> DataError:
        return DataError(
            f"{self.role} has {n} images in {source}, but at least {minimum} are needed (k + 1 of each side where k "
            "neighbours are counted); give more images, or choose a smaller k or other metrics",
            code="too-few-images",
            path=source,
        )


def _groups(spaces: Sequence[Space]) -> list[tuple[Space, ...]]:
    """What one pass through one network gives."""
    names = [space for space in spaces if isinstance(space, str)]
    own: list[tuple[Space, ...]] = [(space,) for space in spaces if not isinstance(space, str)]
    return [*own, *group_by_network(names)]


def features_for_file(
    side: OpenedSide, space: Space | None, embedder: Embedder, share: Share | None = None
) -> FeatureSet:
    """The features of `side` in `space`.

    Args:
        side: Images, or feature files that were joined.
        space: Which; None takes what feature files are.
        embedder: How images become features, and of how many. That many are chosen first, and then divided.
        share: Embed this share only; the limit of unusable images is one of all images all the same.

    Raises:
        UsageError: `share` is asked of features ("already-features"), or of images that cannot be counted before they are
            read ("unknown-length").
        DataError: There are no or unusable images, or the features are of another extractor.
        ResourceError: Weights, device or memory are missing.
    """
    if share is None:
        whole = SideFeatures(side, "images", embedder)
        whole.require([space or OWN], minimum=1)
        return whole[space or OWN]
    if isinstance(side, FeatureSet):
        raise UsageError(
            f"{printable(side.source)} already holds features; --shard divides images",
            code="already-features",
            path=side.source,
        )
    most = embedder.max_images
    source = shard_of(side.source if most is None else subset(side.source, most, embedder.seed), share)
    part = SideFeatures(OpenedImages(source, side.on_disk), "images", embedder.with_options(max_images=None))
    part.require([space or OWN], minimum=0)  # a share of few images may be empty
    max_bad = embedder.options.max_bad if embedder.options.on_bad == "skip" else 0.0
    return replace(part[space or OWN], shard=source.place(max_bad=max_bad))
