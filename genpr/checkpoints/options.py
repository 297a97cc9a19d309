"""Options of drawing images and of watching a folder as records. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from genpr.errors import UsageError
from genpr.features.options import option

if TYPE_CHECKING:
    import torch

_MOST_STEPS = 10_000


def parse_numbers(text: str) -> list[float]:
    """The numbers in `0.5,0.7,1`, or in `0.2:1:0.1`, which are first, last and step."""
    try:
        if ":" in text:
            first, last, step = map(float, text.split(":"))
            steps = (last - first) / step
            is_whole = 0 <= steps <= _MOST_STEPS and abs(steps - round(steps)) <= 1e-6
            numbers = [
                round(first + index * step, 12) for index in range(round(steps) + 1 if is_whole else 0)
            ]
        else:
            numbers = list(map(float, text.split(",")))
    except (ValueError, ZeroDivisionError, OverflowError):
        numbers = []
    if not numbers:
        message = f"{text!r}: needed numbers, such as 0.5,0.7,1, or first:last:step, such as 0.2:1:0.1"
        raise UsageError(message, code="bad-option")
    return numbers


class SamplerKeywords(TypedDict, total=False):
    """The fields of `SamplerOptions` as keyword arguments."""

    seed: int
    axis: str
    rule: str | None
    latent_dim: int | None
    labels: object
    image_range: Sequence[float] | None
    batch_size: int
    device: str | torch.device


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """How a generator draws images; `genpr.Sampler.of` checks them."""

    seed: int = option(0, "Seed of latents and noise.")
    axis: str = option(
        "psi",
        "Name under which the generator takes its setting, such as guidance, unless a rule applies it.",
    )
    rule: str | None = option(
        None,
        "How psi truncates: z-scale, z-clip or z-resample truncate the latents, w-interpolate what the mapping makes of them.",
        unset="w-interpolate for a generator with mapping and synthesis, else the generator does it",
        choices=("w-interpolate", "z-resample", "z-scale", "z-clip"),
    )
    latent_dim: int | None = option(
        None, "Coordinates of a latent.", unset="the generator's z_dim or latent_dim", least=1, most=2**31
    )
    labels: object = option(None, "(n,) or (n, c), one row per image.", in_cli=False)
    image_range: Sequence[float] | None = option(
        None,
        "Black and white of float images, such as -1,1; uint8 images need none.",
        parse=parse_numbers,
        metavar="LOW,HIGH",
    )
    batch_size: int = option(64, "Images per call of the generator.", least=1)
    device: str | torch.device = option("auto", "auto is where the generator's networks are.")


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """When a source in a watched folder is scored, and what is kept."""

    settle: float = option(
        10.0, "A source is complete when nothing about it has changed for so many seconds.", metavar="S"
    )
    done_file: str | None = option(
        None, "Folders are complete when they hold this file, and not before.", metavar="NAME"
    )
    keep_results: bool = option(
        False, "Keep each whole result in genpr-results/NAME.json, for `genpr compare`."
    )
    ignored: Collection[Path] = option(
        (), "Files and folders that are not scored, such as the reals.", in_cli=False
    )

    def __post_init__(self) -> None:
        if not self.settle >= 0:
            raise UsageError(f"settle must be seconds from 0 on, not {self.settle!r}", code="bad-option")
