"""Options of drawing images as a record. Importing this module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from genpr.errors import UsageError
from genpr.features.options import option

if TYPE_CHECKING:
    import torch

_MOST_STEPS = 10_000


def parse_numbers(text: str) -> list[float]:
    """Parse numbers such as `0.5,0.7,1`, or first, last and step such as `0.2:1:0.1`."""
    with suppress(ValueError, ZeroDivisionError, OverflowError):
        if ":" not in text:
            return list(map(float, text.split(",")))
        first, last, step = map(float, text.split(":"))
        steps = (last - first) / step
        if 0 <= steps <= _MOST_STEPS and abs(steps - round(steps)) <= 1e-6:
            return [round(first + index * step, 12) for index in range(round(steps) + 1)]
    message = f"{text!r}: expected numbers, such as 0.5,0.7,1, or first:last:step, such as 0.2:1:0.1"
    raise UsageError(message, code="bad-option")


def named_by_code(drawn_by: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a generator for comparisons: a known hash of its code replaces the path of its factory."""
    name = str(drawn_by.get("name"))
    return {**drawn_by} if drawn_by.get("code") is None else {**drawn_by, "name": name.rpartition(":")[2]}


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
    """How a generator draws images; `genpr.Sampler.of` checks these options."""

    seed: int = option(0, "Random seed of latents and noise.")
    axis: str = option(
        "psi",
        "Name of the parameter of the generator that is varied, such as guidance. A rule applies psi instead of the generator.",
        group="generator",
    )
    rule: str | None = option(
        None,
        "How psi truncates the latents.",
        group="advanced",
        unset="the generator applies psi",
        choices=("z-resample", "z-scale", "z-clip"),
        metavar="RULE",
    )
    latent_dim: int | None = option(
        None,
        "Dimension of a latent.",
        group="advanced",
        unset="the generator's z_dim or latent_dim",
        least=1,
        most=2**31,
    )
    labels: object = option(None, "(n,) or (n, c), one row per image.", in_cli=False)
    image_range: Sequence[float] | None = option(
        None,
        "Values of black and white in float images, such as -1,1. Generators that return uint8 images do not need it.",
        group="generator",
        parse=parse_numbers,
        metavar="LOW,HIGH",
    )
    batch_size: int = option(64, "Images per call of the generator.")
    device: str | torch.device = option("auto", "Device. auto is the device of the generator's networks.")
