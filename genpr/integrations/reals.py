"""The real side of a metric object: an evaluator, what one takes as reals, or reals that come later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

import torch

from genpr.errors import UsageError
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.features.inputs import OpenedImages
from genpr.features.options import changed_options
from genpr.features.source_features import Embedder
from genpr.images.arrays import ArraySource


@dataclass(frozen=True)
class GivenReals:
    """A real side, perhaps still to come.

    Attributes:
        evaluator: What scores against it; None if reals come later.
        plan: What will be computed.
        embedder: How images are embedded.
        options: For the evaluator of reals that come later.
    """

    evaluator: Evaluator | None
    plan: ScorePlan
    embedder: Embedder
    options: ScoreOptions

    @classmethod
    def of(cls, real: object, options: ScoreOptions, *, of_evaluator: Collection[str]) -> Self:
        """The real side from what the user gave.

        Args:
            real: An evaluator, what one takes as reals, or None.
            options: For making an evaluator. It has no control, which a loop would not show.
            of_evaluator: The options that belong to an evaluator that is given.

        Raises:
            UsageError: Options are given beside an evaluator, or it was made without intervals and they are requested.
            DataError: The real side cannot be used.
        """
        options = replace(options, control=False)
        if real is None:
            return cls.still_to_come(options)
        if not isinstance(real, Evaluator):
            real = Evaluator.from_options(real, options)
        elif chosen := changed_options(options, of_evaluator):
            raise UsageError(
                f"{', '.join(chosen)} belong to the Evaluator that was given; make it with them",
                code="bad-option",
            )
        if options.intervals and not real.plan.intervals:
            raise UsageError(
                "intervals=True needs an Evaluator with intervals, but the one given was made with intervals=False",
                code="bad-option",
            )
        return cls(real, real.plan, real.embedder, options)

    @classmethod
    def still_to_come(cls, options: ScoreOptions) -> Self:
        """The plan for images, before there are any."""
        nothing = ArraySource("<real images>", torch.empty(0, 3, 1, 1, dtype=torch.uint8))
        plan = ScorePlan.of(options.protocol, OpenedImages(nothing, on_disk=False), options)
        return cls(None, plan, Embedder(replace(options, cache=False)), options)

    def __reduce__(self) -> tuple[object, ...]:
        """For another process, where it is made again."""
        if self.evaluator is not None:
            raise UsageError(
                "a real side that is fitted cannot be sent to another process; make the metric in the process that uses it, "
                "or give it the reals by update",
                code="not-portable",
            )
        return GivenReals.still_to_come, (self.options,)

    def fit(self, real: object) -> Evaluator:
        """An evaluator for reals that came later."""
        return Evaluator.from_options(real, self.options)
