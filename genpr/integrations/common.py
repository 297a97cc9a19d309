"""What all integrations share: the real side that a user gives, and float images as uint8."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan, with_pinned
from genpr.features.inputs import OpenedImages
from genpr.features.options import changed_options
from genpr.features.source_features import Embedder
from genpr.images.arrays import MAX_OUTSIDE, ArraySource, ImageRange, to_levels


def given_evaluator(real: object, options: ScoreOptions, *, of_evaluator: Collection[str]) -> Evaluator:
    """The evaluator that a user gave, or one of the reals that were given.

    The options `of_evaluator` belong to an evaluator that is given.
    """
    if not isinstance(real, Evaluator):
        real = Evaluator.from_options(real, options)
    elif chosen := changed_options(options, of_evaluator):
        text = f"{', '.join(chosen)} belong to the Evaluator that was given; make it with them"
        raise UsageError(text, code="bad-option")
    if options.intervals and not real.plan.intervals:
        text = "intervals=True needs an Evaluator with intervals, but the one given was made with intervals=False"
        raise UsageError(text, code="bad-option")
    return real


def planned(options: ScoreOptions) -> tuple[ScorePlan, Embedder]:
    """What will be computed of images, and how they are embedded, before there are any."""
    options = with_pinned([options])
    nothing = ArraySource("<real images>", torch.empty(0, 3, 1, 1, dtype=torch.uint8, device="cpu"))
    plan = ScorePlan.of(OpenedImages(nothing, on_disk=False), options)
    return plan, Embedder(replace(options, cache=False))


def as_uint8(images: Tensor, image_range: ImageRange | None) -> Tensor:
    """Images (n, 3, h, w) as uint8; floats are rounded half up (see `genpr.images.arrays`) and cut off at the range.

    Truncation, which torchmetrics' own metrics use, makes every image half a level darker.
    """
    if not isinstance(images, Tensor) or not images.is_floating_point():
        return images  # the source that takes them says what is wrong with anything else
    if image_range is None:
        raise DataError(
            f"images are {images.dtype}, and only their maker knows which values are black and white; declare it: "
            "normalize=True for values in 0..1, else image_range=(-1, 1) or whatever it is",
            code="image-range",
        )
    if not images.isfinite().all():
        raise DataError(
            "images hold NaN or infinite values; check that training did not diverge", code="non-finite"
        )
    levels, outside = to_levels(images.detach(), image_range)
    if outside > MAX_OUTSIDE:
        low, high = image_range
        # The same words each time, so that Python shows them once and not at every batch.
        warnings.warn(
            f"more than {MAX_OUTSIDE:.0%} of the values of images lie outside of their declared range {low:g} to {high:g} "
            "and were cut off; check it (normalize, image_range). A generator in training may also overshoot that much for a "
            "while",
            stacklevel=2,
        )
    return levels
