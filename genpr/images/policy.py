"""Decoding options and flags. Does not import Pillow, so that `--help` stays fast."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from genpr.errors import BadImagesError, DataError, ImageError, UsageError

# Stable order: cache files store flags as bits, so new ones go to the end.
FLAGS = (
    *("multi-frame", "16bit-scaled", "cmyk-converted", "alpha-dropped", "exif-orientation", "enlarged"),
    *("unscaled", "16bit-unscaled"),
)
_UNSCALED_SHARE = 0.25  # a set may have some black images
# The number of pixels from which on Pillow warns (a quarter of a gigabyte of RGB). Its own limit is twice as high, which
# includes common 100-megapixel bombs, while generative models make images of a few megapixels.
MAX_PIXELS = 89_478_485
_PREPARE = re.compile(r"(center-crop|square-crop|resize):([1-9][0-9]{0,4})")
_MAX_SIDE = 8192


def in_order(flags: Mapping[str, int]) -> dict[str, int]:
    """Counts by flag in the order of `FLAGS`; ranks and shards add them in any order."""
    return dict(sorted(flags.items(), key=lambda entry: FLAGS.index(entry[0])))


def reported(flags: Mapping[str, int], total: int) -> dict[str, int]:
    """The flags of a set of `total` images that are reported; few dark images say nothing about the range of values."""
    shown = dict(flags)
    if flags.get("16bit-unscaled", 0) < flags.get("16bit-scaled", 0):
        shown.pop("16bit-unscaled", None)
    if flags.get("unscaled", 0) <= _UNSCALED_SHARE * total:
        shown.pop("unscaled", None)
    return shown


@dataclass(frozen=True)
class DecodePolicy:
    """Decoding options; invalid values are a `UsageError` ("bad-option").

    `prepare` is "none" or a rule of `genpr.images.prepare` and a side of 1 to 8192 pixels, such as "center-crop:256";
    `preparation` is the pair. `choices` are the options that change pixels, by name.
    """

    max_pixels: int = MAX_PIXELS
    prepare: str = "none"
    preparation: tuple[str, int] | None = field(init=False, repr=False, compare=False, default=None)
    choices: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.prepare == "none":
            return
        match = _PREPARE.fullmatch(str(self.prepare))
        side = int(match[2]) if match else 0
        if match is None or side > _MAX_SIDE:
            needed = f"'none', 'center-crop:N', 'square-crop:N' or 'resize:N' with N from 1 to {_MAX_SIDE}"
            raise UsageError(f"prepare must be {needed}, not {self.prepare!r}", code="bad-option")
        if side * side > self.max_pixels:
            text = f"prepare {self.prepare} makes {side * side:,} pixels, more than max_pixels = {self.max_pixels:,}"
            raise UsageError(text, code="bad-option")
        object.__setattr__(self, "preparation", (match[1], side))
        self.choices["prepare"] = self.prepare


def choices_in(decoder: Mapping[str, str]) -> dict[str, str]:
    """The decoding options in the record of a decoder, which also contains versions."""
    return {"prepare": decoder["prepare"]} if "prepare" in decoder else {}


def policy_of(decoder: Mapping[str, str]) -> DecodePolicy:
    """The policy in the record of a decoder, with the default pixel limit; DataError if it is invalid."""
    try:
        return DecodePolicy(prepare=decoder.get("prepare", "none"))
    except UsageError as error:
        raise DataError(
            f"the recorded options of decoding are not valid: {error}", code="not-a-result"
        ) from error


@dataclass(frozen=True, slots=True)
class BadImagePolicy:
    """What to do about unusable images.

    "error" refuses the source and lists all of them; "skip" leaves them out, up to the share `max_share` of all images.
    """

    action: Literal["error", "skip"] = "error"
    max_share: float = 0.01

    def check(self, bad: Sequence[ImageError], *, total: int, source: str) -> None:
        """Raise a `BadImagesError` that lists the unusable images `bad` of `total`, unless they are accepted."""
        if not bad or (self.action == "skip" and len(bad) <= self.max_share * total):
            return
        advice = " (repair them, or leave them out with --on-bad skip)"
        if self.action == "skip":
            advice = f", more than --max-bad {self.max_share:.1%} allows"
        text = f"{len(bad)} of {total} images in {source} cannot be used{advice}; the first: {bad[0]}"
        raise BadImagesError(text, bad=bad, path=source)
