"""Values as results hold them: with their interval, what a perfect generator scores, and what guessing does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class MetricValue:
    """One metric."""

    value: float
    k: int | None  # neighbors that define the balls, without the point itself; None where none are counted
    spread: float | None = None  # standard deviation over what `spread_over` names
    spread_over: str | None = None  # "subsets" or "parts"
    exact: bool = True  # whether the definition was computed, and not the arithmetic of another tool
    exact_value: float | None = None  # what the definition gives, where that is not `value`
    extractor: str | None = None  # name of the extractor whose features it used
    variant: str | None = None  # what a protocol or an option does differently in this metric, in words
    null: float | None = None  # what a perfect generator scores with so many images
    null_source: str | None = None  # where that is known from: a "closed form"
    interval: tuple[float, float] | None = None  # 95 %, of other draws of both sets
    bias: float | None = (
        None  # estimate of how much a finite number of images adds to it, where that is known
    )
    replicates: tuple[float, ...] | None = field(default=None, repr=False)  # the values for these halves
    n_counted: int | None = None  # images that it is a share of, or a mean over
    chance: float | None = None  # what guessing scores, where something is chosen; None for others
    pool: int | None = None  # among how many candidates one is ranked; None where none are

    @property
    def relative(self) -> float | None:
        """Value over null, where the null is what can be reached; None for distances and nulls of another size."""
        if self.null_source in (None, "real halves") or not self.null:
            return None
        return self.value / self.null


@dataclass(frozen=True)
class Control:
    """One half of the reals scored against the other, as if it were fake."""

    n_real: int  # images in the half that stands for the reals
    n_fake: int  # images in the other
    values: Mapping[str, float]  # by metric
    nulls: Mapping[str, float | None]  # what a perfect generator scores at these sizes, by metric
