"""Values as results hold them: with their interval, what a perfect generator scores, and what guessing does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricValue:
    """One metric.

    Attributes:
        value: The number.
        k: Neighbors that define the balls, without the point itself; None where none are counted.
        spread: Standard deviation over what `spread_over` names, of which the value is the mean; it is no confidence
            interval. None if there is nothing to spread.
        spread_over: "random networks", "subsets", "parts" or "blocks of equal size".
        exact: Whether the definition was computed, and not the arithmetic of another tool.
        exact_value: What the definition gives, where that is not `value`.
        extractor: Name of the extractor whose features it used.
        variant: What a protocol or an option does differently in this metric, in words.
        null: What a perfect generator scores with so many images; a value above it is nothing unusual.
        null_source: Where that is known from: a "closed form", "leave-one-out" among the reals, or "real halves".
        interval: 95 %, by halves of both sets; None where none is known to be valid.
        replicates: The values for these halves, complementary ones side by side.
        n_counted: Images that it is a share of, or a mean over.
        chance: What guessing scores, where something is chosen; None for others.
        pool: Among how many candidates one is ranked; None where none are.
    """

    value: float
    k: int | None
    spread: float | None = None
    spread_over: str | None = None
    exact: bool = True
    exact_value: float | None = None
    extractor: str | None = None
    variant: str | None = None
    null: float | None = None
    null_source: str | None = None
    interval: tuple[float, float] | None = None
    replicates: tuple[float, ...] | None = None
    n_counted: int | None = None
    chance: float | None = None
    pool: int | None = None

    @property
    def relative(self) -> float | None:
        """Value over null, where the null is what can be reached; None for distances and nulls of another size."""
        if self.null_source in (None, "real halves") or not self.null:
            return None
        return self.value / self.null


@dataclass(frozen=True)
class Control:
    """One half of the reals scored against the other, as if it were fake.

    Attributes:
        n_real: Images in the half that stands for the reals.
        n_fake: Images in the other.
        values: By metric.
        nulls: What a perfect generator scores at these sizes, by metric; None where it is not known.
    """

    n_real: int
    n_fake: int
    values: Mapping[str, float]
    nulls: Mapping[str, float | None]
