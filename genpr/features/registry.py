"""Which extractors are built in, and how any extractor is loaded by name or described.

Importing this module does not import torch: listing extractors and finding that weights are missing are quick.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import UsageError
from genpr.features.extractor import ExtractorInfo, FeatureExtractor
from genpr.features.weights import INCEPTION_2015, Progress, WeightsFile, find_or_fetch, is_cached

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ExtractorSummary:
    """One line of the list of built-in extractors.

    Attributes:
        name: What `load_extractor` takes.
        dim: Length of a feature vector.
        resize: Name of the resize rule.
        weights: Name of the weights file; None for weight-free extractors.
        licence: Licence of the weights; None for weight-free extractors.
        comparable: Whether scores may be compared with published ones.
        cached: Whether it can be used here without a download.
    """

    name: str
    dim: int
    resize: str
    weights: str | None
    licence: str | None
    comparable: bool
    cached: bool


@dataclass(frozen=True)
class _BuiltIn:
    dim: int
    resize: str
    comparable: bool
    weights: WeightsFile | None = None


_BUILT_IN = {
    "inception": _BuiltIn(2048, "tf1-bilinear-299", comparable=True, weights=INCEPTION_2015),
    "gabor": _BuiltIn(736, "bicubic-antialias-64", comparable=False),
}


def list_extractors() -> tuple[ExtractorSummary, ...]:
    """The built-in extractors."""
    return tuple(
        ExtractorSummary(
            name=name,
            dim=known.dim,
            resize=known.resize,
            weights=known.weights.name if known.weights else None,
            licence=known.weights.licence if known.weights else None,
            comparable=known.comparable,
            cached=known.weights is None or is_cached(known.weights),
        )
        for name, known in _BUILT_IN.items()
    )


def load_extractor(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | torch.device = "auto",
    offline: bool = False,
    progress: Progress | None = None,
) -> FeatureExtractor:
    """Load an extractor, ready to embed on `device`.

    Args:
        name: "inception", "gabor", or a custom one as "package.module:factory" or "path/to/file.py:factory"
            (see `genpr.features.custom`).
        weights: File that holds the published weights, if it is in neither genpr's nor torch.hub's cache.
        device: "auto", "cpu", "cuda", "cuda:1" or a `torch.device`.
        offline: Never download; GENPR_OFFLINE=1 says the same.
        progress: Told (bytes received, bytes in all) while weights are downloaded.

    Raises:
        UsageError: No such extractor or device, or a custom one that cannot be loaded.
        WeightsError: The weights are missing or are not the published ones.
    """
    path = require_weights(name, weights=weights, offline=offline, progress=progress)

    from genpr.runtime import resolve_device

    resolved = resolve_device(device)
    if name not in _BUILT_IN:
        from genpr.features.custom import load_custom

        return load_custom(name, device=resolved)
    if name == "gabor":
        from genpr.features.gabor import GaborExtractor

        return GaborExtractor(resolved)
    from genpr.features.inception import InceptionExtractor

    assert path is not None  # require_weights found what inception needs
    return InceptionExtractor(INCEPTION_2015, path, device=resolved)


def require_weights(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path | None:
    """Everything of `load_extractor` that can fail without torch, which takes seconds to import.

    Returns:
        The verified weights file; None for extractors that have none.

    Raises:
        UsageError: No such extractor, or it takes no weights file.
        WeightsError: The weights are missing or are not the published ones.
    """
    check_known(name)
    known = _BUILT_IN.get(name)
    if weights is not None and (known is None or known.weights is None):
        raise UsageError(
            f"weights {os.fspath(weights)!r} were given, but extractor {name!r} takes no weights file",
            code="weights-unused",
        )
    if known is None or known.weights is None:
        return None
    return find_or_fetch(known.weights, weights=_path(weights), offline=offline, progress=progress)


def check_known(name: str) -> None:
    """Refuse a name that is neither built in nor of the form of a custom extractor.

    Raises:
        UsageError: "unknown-extractor".
    """
    if name not in _BUILT_IN and ":" not in name:
        raise UsageError(
            f"unknown extractor {name!r}; known are {', '.join(_BUILT_IN)}, and custom ones as "
            "path/to/file.py:factory or package.module:factory",
            code="unknown-extractor",
        )


def describe(extractor: FeatureExtractor) -> ExtractorInfo:
    """What is known about an extractor: its own `info`, or what inspecting a custom one shows.

    A custom extractor is hashed anew at each call, since its owner may have trained it in between.

    Raises:
        UsageError: It does not follow the `FeatureExtractor` protocol.
    """
    info = getattr(extractor, "info", None)
    if isinstance(info, ExtractorInfo):
        return info
    from genpr.features.custom import adopt

    adopted_info = getattr(adopt(extractor), "info", None)
    assert isinstance(adopted_info, ExtractorInfo)
    return adopted_info


def _path(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)
