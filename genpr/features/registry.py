"""Which extractors are built in, and how any extractor is loaded by name or described.

Importing this module does not import torch: listing extractors and finding that weights are missing are quick.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import GenprError, ResourceError, UsageError, some
from genpr.features.catalogue import BUILT_IN, BuiltIn, Request
from genpr.features.extractor import ExtractorInfo, FeatureExtractor
from genpr.features.lookup import canonical_name, check_known, family_loader, parse_name
from genpr.features.names import ExtractorName
from genpr.features.weights.files import Progress, find_or_fetch, is_cached

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ExtractorSummary:
    """One line of the list of extractors.

    Attributes:
        name: What `load_extractor` takes.
        dim: Length of a feature vector; None where it depends on the model.
        resize: Name of the resize rule and side of the square; None where it depends on the model.
        weights: Name of the weights file; None for weight-free extractors and where it depends on the model.
        licence: Licence of the weights; None as above.
        cached: Whether it can be used here without a download; None where it depends on the model.
        comparable: Whether scores may be compared with published ones.
        layer: Which features of the network they are.
    """

    name: str
    dim: int | None
    resize: str | None
    weights: str | None
    licence: str | None
    cached: bool | None
    comparable: bool
    layer: str


def list_extractors() -> tuple[ExtractorSummary, ...]:
    """The built-in extractors, then the families of which any model can be named."""
    return (*(_summary(name, known) for name, known in BUILT_IN.items()), *_FAMILIES)


def _summary(name: str, known: BuiltIn) -> ExtractorSummary:
    return ExtractorSummary(
        name=name,
        dim=known.dim,
        resize=f"{known.resize}-{known.side}",
        weights=known.weights.name if known.weights else None,
        licence=known.weights.licence if known.weights else None,
        cached=known.weights is None or is_cached(known.weights),
        comparable=known.comparable,
        layer=known.layer,
    )


_FAMILIES = tuple(
    ExtractorSummary(name, None, None, None, None, None, comparable=True, layer=layer)
    for name, layer in (
        ("timm:MODEL", "pooled features, its own resize"),
        ("open_clip:MODEL:PRETRAINED", "image embedding, its own resize"),
    )
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
        name: A built-in one (see `list_extractors`); "timm:MODEL"; "open_clip:MODEL:PRETRAINED"; any of these with
            "@bfloat16" or "@RESIZE-RULE" behind it; or a custom one as "package.module:factory" or
            "path/to/file.py:factory" (see `genpr.features.custom`).
        weights: File that holds the published weights, if it is in neither genpr's nor torch.hub's cache.
        device: "auto", "cpu", "cuda", "cuda:1" or a `torch.device`.
        offline: Never download; GENPR_OFFLINE=1 says the same.
        progress: Told (bytes received, bytes in all) while weights are downloaded.

    Raises:
        UsageError: No such extractor or device, or a custom one that cannot be loaded.
        WeightsError: The weights are missing or are not the published ones.
        ResourceError: A library of the extractor cannot be imported ("broken-library").
    """
    return load_joint([name], weights=weights, device=device, offline=offline, progress=progress)


def load_joint(
    names: Sequence[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | torch.device = "auto",
    offline: bool = False,
    progress: Progress | None = None,
) -> FeatureExtractor:
    """Several layers of one network (see `group_by_network`) in one pass; the rest is as in `load_extractor`.

    Returns:
        An extractor whose rows hold the layers side by side; with more than one, `parts` describes each.
    """
    names = [canonical_name(name) for name in names]
    path = require_weights(names[0], weights=weights, offline=offline, progress=progress)

    from genpr.runtime import resolve_device

    resolved = resolve_device(device)
    known = BUILT_IN.get(parse_name(names[0]).base)
    loader = known.loader if known else family_loader(names[0])
    if loader is None:
        from genpr.features.custom import load_custom

        return load_custom(names[0], device=resolved)
    module, _, function = loader.partition(":")
    request = Request(
        names=tuple(ExtractorName.parse(name) for name in names),
        weights=path if path is not None else _path(weights),
        entry=known.weights if known else None,
        device=resolved,
        offline=offline,
        progress=progress,
    )
    try:
        extractor: FeatureExtractor = getattr(import_module(module), function)(request)
    except (ImportError, RuntimeError) as error:
        # A torchvision of another torch fails either way, and timm and open_clip fail with it.
        if isinstance(error, GenprError) or not (
            isinstance(error, ImportError) or "torchvision" in str(error)
        ):
            raise
        raise _broken_library(names[0], error) from error
    return extractor


def _broken_library(name: str, error: Exception) -> ResourceError:
    import torch

    reason = " ".join(str(error).split())
    return ResourceError(
        f"extractor {name} needs a library that cannot be imported here ({reason}); torch {torch.__version__} needs the "
        "torchvision of the same release and build: install both with one command",
        code="broken-library",
    )


def require_weights(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Path | None:
    """Everything of `load_extractor` that can fail without torch, which takes seconds to import.

    Returns:
        The verified weights file; None for extractors that have none, or whose library knows where they are.

    Raises:
        UsageError: No such extractor, or it takes no weights file.
        WeightsError: The weights are missing or are not the published ones.
    """
    check_known(name)
    parsed = parse_name(name)
    known = BUILT_IN.get(parsed.base)
    file = known.weights if known else None
    if weights is not None and file is None and family_loader(name) is None:
        raise UsageError(
            f"weights {os.fspath(weights)!r} were given, but extractor {name!r} takes no weights file",
            code="weights-unused",
        )
    return (
        None
        if file is None
        else find_or_fetch(file, weights=_path(weights), offline=offline, progress=progress)
    )


def weights_of(name: str, weights: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """The weights file among `weights` that belongs to an extractor.

    Args:
        name: The extractor.
        weights: A file; or a folder, of which each network takes the file with the name of its weights, if there is
            one. A file with the name of another network's weights belongs to that network.
    """
    if weights is None:
        return None
    path, known = Path(weights), BUILT_IN.get(parse_name(name).base)
    own = known.weights.name if known and known.weights else None
    if path.is_dir():
        if own is None and family_loader(name):
            return weights  # its library knows the name of the file
        return path / own if own is not None and (path / own).is_file() else None
    others = {each.weights.name for each in BUILT_IN.values() if each.weights}
    return None if path.name in others - {own} else weights


def check_weights_used(names: Iterable[str], weights: str | os.PathLike[str] | None) -> None:
    """Refuse a weights file that belongs to none of the extractors, by its name.

    Raises:
        UsageError: "weights-unused".
    """
    wanted = list(dict.fromkeys(names))
    if weights is None or Path(weights).is_dir() or not wanted:
        return
    if all(weights_of(name, weights) is None for name in wanted):
        raise UsageError(
            f"weights {os.fspath(weights)!r} belong to none of the extractors {some(wanted, 10)}",
            code="weights-unused",
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
