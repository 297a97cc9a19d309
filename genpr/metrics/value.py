"""Values of metrics with interval, null and chance level."""

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
    extractor: str | None = None  # name of the extractor whose features it used
    variant: str | None = None  # deviation of this metric by a protocol or an option, as text
    null: float | None = None  # expected value for a perfect generator at these sizes
    null_source: str | None = None  # source of the null: a "closed form"
    interval: tuple[float, float] | None = None  # 95 %, of other draws of both sets
    bias: float | None = None  # estimated bias by the finite number of images, where known
    replicates: tuple[float, ...] | None = field(default=None, repr=False)  # the values for these halves
    n_counted: int | None = None  # images that it is a share of, or a mean over
    chance: float | None = None  # chance level of metrics of choices; None for others
    pool: int | None = None  # number of candidates in a ranking; None without ranking

    @property
    def known_null(self) -> float | None:
        """The null; None where it is only the score of one half of the reals against the other."""
        return None if self.null_source == "real halves" else self.null

    @property
    def relative(self) -> float | None:
        """Value over null, where the null is what can be reached; None for distances and nulls of another size."""
        return self.value / self.known_null if self.null_source and self.known_null else None


@dataclass(frozen=True)
class Control:
    """One half of the reals scored against the other, as if it were fake."""

    n_real: int  # images in the half that stands for the reals
    n_fake: int  # images in the other
    values: Mapping[str, float]  # by metric
    nulls: Mapping[str, float | None]  # expected values for a perfect generator at these sizes, by metric
