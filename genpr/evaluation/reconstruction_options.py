"""Options of reconstruction as a record. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from genpr.evaluation.options import parse_names
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import EmbedKeywords, EmbedOptions, option
from genpr.features.registry import canonical_name
from genpr.metrics.registry import unknown_metrics

FAMILY = "reconstruction."
METRICS = ("psnr", "ssim", "lpips", "rfid", "clip_i", "dino_i")
"""Names of the metrics, without the family."""
_DEFAULT = METRICS[:4]


def _check_metrics(metrics: object) -> None:
    given = metrics if isinstance(metrics, Collection) and not isinstance(metrics, str) else [metrics]
    unknown = [str(name) for name in given if str(name).removeprefix(FAMILY) not in METRICS]
    if unknown or not given:
        raise unknown_metrics(unknown, METRICS)


def _check_extractor(extractor: object) -> None:
    if isinstance(extractor, str):
        canonical_name(extractor)


class ReconstructKeywords(EmbedKeywords, total=False):
    """The fields of `ReconstructOptions` as keyword arguments."""

    metrics: Sequence[str] | None
    lpips_net: Literal["vgg", "alex"]
    inception: str | FeatureExtractor
    clip: str | FeatureExtractor
    dino: str | FeatureExtractor


@dataclass(frozen=True, kw_only=True)
class ReconstructOptions(EmbedOptions):
    """The metrics of reconstructions and their networks."""

    metrics: Sequence[str] | None = option(
        None,
        f"Some of {', '.join(METRICS)}. All but psnr and ssim need weights.",
        unset=",".join(_DEFAULT),
        parse=parse_names,
        check=_check_metrics,
        metavar="A,B",
    )
    lpips_net: Literal["vgg", "alex"] = option(
        "vgg",
        "Network of lpips: vgg, as in papers about tokenizers, or alex, the default of the library lpips.",
        group="metrics",
        choices=("vgg", "alex"),
    )
    inception: str | FeatureExtractor = option(
        "inception",
        "Extractor of rfid. inception@torch-bilinear is that of pytorch-fid.",
        group="metrics",
        check=_check_extractor,
        metavar="NAME",
    )
    clip: str | FeatureExtractor = option(
        "clip-vit-b-32", "Extractor of clip_i.", group="metrics", check=_check_extractor, metavar="NAME"
    )
    dino: str | FeatureExtractor = option(
        "timm:vit_small_patch16_224.dino",
        "Extractor of dino_i.",
        group="metrics",
        check=_check_extractor,
        metavar="NAME",
    )

    @property
    def chosen(self) -> tuple[str, ...]:
        """The requested metrics without the prefix of their family, in display order."""
        given = [self.metrics] if isinstance(self.metrics, str) else self.metrics or _DEFAULT
        names = {name.removeprefix(FAMILY) for name in given}
        return tuple(name for name in METRICS if name in names)

    @property
    def extractors(self) -> dict[str, str | FeatureExtractor]:
        """The extractor of each requested metric that is computed from features."""
        every = {"rfid": self.inception, "clip_i": self.clip, "dino_i": self.dino}
        return {
            name: canonical_name(extractor) if isinstance(extractor, str) else extractor
            for name, extractor in every.items()
            if name in self.chosen
        }
