"""How an extractor is named: `NAME`, or `NAME@VARIANT` for another resize rule or precision of the same network.

    inception                       the published recipe
    inception@torch-bilinear        the same network behind pytorch-fid's resize
    dinov2-vitl14@bfloat16          the same network in bfloat16
    timm:resnet50.a1_in1k           any model of timm
    open_clip:ViT-B-16:laion2b_s34b_b88k    any model and training run of open_clip

Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from genpr.errors import UsageError

Precision = Literal["float32", "bfloat16"]

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


@dataclass(frozen=True, slots=True)
class ExtractorName:
    """A name taken apart.

    Attributes:
        base: The name without variants.
        resize: Another resize rule than the network's own; None for that.
        precision: In which the network computes.
    """

    base: str
    resize: str | None = None
    precision: Precision = "float32"

    @classmethod
    def parse(cls, text: str) -> ExtractorName:
        """Take `NAME[@VARIANT]...` apart.

        Raises:
            UsageError: A variant is neither "bfloat16" nor a resize rule, or two contradict each other.
        """
        base, *variants = text.split("@")
        name = cls(base)
        for variant in variants:
            if variant == "bfloat16" and name.precision == "float32":
                name = replace(name, precision="bfloat16")
            elif variant in RESIZE_NAMES and name.resize is None:
                name = replace(name, resize=variant)
            else:
                raise UsageError(
                    f"extractor {text!r}: {variant!r} is no further variant; known are bfloat16 and one of the resize "
                    f"rules {', '.join(RESIZE_NAMES)}",
                    code="unknown-variant",
                )
        return name

    def __str__(self) -> str:
        resize = f"@{self.resize}" if self.resize else ""
        return f"{self.base}{resize}{'' if self.precision == 'float32' else '@' + self.precision}"
