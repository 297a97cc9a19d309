"""The real side of a metric object: an evaluator, what one takes as reals, or reals that come later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self

import torch

from genpr.errors import UsageError
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.plan import ScorePlan
from genpr.features.embedder import Embedder
from genpr.features.extractor import FeatureExtractor
from genpr.features.inputs import OpenedImages
from genpr.features.options import EmbedOptions
from genpr.images.arrays import TensorSource
from genpr.validation import check_ties


@dataclass(frozen=True, kw_only=True)
class RealOptions:
    """What an evaluator is made with; see `genpr.Evaluator`."""

    extractor: str | FeatureExtractor | None = None
    protocol: str = "genpr"
    metrics: Sequence[str] | None = None
    k: int | None = None
    ties: Literal["closed", "strict"] | None = None
    seed: int = 0
    device: str | torch.device = "auto"
    batch_size: int = 64
    weights: str | os.PathLike[str] | None = None
    offline: bool = False

    @property
    def chosen(self) -> list[str]:
        """Names of those that are not as they would be."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]

    def evaluator(self, real: object, *, intervals: bool) -> Evaluator:
        """An evaluator with these options. It has no control, which a loop would not show."""
        return Evaluator(
            real,
            extractor=self.extractor,
            protocol=self.protocol,
            metrics=self.metrics,
            k=self.k,
            ties=self.ties,
            seed=self.seed,
            device=self.device,
            batch_size=self.batch_size,
            weights=self.weights,
            offline=self.offline,
            intervals=intervals,
            control=False,
        )

    def plan(self, *, intervals: bool) -> ScorePlan:
        """What that evaluator would compute for images, before there are any."""
        if self.ties is not None:
            check_ties(self.ties)
        nothing = TensorSource("<real images>", torch.empty(0, 3, 1, 1, dtype=torch.uint8))
        return ScorePlan.of(
            self.protocol,
            OpenedImages(nothing, on_disk=False),
            extractor=self.extractor,
            metrics=self.metrics,
            k=self.k,
            ties=self.ties,
            intervals=intervals,
            control=False,
        )

    def embedder(self) -> Embedder:
        """How it would embed."""
        return Embedder(
            EmbedOptions(
                device=self.device,
                weights=self.weights,
                offline=self.offline,
                seed=self.seed,
                batch_size=self.batch_size,
                cache=False,
            )
        )


@dataclass(frozen=True)
class GivenReals:
    """A real side, perhaps still to come.

    Attributes:
        evaluator: What scores against it; None if reals come later.
        plan: What will be computed.
        embedder: How images are embedded.
        options: For the evaluator of reals that come later.
        intervals: The same.
    """

    evaluator: Evaluator | None
    plan: ScorePlan
    embedder: Embedder
    options: RealOptions
    intervals: bool

    @classmethod
    def of(cls, real: object, options: RealOptions, *, intervals: bool) -> Self:
        """The real side from what the user gave.

        Args:
            real: An evaluator, what one takes as reals, or None.
            options: For making an evaluator.
            intervals: Whether intervals are wanted.

        Raises:
            UsageError: Options are given beside an evaluator, or it was made without intervals and they are wanted.
            DataError: The real side cannot be used.
        """
        if real is None:
            return cls(None, options.plan(intervals=intervals), options.embedder(), options, intervals)
        if not isinstance(real, Evaluator):
            real = options.evaluator(real, intervals=intervals)
        elif options.chosen:
            raise UsageError(
                f"{', '.join(options.chosen)} belong to the Evaluator that was given; make it with them",
                code="bad-option",
            )
        if intervals and not real.plan.intervals:
            raise UsageError(
                "intervals=True needs an Evaluator with intervals, but the one given was made with intervals=False",
                code="bad-option",
            )
        return cls(real, real.plan, real.embedder, options, intervals)

    def __reduce__(self) -> tuple[object, ...]:
        """For another process, where it is made again."""
        if self.evaluator is not None:
            raise UsageError(
                "a real side that is fitted cannot be sent to another process; make the metric in the process that uses it, "
                "or give it the reals by update",
                code="not-portable",
            )
        return _still_to_come, (self.options, self.intervals)

    def fit(self, real: object) -> Evaluator:
        """An evaluator for reals that came later."""
        return self.options.evaluator(real, intervals=self.intervals)


def _still_to_come(options: RealOptions, intervals: bool) -> GivenReals:
    return GivenReals.of(None, options, intervals=intervals)
