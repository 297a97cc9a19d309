"""Features of one source: embedded once per network, on the CPU where a GPU has too little memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from genpr import runtime
from genpr.distributed import current_communicator
from genpr.errors import DataError, FeatureError, ResourceError, UsageError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import adopt, describe
from genpr.features.embed import embed_source
from genpr.features.extractor import DescribedExtractor, ExtractorInfo, FeatureExtractor, check_same_extractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, OpenedSide
from genpr.features.options import EmbedKeywords, EmbedOptions, StageProgress
from genpr.features.registry import (
    BUILT_IN,
    check_weights_used,
    dim_of,
    group_by_network,
    is_same_extractor,
    load_joint,
    parse_name,
    weights_of,
)
from genpr.features.weights.verify import records
from genpr.images.datasets import BatchSource
from genpr.images.item import ImageSource, known_length, printable
from genpr.images.policy import DecodePolicy
from genpr.images.shards import Share, shard_of
from genpr.images.source import choose_rows, subset
from genpr.notices import Notice, notice
from genpr.runtime import cache_root, resolve_device
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
    _loaded: dict[tuple[str, ...], DescribedExtractor] = field(default_factory=dict, repr=False)

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

    def load(self, spaces: Sequence[Space]) -> DescribedExtractor:
        """The extractor of one space, or of several layers of one network."""
        first = spaces[0]
        if not isinstance(first, str):
            return adopt(first)
        names = cast("tuple[str, ...]", tuple(spaces))
        if names not in self._loaded:
            weights = self.options.weights
            self._loaded[names] = load_joint(
                names,
                weights=None if weights is None else weights_of(names[0], weights),
                device=self.device,
                offline=self.options.offline,
            )
        return self._loaded[names]

    def embed(
        self, side: OpenedImages, role: str, spaces: Sequence[Space], limit: int | None
    ) -> list[FeatureSet]:
        """The features of `side` in each of `spaces`, which share a network; of at most `limit` images."""
        options = self.options
        source = side.source if limit is None else subset(side.source, limit, options.seed)
        extractor = self.load(spaces)
        parts: Sequence[ExtractorInfo] = getattr(extractor, "parts", ()) or (extractor.info,)
        cache, notices = self._open_cache(parts) if side.on_disk and options.cache else (None, [])
        weights = parts[0].weights_sha256  # of the one network that all of them are layers of
        if weights is not None:
            first_used = [record for record in records() if record.sha256 == weights]
            notices += [notice("weights-first-use", file=each.name, date=each.date) for each in first_used]
        features = embed_source(
            source,
            extractor,
            batch_size=options.batch_size,
            cache=cache,
            decode_policy=options.decoding,
            bad_images=options.bad_images,
            progress=None if options.progress is None else partial(options.progress, role),
        )
        if cache is not None:
            notices += cache.notices
        everywhere = notices_of_all_ranks(notices)  # each has opened the cache for itself
        features = replace(features, notices=(*everywhere, *getattr(side.source, "notices", ())))
        return [features] if len(parts) == 1 else features.split(parts)

    def _open_cache(
        self, parts: Sequence[ExtractorInfo]
    ) -> tuple[FeatureCache | JoinedCache | None, list[Notice]]:
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
        return (caches[0] if len(caches) == 1 else JoinedCache(caches, [info.dim for info in parts])), []


def notices_of_all_ranks(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The notices of every rank, each once: rank 0 shows them all."""
    communicator = current_communicator()
    if not communicator.is_single_process:
        gathered = communicator.all_gather_object([asdict(item) for item in notices])
        notices = [Notice(**item) for each in gathered for item in each]
    return tuple(dict.fromkeys(notices))


_Found = TypeVar("_Found")


def going_on(
    embedder: Embedder, work: Callable[[Embedder], _Found], what: str, *, can_move: bool = True
) -> tuple[_Found, tuple[Notice, ...]]:
    """`genpr.runtime.with_cpu_fallback` for work that takes an embedder, where "auto" chose its GPU.

    Ranks that share a score stay together: one that started again would leave the others waiting.
    """

    def run(device: torch.device) -> _Found:
        return work(embedder if device == embedder.device else embedder.on_cpu())

    may_move = can_move and embedder.options.device == "auto" and current_communicator().is_single_process
    found, notices = runtime.with_cpu_fallback(embedder.device, run, what, can_move=may_move)
    return found, notices_of_all_ranks(notices)


OWN = "<as in the feature file>"
"""Key of a feature file's own features, where no extractor was requested."""


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
        most = embedder.options.max_images
        self._limit = most if limit is None else limit if most is None else min(limit, most)
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
            for space in missing:
                self._known[space] = self._checked(self.side, space)
        else:
            if self._total is not None and self._total < minimum:
                raise self._too_few(self.side.source.name, self._total, minimum)
            if (weights := self._embedder.options.weights) is not None:
                check_weights_used(missing, weights)
            groups = group_by_network(missing)
            is_one_shot = isinstance(self.side.source, BatchSource) and self.side.source.is_one_shot
            if len(groups) > 1 and is_one_shot:
                raise _comes_once(self.side.source, for_control=len(group_by_network(for_metrics)) == 1)
            for group in groups:
                # Features of a CPU differ from those of a GPU in their last bits, so all images are embedded again.
                work = partial(
                    Embedder.embed, side=self.side, role=self.role, spaces=group, limit=self._limit
                )
                can_move = (
                    isinstance(group[0], str) and not is_one_shot
                )  # an object is where its owner put it
                sets, notices = going_on(self._embedder, work, f"for {self.role} images", can_move=can_move)
                for space, found in zip(group, sets, strict=True):
                    self._known[space] = replace(found, notices=(*found.notices, *notices))
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
        sizes, seed = {len(features) for features in self._known.values()}, self._embedder.options.seed
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
        total, seed = self._total, self._embedder.options.seed
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
            check_same_extractor("--extractor", describe(space), features.source, features.extractor)
        if self._limit is None or self._limit >= len(features):
            return features
        return features.select(
            torch.as_tensor(choose_rows(len(features), self._limit, self._embedder.options.seed))
        )

    def _check_name(self, features: FeatureSet, info: ExtractorInfo, space: str) -> None:
        if space in {OWN, info.name} or is_same_extractor(info.name, space):
            return
        if dim_of(space) is None:  # one of the user's own may call itself as it likes
            check_same_extractor("--extractor", self._embedder.load([space]).info, features.source, info)
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
        dim, known = features.features.shape[1], dim_of(space)
        if known is not None and known != dim:
            raise FeatureError(
                f"{features.source} has {dim} features per image, but {space} has {known}",
                code="feature-shape",
                path=features.source,
            )
        built_in = BUILT_IN.get(parse_name(space).base)
        members = built_in.members if built_in else 1
        info = ExtractorInfo(space, dim, "unknown", None, comparable=False, members=members)
        return replace(features, extractor=info)

    def _too_few(self, source: str, n: int, minimum: int) -> DataError:
        return DataError(
            f"{self.role} has {n} images in {source}, but at least {minimum} are needed (k + 1 of each side where k "
            "neighbours are counted); give more images, or choose a smaller k or other metrics",
            code="too-few-images",
            path=source,
        )


def _comes_once(source: ImageSource, *, for_control: bool) -> UsageError:
    """The error for images that come once where several networks, or those of the control, need them."""
    who = "the control needs" if for_control else "the metrics need"
    otherwise = "; or leave the control out (control=False)" if for_control else ""
    return UsageError(
        f"{source.name} is an iterator, which gives its images once, but {who} several networks; pass something "
        f"that can be iterated again, such as a list, a DataLoader or a folder{otherwise}",
        code="one-shot",
    )


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
        UsageError: `share` is requested of features ("already-features"), or of images that cannot be counted before they are
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
    most = embedder.options.max_images
    source = shard_of(
        side.source if most is None else subset(side.source, most, embedder.options.seed), share
    )
    part = SideFeatures(OpenedImages(source, side.on_disk), "images", embedder.with_options(max_images=None))
    part.require([space or OWN], minimum=0)  # a share of few images may be empty
    max_bad = embedder.options.max_bad if embedder.options.on_bad == "skip" else 0.0
    return replace(part[space or OWN], shard=source.place(max_bad=max_bad))
