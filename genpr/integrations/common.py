"""Shared by all integrations: the reals that a user passes, and conversion of float images to uint8."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from genpr.errors import DataError, UsageError
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.result import Result
from genpr.images.arrays import MAX_OUTSIDE, ImageRange, to_levels, widened
from genpr.validation import check_unmasked, is_plain


def given_evaluator(real: object, options: ScoreOptions, chosen: Collection[str]) -> Evaluator:
    """The evaluator that a user passed, or a new one for the reals.

    Options of a score must not be among the `chosen` ones for an existing evaluator.
    """
    own = [each.name for each in fields(ScoreOptions)]
    if not isinstance(real, Evaluator):
        real = Evaluator(real, **{name: getattr(options, name) for name in own})
    elif wrong := [name for name in own if name in chosen]:
        text = f"{', '.join(wrong)} cannot be set for an existing Evaluator; set it when you create the Evaluator"
        raise UsageError(text, code="bad-option")
    if options.intervals and not real.plan.intervals:
        text = "intervals=True needs an Evaluator that was created with intervals"
        raise UsageError(text, code="bad-option")
    return real


def warn_no_overlap(result: Result) -> None:
    """Show the notice of a score of 0, whose usual cause during training is a wrong value range."""
    for item in result.notices:
        if item.code == "no-overlap":
            warnings.warn(str(item), stacklevel=3)


def as_uint8(images: Any, image_range: ImageRange | None) -> Any:  # noqa: ANN401 - of the same type
    """A tensor (n, 3, h, w) or array (n, h, w, 3) as uint8; floats are rounded half up (see `genpr.images.arrays`) and clamped.

    Truncation, as in torchmetrics, makes every image half a level darker.
    """
    if isinstance(images, np.ndarray) and images.dtype in (np.float16, np.float32, np.float64):
        check_unmasked(images, "a batch")
        return as_uint8(torch.tensor(np.ascontiguousarray(images), device="cpu"), image_range).numpy()
    if not is_plain(images) or not images.is_floating_point():
        return images  # the image source reports other types
    if image_range is None:
        raise DataError(
            f"images are {images.dtype} without a declared range; pass normalize=True for values in 0..1, or image_range, such "
            "as image_range=(-1, 1)",
            code="image-range",
        )
    images = widened(images.detach())
    if not images.isfinite().all():
        raise DataError(
            "images contain NaN or infinite values; check that training did not diverge", code="non-finite"
        )
    levels, outside = to_levels(images, image_range)
    if outside > MAX_OUTSIDE:
        low, high = image_range
        # An identical message each time, so that Python shows it once.
        warnings.warn(
            f"more than {MAX_OUTSIDE:.0%} of the values of images are outside the declared range {low:g} to {high:g} and were "
            "clamped; check it (normalize, image_range). A generator may also overshoot early in training",
            stacklevel=2,
        )
    return levels
