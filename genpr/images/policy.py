"""Decoding options and flags. Does not import Pillow, so that `--help` stays fast."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from genpr.errors import BadImagesError, DataError, ImageError, UsageError

# Stable order: cache files store flags as bits, so new ones go to the end.
FLAGS = (
    *("multi-frame", "16bit-scaled", "cmyk-converted", "alpha-dropped", "exif-orientation", "enlarged"),
    *("unscaled", "16bit-unscaled", "8bit-values", "above-range", "below-range", "dark-range"),
)
_UNSCALED_SHARE = 0.25  # a set may have some black images, or white ones
_OF_MANY = ("unscaled", "above-range", "below-range", "dark-range")
# The number of pixels from which on Pillow warns (a quarter of a gigabyte of RGB). Its own limit is twice as high, which
# includes common 100-megapixel bombs, while generative models make images of a few megapixels.
MAX_PIXELS = 89_478_485
_PREPARE = re.compile(r"(center-crop|square-crop|resize):([1-9][0-9]{0,4})")
_MAX_SIDE = 8192
MAX_BANDS = 16
_LEAST = 1e-35  # width of a range, which float32 and its reciprocal can hold
_BANDS = re.compile("N(,N,N)?".replace("N", "([1-9]|1[0-6])"))
_CHOICES = ("prepare", "value_range", "bands")


def in_order(flags: Mapping[str, int]) -> dict[str, int]:
    """Counts by flag in the order of `FLAGS`; ranks and shards add them in any order."""
    return dict(sorted(flags.items(), key=lambda entry: FLAGS.index(entry[0])))


def reported(flags: Mapping[str, int], total: int) -> dict[str, int]:
    """The flags of a set of `total` images that are reported; few dark images say nothing about the range of values."""
    shown = dict(flags)
    if flags.get("16bit-unscaled", 0) < flags.get("16bit-scaled", 0):
        shown.pop("16bit-unscaled", None)
    for name in _OF_MANY:
        if flags.get(name, 0) <= _UNSCALED_SHARE * total:
            shown.pop(name, None)
    return shown


@dataclass(frozen=True)
class DecodePolicy:
    """Decoding options; invalid values are a `UsageError` ("bad-option").

    `prepare` is "none" or a rule of `genpr.images.prepare` and a side of 1 to 8192 pixels, such as "center-crop:256";
    `preparation` is the pair. `value_range` has the values of black and white of images that are not of 8 bits, as "0:4095", a
    pair, or several of these, one for each band; `ranges` are the pairs. `bands` are one or three numbers from 1 to 16, or "all";
    `chosen` are their indices. With either, `reads_values`. `choices` are the options that change pixels, by name, as text.
    """

    max_pixels: int = MAX_PIXELS
    prepare: str = "none"
    value_range: Any = None
    bands: Any = None
    preparation: tuple[str, int] | None = field(init=False, repr=False, compare=False, default=None)
    ranges: tuple[tuple[float, float], ...] = field(init=False, repr=False, compare=False, default=())
    chosen: tuple[int, ...] = field(init=False, repr=False, compare=False, default=())
    reads_values: bool = field(init=False, repr=False, compare=False, default=False)
    choices: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        found: dict[str, Any] = {"reads_values": self.value_range is not None or self.bands is not None}
        if self.prepare != "none":
            match = _PREPARE.fullmatch(str(self.prepare))
            side = int(match[2]) if match else 0
            if match is None or side > _MAX_SIDE:
                rules = "'none', 'center-crop:N', 'square-crop:N' or 'resize:N'"
                raise _bad("prepare", f"{rules} with N from 1 to {_MAX_SIDE}", self.prepare)
            if side * side > self.max_pixels:
                text = f"prepare {self.prepare} makes {side * side:,} pixels, more than max_pixels = {self.max_pixels:,}"
                raise UsageError(text, code="bad-option")
            found["preparation"] = match[1], side
        if self.value_range is not None:
            found["ranges"] = ranges = _parsed_ranges(self.value_range)
            ends = [":".join(repr(end).removesuffix(".0") for end in each) for each in ranges]
            found["value_range"] = ",".join(ends)
        if self.bands is not None:
            is_several = isinstance(self.bands, Iterable) and not isinstance(self.bands, str)
            found["bands"] = text = ",".join(map(str, self.bands)) if is_several else str(self.bands)
            if text != "all" and not _BANDS.fullmatch(text):
                raise _bad("bands", "three numbers from 1 to 16 such as 4,3,2, one, or 'all'", self.bands)
            found["chosen"] = () if text == "all" else tuple(int(each) - 1 for each in text.split(","))
        for name, value in found.items():
            object.__setattr__(self, name, value)
        if self.bands == "all" and self.preparation:
            raise _bad("bands", "a choice of three with prepare, which needs RGB", self.bands)
        if self.bands != "all" and len(self.ranges) not in {0, 1, len(self.chosen) or 3}:
            raise _bad("value_range", "one range, or one for each of the chosen bands", self.value_range)
        given = ((name, getattr(self, name)) for name in _CHOICES)
        self.choices.update((name, text) for name, text in given if text not in {None, "none"})


DEFAULTS = DecodePolicy()


def _bad(name: str, needed: str, given: object) -> UsageError:
    return UsageError(f"{name} must be {needed}, not {str(given)!r:.60}", code="bad-option")


def _parsed_ranges(given: object) -> tuple[tuple[float, float], ...]:
    """The pairs of black and white in a text, a pair, or several of them."""
    if isinstance(given, str) and re.search("[p%]", given):
        how = "percentiles would scale each set differently: compute them once, over the reals"
        raise _bad("value_range", f"numbers, since {how} (numpy.percentile)", given)
    try:
        parts: Any = [each.split(":") for each in given.split(",")] if isinstance(given, str) else given
        ranges = tuple((float(low), float(high)) for low, high in np.reshape(parts, (-1, 2)))
    except (OverflowError, TypeError, ValueError):
        ranges = ()
    if not ranges or not all(_LEAST < high - low < 1 / _LEAST for low, high in ranges):
        needed = "the values of black and white, the lower first, such as 0:4095, or a pair for each band"
        raise _bad("value_range", needed, given)
    return ranges


def choices_in(decoder: Mapping[str, str]) -> dict[str, str]:
    """The decoding options in the record of a decoder, which also contains versions."""
    return {name: decoder[name] for name in _CHOICES if name in decoder}


def policy_of(decoder: Mapping[str, str]) -> DecodePolicy:
    """The policy in the record of a decoder, with the default pixel limit; DataError if it is invalid."""
    try:
        return DecodePolicy(**choices_in(decoder))  # type: ignore[arg-type]
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
