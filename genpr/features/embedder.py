"""Features of images: one record of options, and the networks that were loaded for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Unpack

import torch

from genpr.distributed import current_communicator
from genpr.errors import ResourceError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import adopt
from genpr.features.embed import embed_source
from genpr.features.extractor import ExtractorInfo, FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages
from genpr.features.options import EmbedKeywords, EmbedOptions, StageProgress
from genpr.features.registry import describe, load_joint, weights_of
from genpr.features.weights.trust import records
from genpr.images.policy import DecodePolicy
from genpr.images.source import subset
from genpr.notices import Notice, notice
from genpr.runtime import cache_root, resolve_device

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
