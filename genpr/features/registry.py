"""Registry of extractors by name, such as `inception@torch-bilinear` or `dinov2-vitl14@bfloat16`, and their loading.

Importing this module does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from genpr.errors import GenprError, ResourceError, UsageError, similar, some
from genpr.features.extractor import DescribedExtractor, FeatureExtractor
from genpr.features.known_weights import (
    CLIP,
    DINOV2,
    EFFICIENTNET_LITE0,
    INCEPTION_2015,
    KNOWN_WEIGHTS,
    VGG16,
)
from genpr.features.weights import (
    Progress,
    Weights,
    WeightsFile,
    cached_path,
    find_or_fetch,
    load_any_weights,
    load_weights,
)
from genpr.runtime import resolve_device
from genpr.validation import check_flag, entry_point

if TYPE_CHECKING:
    import torch

    from genpr.features.options import EmbedOptions

Precision = Literal["float32", "bfloat16"]
_Extractor = TypeVar("_Extractor")
_Path = str | os.PathLike[str]

RESIZE_NAMES = (
    "tf1-bilinear",
    "torch-bilinear",
    "torch-bilinear-antialias",
    "pil-bicubic-float",
    "pil-bicubic-uint8",
    "torch-bicubic-antialias",
    "clip",
)
"""The rules of `genpr.features.resize`, which needs torch."""

POOLINGS = ("cls", "mean", "map")
"""Poolings of `timm:MODEL`: class token, mean over positions or patch tokens, attention pool of the model."""

_MAX_SIDE = 4096  # pixels of the input of a timm model


@dataclass(frozen=True, slots=True)
class ExtractorName:
    """A parsed name; a `resize` of None is the default rule of the network."""

    base: str
    resize: str | None = None
    precision: Precision = "float32"
    side: int | None = None  # side of the input of a timm model in pixels; None for its default
    pooling: str | None = None  # one of `POOLINGS`; None for the pooling of timm

    @classmethod
    def parse(cls, text: str) -> ExtractorName:
        """Parse `NAME[@VARIANT]...`; UsageError "unknown-variant" for unknown or contradictory variants."""
        base, *variants = text.split("@")
        kinds = {"bfloat16": "precision", **dict.fromkeys(RESIZE_NAMES, "resize")}
        if is_timm := base.startswith("timm:"):
            kinds |= dict.fromkeys(POOLINGS, "pooling")
        fields: dict[str, Any] = {}
        for variant in variants:
            side = _side(variant) if is_timm else 0
            kind = "side" if side else kinds.get(variant)
            if kind is None or kind in fields:
                known = ", ".join([*kinds, *([f"a side of 1 to {_MAX_SIDE} pixels"] if is_timm else [])])
                message = f"extractor {text!r}: variant {variant!r} is unknown or repeated{similar(variant, kinds)}; known are {known}"
                raise UsageError(message, code="unknown-variant")
            fields[kind] = side or variant
        return cls(base, **fields)

    def __str__(self) -> str:
        precision = None if self.precision == "float32" else self.precision
        variants = (self.side, self.pooling, self.resize, precision)
        return "@".join([self.base, *map(str, filter(None, variants))])


def _side(variant: str) -> int:
    """The side in a variant such as "256"; 0 for other variants."""
    is_number = variant.isascii() and variant.isdecimal() and len(variant) <= len(str(_MAX_SIDE))
    return int(variant) if is_number and int(variant) <= _MAX_SIDE else 0


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One built-in extractor."""

    layer: str  # the layer of the features, in the terms of the publication
    dim: int
    resize: str  # its published resize rule
    side: int  # of the square input, in pixels
    network: str  # module of `genpr.features.networks` with its `build`
    weights: WeightsFile | None = None
    comparable: bool = True  # with published scores
    published: tuple[str, ...] = ()  # other resize rules of published scores


def _inception(layer: str, dim: int) -> BuiltIn:
    # Resizes of pytorch-fid and dgm-eval, torchmetrics and clean-fid.
    others = ("torch-bilinear", "torch-bilinear-antialias", "pil-bicubic-float")
    return BuiltIn(layer, dim, "tf1-bilinear", 299, "inception", INCEPTION_2015, published=others)


def _clip(dim: int, side: int, model: str) -> BuiltIn:
    """OpenAI's weights, in the conversion that open_clip uses."""
    return BuiltIn("image embedding", dim, "clip", side, "clip", CLIP[model])


def _dinov2(dim: int, letter: str) -> BuiltIn:
    # Resizes of EDM2, dgm-eval and torch-fidelity.
    others = ("torch-bicubic-antialias", "pil-bicubic-float", "tf1-bilinear")
    return BuiltIn(
        "CLS token", dim, "pil-bicubic-uint8", 224, "timm_models", DINOV2[letter], published=others
    )


_LITE0 = BuiltIn(
    "pooled features", 1280, "timm-bicubic-0.875", 224, "timm_models", EFFICIENTNET_LITE0, comparable=False
)

BUILT_IN: Mapping[str, BuiltIn] = {
    "inception": _inception("pool3", 2048),
    "inception-768": _inception("mixed 6e, mean", 768),
    "inception-192": _inception("second max pool, mean", 192),
    "inception-64": _inception("first max pool, mean", 64),
    "inception-spatial": _inception("mixed_6/conv, 7 channels (sFID)", 2023),
    "inception-softmax": _inception("softmax without bias (IS)", 1008),
    "vgg16": BuiltIn("fc2 after ReLU", 4096, "tf1-bilinear", 224, "vgg16", VGG16),
    "clip-vit-b-32": _clip(512, 224, "vit-b-32"),
    "clip-vit-l-14": _clip(768, 224, "vit-l-14"),
    "clip-vit-l-14-336": _clip(768, 336, "vit-l-14-336"),
    "dinov2-vits14": _dinov2(384, "s"),
    "dinov2-vitb14": _dinov2(768, "b"),
    "dinov2-vitl14": _dinov2(1024, "l"),
    "dinov2-vitg14": _dinov2(1536, "g"),
    "efficientnet-lite0": _LITE0,
    "gabor": BuiltIn("moduli", 736, "bicubic-antialias", 64, "weight_free", comparable=False),
    "pixels": BuiltIn("RGB", 3072, "torch-bicubic-antialias", 32, "weight_free", comparable=False),
}
"""Built-in extractors by name, in display order."""

OPEN_FAMILIES: Mapping[str, str] = {"timm": "timm_models", "open_clip": "clip"}
"""Modules that load extractors named `FAMILY:MODEL`, whose models are those of a library."""


@lru_cache
def parse_name(name: str) -> ExtractorName:
    """Parse a name; custom extractors may have any character in their path, and have no variants."""
    is_built_in = name.partition("@")[0] in BUILT_IN
    return ExtractorName.parse(name) if is_built_in or open_family(name) else ExtractorName(name)


@lru_cache
def canonical_name(name: str) -> str:
    """The shortest name of an extractor, without variants that are the default."""
    parsed = parse_name(name)
    known = BUILT_IN.get(parsed.base)
    if known is None and ":" not in name:
        raise UsageError(
            f"unknown extractor {name!r}{similar(name, BUILT_IN)}; known are {', '.join(BUILT_IN)}, timm:MODEL, open_clip:MODEL:PRETRAINED, "
            "and custom ones as path/to/file.py:factory or package.module:factory",
            code="unknown-extractor",
        )
    return str(replace(parsed, resize=None)) if known and parsed.resize == known.resize else str(parsed)


def open_family(name: str) -> str | None:
    """The module that loads an extractor named `FAMILY:MODEL`; None for all others."""
    return OPEN_FAMILIES.get(name.partition(":")[0]) if ":" in name else None


def network_module(name: str) -> str | None:
    """Module of `genpr.features.networks` that loads an extractor; None for custom ones."""
    known = BUILT_IN.get(parse_name(name).base)
    return known.network if known else open_family(name)


def check_has_text(name: str) -> None:
    """Raise an error for an extractor without a text encoder ("no-text-encoder"); custom ones are checked once loaded."""
    name = canonical_name(name)
    if network_module(name) not in {"clip", None}:
        raise no_text_encoder(name)


def no_text_encoder(name: str) -> UsageError:
    """The error for an extractor that embeds images only."""
    return UsageError(
        f"extractor {name!r} embeds images only, but prompts must be embedded as well; choose clip-vit-b-32, another CLIP, or "
        "path/to/file.py:factory with an object that has encode_text",
        code="no-text-encoder",
    )


def is_same_extractor(name: str, other: str) -> bool:
    """Whether two names are of the same extractor, such as "inception" and "inception@tf1-bilinear"."""
    if any(parse_name(each).base not in BUILT_IN for each in (name, other)):
        return name == other
    return canonical_name(name) == canonical_name(other)


def dim_of(name: str) -> int | None:
    """Length of the features of a built-in extractor; None for others."""
    known = BUILT_IN.get(parse_name(name).base)
    return known.dim if known else None


def has_weights(name: str) -> bool:
    """Whether an extractor is a network of genpr, timm or open_clip, and not weight-free or custom."""
    known = BUILT_IN.get(name.partition("@")[0])
    return open_family(name) is not None or (known is not None and known.weights is not None)


def with_variants_of(name: str, other: str) -> str:
    """The built-in extractor `name`, with the resize rule and precision of `other` if that is of the same network."""
    ours, theirs = parse_name(name), parse_name(other)
    known, like = BUILT_IN[ours.base], BUILT_IN.get(theirs.base)
    if like is None or like.weights is None or like.weights != known.weights:
        return name
    return canonical_name(str(replace(ours, resize=theirs.resize, precision=theirs.precision)))


def group_by_network(extractors: Iterable[_Extractor]) -> tuple[tuple[_Extractor, ...], ...]:
    """Group layers of one network with one resize rule and precision, in the order of their first occurrence."""
    groups: dict[object, list[_Extractor]] = {}
    for extractor in dict.fromkeys(extractors):
        network: object = extractor
        if isinstance(extractor, str):
            name = parse_name(extractor)
            known = BUILT_IN.get(name.base)
            if known is not None and known.weights is not None:
                network = known.weights.name, name.resize or known.resize, known.side, name.precision
        groups.setdefault(network, []).append(extractor)
    return tuple(map(tuple, groups.values()))


@dataclass(frozen=True)
class ExtractorSummary:
    """One line of the list of extractors; None for what depends on the model."""

    name: str  # argument of `load_extractor`
    dim: int | None
    resize: str | None  # rule and side of the square
    weights: str | None  # name of the file; None for weight-free extractors, too
    license: str | None  # of the weights
    cached: bool | None  # whether it can be used without a download
    comparable: bool  # with published scores
    layer: str  # the layer of the features


def list_extractors() -> tuple[ExtractorSummary, ...]:
    """The built-in extractors, then the families of models."""
    listed = []
    for name, known in BUILT_IN.items():
        file, resize = known.weights, f"{known.resize}-{known.side}"
        weights, terms = (file.name, file.license) if file else (None, None)
        cached = file is None or cached_path(file) is not None
        one = ExtractorSummary(name, known.dim, resize, weights, terms, cached, known.comparable, known.layer)
        listed.append(one)
    families = {"timm:MODEL": "pooled features", "open_clip:MODEL:PRETRAINED": "image embedding"}
    for name, layer in families.items():
        unknown = (None,) * 5
        listed.append(ExtractorSummary(name, *unknown, comparable=True, layer=f"{layer}, its own resize"))
    return tuple(listed)


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
        name: A built-in extractor (see `list_extractors`); "timm:MODEL"; "open_clip:MODEL:PRETRAINED"; any of these
            followed by "@bfloat16" or "@RESIZE-RULE", timm models also by "@SIDE" in pixels and "@cls", "@mean" or "@map";
            or a custom extractor as "package.module:factory" or "path/to/file.py:factory" (see `genpr.features.custom`).
        weights: File with the published weights, if it is in neither genpr's nor torch.hub's cache.
        device: "auto", "cpu", "cuda", "cuda:1" or a `torch.device`.
        offline: Never download, as with GENPR_OFFLINE=1.
        progress: Called with (bytes received, total bytes) while weights are downloaded.

    Raises:
        UsageError: The extractor or device does not exist, or a custom extractor cannot be loaded.
        WeightsError: The weights are missing or are not the published ones.
        ResourceError: A library of the extractor cannot be imported ("broken-library").
    """
    return load_joint([name], weights=weights, device=device, offline=offline, progress=progress)


def load_joint(
    names: Sequence[str],
    *,
    weights: _Path | None = None,
    device: str | torch.device = "auto",
    offline: bool = False,
    progress: Progress | None = None,
) -> DescribedExtractor:
    """An extractor of the concatenated layers of one network (see `group_by_network`), which are its `parts`."""
    check_flag(offline, "offline")
    parsed = tuple(map(parse_name, map(canonical_name, names)))
    first = str(parsed[0])
    network = network_module(first)
    try:
        # Missing weights are reported before torch is imported.
        loaded = read_weights(first, weights=weights, offline=offline, progress=progress)
        resolved = resolve_device(device)
        if network is None:
            from genpr.features.custom import load_custom

            return load_custom(first, device=resolved)
        build = entry_point(import_module(f"genpr.features.networks.{network}").build)
        extractor: DescribedExtractor = build(loaded, names=parsed, device=resolved)
    except GenprError:
        raise
    except (ImportError, RuntimeError) as error:
        # A torchvision for another release of torch fails in either way, and so do timm and open_clip.
        if isinstance(error, RuntimeError) and "torchvision" not in str(error):
            raise
        reason = " ".join(str(error).split())
        text = f"extractor {first} needs a library that cannot be imported ({reason}); install torch and torchvision of one release"
        raise ResourceError(text, code="broken-library") from error
    return extractor


def read_weights(
    name: str, *, weights: _Path | None = None, offline: bool = False, progress: Progress | None = None
) -> Weights | None:
    """The verified weights of an extractor, found or downloaded; None if it has none."""
    base = parse_name(canonical_name(name)).base
    known = BUILT_IN.get(base)
    how: dict[str, Any] = {"offline": offline, "progress": progress}
    how["weights"] = None if weights is None else Path(weights)
    if known is not None and known.weights is not None:
        return load_weights(known.weights, find_or_fetch(known.weights, **how))
    if known is None and (family := open_family(name)) is not None:
        module = import_module(f"genpr.features.networks.{family}")
        return load_any_weights(module.published_weights(base), **how)
    if weights is not None:
        text = f"weights {os.fspath(weights)!r} were given, but extractor {name!r} takes no weights file"
        raise UsageError(text, code="weights-unused")
    return None


def require_all_weights(extractors: Iterable[object], options: EmbedOptions) -> None:
    """Find or download the weights of all built-in extractors, before any image is embedded."""
    given: dict[WeightsFile, _Path | None] = {}
    for name in extractors:
        known = BUILT_IN.get(parse_name(name).base) if isinstance(name, str) else None
        if isinstance(name, str) and known is not None and known.weights is not None:
            given[known.weights] = weights_of(name, options.weights)
    for file, weights in given.items():
        find_or_fetch(file, weights=None if weights is None else Path(weights), offline=options.offline)


def weights_of(name: str, weights: _Path | None) -> _Path | None:
    """The weights file of an extractor: the file of its name in a folder, or the given file unless its name is that of other weights.

    None for extractors without weights.
    """
    if weights is None:
        return None
    path, known = Path(weights), BUILT_IN.get(parse_name(name).base)
    own = known.weights.name if known and known.weights else None
    if path.is_dir():
        if own is None and open_family(name):
            return weights  # the library determines the name of the file
        return path / own if own is not None and (path / own).is_file() else None
    others = {each.name for each in KNOWN_WEIGHTS}
    has_none = known is not None and own is None
    return None if has_none or path.name in others - {own} else weights


def check_weights_used(extractors: Iterable[object], weights: _Path | None) -> None:
    """Raise an error for a weights file that none of the named extractors uses ("weights-unused")."""
    if weights is None or Path(weights).is_dir():
        return
    names = list(dict.fromkeys(each for each in extractors if isinstance(each, str)))
    if names and all(weights_of(name, weights) is None for name in names):
        text = f"weights {os.fspath(weights)!r} belong to none of the extractors {some(names, 10)}"
        raise UsageError(text, code="weights-unused")
