"""One side of a comparison as features, in every space that some metric asks for, embedded when first needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from genpr.errors import DataError, FeatureError, ResourceError, UsageError
from genpr.features.agreement import check_same_extractor
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import adopt
from genpr.features.embed import embed_source
from genpr.features.extractor import ExtractorInfo, FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.lookup import dim_of, group_by_network, is_same_extractor, members_of
from genpr.features.registry import check_weights_used, describe, load_joint, weights_of
from genpr.images.item import known_length
from genpr.images.policy import MAX_PIXELS, BadImagePolicy, DecodePolicy
from genpr.images.source import choose_rows, subset
from genpr.metrics.features import check_features
from genpr.notices import Notice, notice
from genpr.runtime import cache_root, resolve_device
from genpr.sides.sides import OpenedImages, OpenedSide, refuse_one_shot
from genpr.sides.spare_device import embed_patiently, told_by_ranks

StageProgress = Callable[[str, int, int | None], None]
"""Called with the stage ("real", "fake": images embedded; "neighbours": per cent of a search), what is done, and the
total (None if unknown)."""

Space = str | FeatureExtractor
"""A space of features: the canonical name of an extractor, or an extractor of the user's own."""

OWN = "<as in the feature file>"
"""The space of a feature file for which no extractor was asked for."""


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """Turns images into features, always with the same options (see `genpr.Evaluator`); copies share loaded networks."""

    on: str | torch.device
    device: torch.device = field(init=False)
    weights: str | os.PathLike[str] | None = None
    offline: bool = False
    max_images: int | None = None
    seed: int = 0
    batch_size: int = 64
    cache: bool = True
    cache_dir: str | os.PathLike[str] | None = None
    on_bad: Literal["error", "skip"] = "error"
    max_bad: float = 0.01
    max_pixels: int = MAX_PIXELS
    alpha: str = "drop"
    exif: Literal["ignore", "apply"] = "ignore"
    progress: StageProgress | None = None
    _loaded: dict[tuple[str, ...], FeatureExtractor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", resolve_device(self.on))
        BadImagePolicy(self.on_bad, self.max_bad)  # refuses what is impossible
        for name in ("max_images", "batch_size", "max_pixels"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or not 1 <= int(value) < 2**31):
                raise UsageError(f"{name} is an integer from 1 to 2^31, not {value!r}", code="bad-option")
        _ = self.decoding  # likewise

    @property
    def decoding(self) -> DecodePolicy:
        """How images are decoded."""
        return DecodePolicy(max_pixels=self.max_pixels, alpha=self.alpha, exif=self.exif)

    def load(self, spaces: Sequence[Space]) -> FeatureExtractor:
        """The extractor of one space, or of several layers of one network."""
        first = spaces[0]
        if not isinstance(first, str):
            return adopt(first)
        names = tuple(space for space in spaces if isinstance(space, str))
        if names not in self._loaded:
            self._loaded[names] = load_joint(
                names, weights=weights_of(names[0], self.weights), device=self.device, offline=self.offline
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
        report = None if self.progress is None else partial(self.progress, role)
        features = embed_source(
            source,
            extractor,
            batch_size=self.batch_size,
            cache=cache,
            decode_policy=self.decoding,
            bad_images=BadImagePolicy(self.on_bad, self.max_bad),
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
        if not self.cache:
            return None, []
        for info in parts:
            if info.cache_key is None:
                return None, [
                    notice("extractor-not-cached", extractor=info.name, reason=info.uncached_reason)
                ]
        root = Path(self.cache_dir) if self.cache_dir else cache_root()
        try:
            caches = [FeatureCache(root, info, self.device.type, policy=self.decoding) for info in parts]
        except ResourceError as error:
            return None, [notice("cache-unusable", reason=error)]
        return (caches[0] if len(caches) == 1 else JoinedCache(caches, [info.dim for info in parts])), []


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
            check_weights_used([space for space in missing if isinstance(space, str)], self._embedder.weights)
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
