"""The two sides of a comparison: recognise what a source is, and turn it into features."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from genpr.errors import DataError, FeatureError, ResourceError
from genpr.features.cache import FeatureCache
from genpr.features.custom import adopt
from genpr.features.embed import BadImagePolicy, embed_source
from genpr.features.extractor import ExtractorInfo, FeatureExtractor
from genpr.features.feature_set import FeatureSet, load_features
from genpr.features.registry import check_known, describe, load_extractor
from genpr.images.arrays import peek_array
from genpr.images.decode import MAX_PIXELS, DecodePolicy
from genpr.images.source import ImageSource, choose_rows, open_source, subset
from genpr.metrics.features import check_features
from genpr.notices import Notice, notice
from genpr.runtime import cache_root

StageProgress = Callable[[str, int, int | None], None]
"""Called with the stage ("real", "fake": images embedded; "neighbours": per cent of a search), what is done, and the
total (None if unknown)."""


@dataclass(frozen=True)
class OpenedImages:
    """Images that were found and listed, but not read yet."""

    source: ImageSource
    on_disk: bool  # only images from files are worth caching: arrays belong to a running program


OpenedSide = OpenedImages | FeatureSet


def open_side(source: object, role: str) -> OpenedSide:
    """Find `source` and say whether it is images or features, reading as little as possible.

    A 2-D array of floats is features, a 4-D array of uint8 is images; `.safetensors` is features.

    Raises:
        UsageError: There is no such path, or nothing can be made of it.
        DataError: It was found, but is empty or damaged.
    """
    if isinstance(source, OpenedImages | FeatureSet):
        return source
    if isinstance(source, str | os.PathLike):
        return (
            _open_path(Path(source)) if os.fspath(source) else OpenedImages(open_source(source), on_disk=True)
        )
    if isinstance(source, np.ndarray | Tensor) and source.ndim != 4:
        return FeatureSet(check_features(source, role).cpu(), source=f"<{role} features>")
    return OpenedImages(open_source(source, name=f"<{role} images>"), on_disk=False)


def _open_path(path: Path) -> OpenedSide:
    if not _holds_features(path):
        return OpenedImages(open_source(path), on_disk=True)
    features = load_features(path)
    if features.extractor is not None:
        return features
    return replace(features, notices=(notice("unlabelled-features", source=features.source),))


def _holds_features(path: Path) -> bool:
    """By suffix and array header: images are 4-D, and everything else in an array file is meant as features."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".safetensors":
        return True
    header = peek_array(path)
    return header is not None and len(header[0]) != 4


def check_same_kind(real: OpenedSide, fake: OpenedSide) -> None:
    """Refuse features against images, and features of different extractors.

    Raises:
        FeatureError: The two do not belong together.
    """
    if isinstance(real, FeatureSet) != isinstance(fake, FeatureSet):
        features, images = (real, fake) if isinstance(real, FeatureSet) else (fake, real)
        assert isinstance(features, FeatureSet)
        assert isinstance(images, OpenedImages)
        name = features.extractor.name if features.extractor else "EXTRACTOR"
        raise FeatureError(
            f"{features.source} holds features but {images.source.name} holds images; embed the images first: "
            f"genpr features {images.source.name} OUT.safetensors --extractor {name}",
            code="features-against-images",
        )
    if isinstance(real, FeatureSet) and isinstance(fake, FeatureSet) and real.extractor and fake.extractor:
        _check_same_extractor(real.source, real.extractor, fake.source, fake.extractor)


def check_untrained(real: FeatureSet, fake: FeatureSet) -> None:
    """Refuse fakes embedded after the extractor's weights changed, as in a training loop.

    Raises:
        FeatureError: The real side has to be embedded anew.
    """
    if real.extractor is None or fake.extractor is None:
        return
    if real.extractor.weights_sha256 != fake.extractor.weights_sha256:
        raise FeatureError(
            f"the weights of extractor {real.extractor.name} changed after the real side was embedded; "
            "make a new Evaluator, or score with a frozen copy",
            code="other-extractor",
        )


def _check_same_extractor(name: str, info: ExtractorInfo, other_name: str, other: ExtractorInfo) -> None:
    if info.cache_key is not None and info.cache_key == other.cache_key:
        return
    identity = (info.name, info.dim, info.resize, info.weights_sha256)
    if identity == (other.name, other.dim, other.resize, other.weights_sha256):
        if info.cache_key == other.cache_key or None in (info.cache_key, other.cache_key):
            return
        difference = "its code or settings have changed in between"
    else:
        difference = f"{_describe(other)} there, {_describe(info)} here"
    raise FeatureError(
        f"{name} and {other_name} were not embedded by the same extractor ({difference}); embed both again with one",
        code="other-extractor",
    )


def _describe(info: ExtractorInfo) -> str:
    weights = f", weights {info.weights_sha256[:8]}" if info.weights_sha256 else ""
    return f"{info.name} ({info.dim}-d, {info.resize}{weights})"


@dataclass(frozen=True, kw_only=True)
class SideLoader:
    """Turns opened sides into features, all with the same extractor and options (see `genpr.Evaluator`)."""

    extractor_request: str | FeatureExtractor | None
    default_extractor: str
    device: torch.device
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
    progress: StageProgress | None = None

    @cached_property
    def extractor(self) -> FeatureExtractor:
        """Loaded when the first images come: feature files need no weights."""
        request = self.extractor_request
        if request is not None and not isinstance(request, str):
            return adopt(request)
        name = self.default_extractor if request is None else request
        return load_extractor(name, weights=self.weights, device=self.device, offline=self.offline)

    def load(self, side: OpenedSide, role: str, *, minimum: int) -> FeatureSet:
        """The features of `side`, at least `minimum` of them.

        Raises:
            DataError: Too few or unusable images, or features of another extractor than the one asked for.
            ResourceError: Weights, device or memory are missing.
        """
        if isinstance(side, FeatureSet):
            features = self._checked(side, role)
        else:
            self._refuse_few(side.source, role, minimum)
            features = self._embed(side, role)
        if len(features) < minimum:
            raise _too_few(features.source, role, len(features), minimum)
        return features

    def _checked(self, features: FeatureSet, role: str) -> FeatureSet:
        info = features.extractor
        if isinstance(self.extractor_request, str):
            check_known(self.extractor_request)
        if info is not None and self.extractor_request not in {None, info.name}:
            _check_same_extractor("--extractor", describe(self.extractor), features.source, info)
        check_features(features.features, features.source)
        if self.max_images is None or self.max_images >= len(features):
            return features
        return features.select(torch.as_tensor(choose_rows(len(features), self.max_images, self.seed)))

    def _refuse_few(self, source: ImageSource, role: str, minimum: int) -> None:
        """Before embedding, where the number of images is known."""
        try:
            n = len(source)
        except TypeError:
            return
        if n < minimum:
            raise _too_few(source.name, role, n, minimum)

    def _embed(self, side: OpenedImages, role: str) -> FeatureSet:
        source = side.source
        if self.max_images is not None:
            source = subset(source, self.max_images, self.seed)
        cache, notices = self._open_cache() if side.on_disk else (None, [])
        report = None if self.progress is None else partial(self.progress, role)
        features = embed_source(
            source,
            self.extractor,
            batch_size=self.batch_size,
            cache=cache,
            decode_policy=DecodePolicy(max_pixels=self.max_pixels),
            bad_images=BadImagePolicy(self.on_bad, self.max_bad),
            progress=report,
        )
        if cache is not None:
            notices += cache.notices
        return replace(features, notices=tuple(notices))

    def _open_cache(self) -> tuple[FeatureCache | None, list[Notice]]:
        if not self.cache:
            return None, []
        info = describe(self.extractor)
        if info.cache_key is None:
            return None, [notice("extractor-not-cached", extractor=info.name, reason=info.uncached_reason)]
        try:
            root = Path(self.cache_dir) if self.cache_dir else cache_root()
            return FeatureCache(root, info, self.device.type, max_pixels=self.max_pixels), []
        except ResourceError as error:
            return None, [notice("cache-unusable", reason=error)]


def _too_few(source: str, role: str, n: int, minimum: int) -> DataError:
    return DataError(
        f"{role} has {n} images in {source}, but at least k + 1 = {minimum} are needed; give more images or a smaller k",
        code="too-few-images",
        path=source,
    )
