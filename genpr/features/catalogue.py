"""The built-in extractors: which network, which layer, which resize rule, whose weights.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from genpr.features.names import ExtractorName
from genpr.features.weights.files import Progress
from genpr.features.weights.known import (
    CLIP,
    DINOV2,
    INCEPTION_2015,
    INCEPTION_TORCHVISION,
    VGG16,
    WeightsFile,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One built-in extractor.

    Attributes:
        layer: Which features of the network, in the words of its publication.
        dim: Length of a feature vector.
        resize: Name of its published resize rule.
        side: Of the square it sees, in pixels.
        loader: "module:function" that takes a `Request`; extractors with the same one share a network if they share
            their weights.
        weights: Its weights file; None for weight-free extractors.
        comparable: Whether scores may be compared with published ones.
        members: Random networks side by side.
        published: Other resize rules under which numbers were published.
    """

    layer: str
    dim: int
    resize: str
    side: int
    loader: str
    weights: WeightsFile | None = None
    comparable: bool = True
    members: int = 1
    published: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a loader is asked for.

    Attributes:
        names: Layers of one network, under one resize rule and in one precision.
        entry: The published weights of a built-in extractor.
        weights: The verified weights file of a built-in extractor, or one given by the user.
        device: Where to compute.
        offline: Never download.
        progress: Told how a download is going.
    """

    names: tuple[ExtractorName, ...]
    weights: Path | None
    device: torch.device
    entry: WeightsFile | None = None
    offline: bool = False
    progress: Progress | None = None

    @property
    def file(self) -> tuple[WeightsFile, Path]:
        """The published weights of a built-in extractor, and where the registry has found them."""
        assert self.entry is not None
        assert self.weights is not None
        return self.entry, self.weights


_INCEPTION = "genpr.features.networks.inception:load"
_CLIP = "genpr.features.networks.clip:load"
_DINOV2 = "genpr.features.networks.dinov2:load"


def _inception(layer: str, dim: int) -> BuiltIn:
    # By pytorch-fid, torchmetrics and clean-fid.
    others = ("torch-bilinear", "torch-bilinear-antialias", "pil-bicubic-float")
    return BuiltIn(layer, dim, "tf1-bilinear", 299, _INCEPTION, INCEPTION_2015, published=others)


def _clip(dim: int, side: int, model: str) -> BuiltIn:
    """OpenAI's weights, in the conversion that open_clip itself points to."""
    return BuiltIn("image embedding", dim, "clip", side, _CLIP, CLIP[model])


def _dinov2(dim: int, letter: str) -> BuiltIn:
    others = (
        "torch-bicubic-antialias",
        "pil-bicubic-float",
        "tf1-bilinear",
    )  # EDM2, dgm-eval, torch-fidelity
    return BuiltIn("CLS token", dim, "pil-bicubic-uint8", 224, _DINOV2, DINOV2[letter], published=others)


BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "inception": _inception("pool3", 2048),
        "inception-768": _inception("mixed 6e, mean", 768),
        "inception-192": _inception("second max pool, mean", 192),
        "inception-64": _inception("first max pool, mean", 64),
        "inception-spatial": _inception("mixed_6/conv, 7 channels (sFID)", 2023),
        "inception-softmax": _inception("softmax without bias (IS)", 1008),
        "inception-torchvision": BuiltIn(
            "pool",
            2048,
            "torch-bilinear",
            299,
            "genpr.features.networks.torchvision_models:load",
            INCEPTION_TORCHVISION,
        ),
        "vgg16": BuiltIn(
            "fc2 after ReLU",
            4096,
            "tf1-bilinear",
            224,
            "genpr.features.networks.torchvision_models:load",
            VGG16,
        ),
        "clip-vit-b-32": _clip(512, 224, "vit-b-32"),
        "clip-vit-l-14": _clip(768, 224, "vit-l-14"),
        "clip-vit-l-14-336": _clip(768, 336, "vit-l-14-336"),
        "dinov2-vits14": _dinov2(384, "s"),
        "dinov2-vitb14": _dinov2(768, "b"),
        "dinov2-vitl14": _dinov2(1024, "l"),
        "dinov2-vitg14": _dinov2(1536, "g"),
        "random-vgg16": BuiltIn(
            "3 random networks",
            192,
            "tf1-bilinear",
            224,
            "genpr.features.networks.random_vgg16:load",
            comparable=False,
            members=3,
        ),
        "gabor": BuiltIn(
            "moduli", 736, "bicubic-antialias", 64, "genpr.features.networks.gabor:load", comparable=False
        ),
        "pixels": BuiltIn(
            "RGB",
            3072,
            "torch-bicubic-antialias",
            32,
            "genpr.features.networks.pixels:load",
            comparable=False,
        ),
    }
)
"""By name, in the order in which they are listed."""

OPEN_FAMILIES: Mapping[str, str] = MappingProxyType(
    {"timm": "genpr.features.networks.timm_models:load", "open_clip": _CLIP}
)
"""Loaders of extractors named `FAMILY:MODEL`, which are only known once their library is asked."""
