"""The records of a metric, everything that other modules know about it, and of its values.

Modules that compute, plan, resample or print a metric read these fields and never compare its name. Importing this
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from genpr.neighbors.balls import BallKind, CountRequest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from genpr.neighbors.counts import Memberships, Neighborhood
    from genpr.neighbors.engine import Advance
    from genpr.validation import Ties

Kind = Literal["neighbors", "distance", "fakes-only", "held-out", "conditional"]
Null = Callable[["Memberships", int], float | None]
"""Expected value for a perfect generator, from the counts and k; None if it is not known."""

MANIFOLD = "manifold"


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
    n_counted: int | None = None  # images, or groups of dependent ones, that it is a share of, or a mean over
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


@dataclass(frozen=True)
class EntityRow:
    """One entity over all images with a readable answer."""

    entity: str  # its canonical name
    n_expected: int  # images in which it is expected
    n_found: int  # images in which it is expected and found
    n_false: int | None  # images in which it is found and wrong; None if unknown, as without a vocabulary


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric."""

    name: str  # as in `metrics=`. Conditional metrics have their family as a prefix
    meaning: str  # what it measures, in at most 54 characters
    kind: Kind  # what it is computed from: neighbor counts, two distributions, the fakes alone
    reference: str  # where it was published
    better: Literal["higher", "lower", "at null"] = "higher"
    extractor: str | None = None  # the extractor on whose features it is defined
    least: int = 2  # images of each source without which it is not defined, besides k + 1
    lower: float | None = 0.0  # smallest possible value; None if there is none
    upper: float | None = 1.0  # largest possible value; None if there is none
    is_default: bool = False  # whether it is computed when no metrics are chosen, and per class

    @property
    def family(self) -> str:
        """Metrics of different families are never averaged: "manifold" (with the distances), or the prefix of the name."""
        return family_of(self.name)


def family_of(name: str) -> str:
    """The family of a metric by its name."""
    family, dot, _ = name.partition(".")
    return family if dot else MANIFOLD


def plain_name(name: str) -> str:
    """The name of a metric as results hold it: `manifold.recall` is `recall`."""
    return name.removeprefix(f"{MANIFOLD}.")


@dataclass(frozen=True, kw_only=True)
class NeighborMetric(Metric):
    """A metric of k nearest neighbors."""

    kind: Kind = "neighbors"
    k: int = 5  # default number of neighbors
    k_is_fixed: bool = False  # whether k is fixed
    is_per_image: bool = False  # whether it is the mean, median or share of numbers of single images


class HalfSizes(NamedTuple):
    """Rows of each half of the reals and of the fakes."""

    real: int
    fake: int


@dataclass(frozen=True, slots=True)
class HalfSampling:
    """How a ball metric follows from counts of halves of both sets; an interval is derived from its spread."""

    requests: Callable[[int, Ties], tuple[CountRequest, ...]]  # what to count, for a k and a rule for ties
    # From k, the sizes and these counts, each (t, B): (B,) float64. It is not clipped at 1: if all halves were
    # clipped to 1, the interval would have no width.
    value: Callable[[int, HalfSizes, Sequence[Tensor]], Tensor]


@dataclass(frozen=True, kw_only=True)
class BallMetric(NeighborMetric):
    """A metric of ball memberships: an integer count followed by one or two divisions."""

    # The metric from the counts, for a k; NaN where it is undefined
    value: Callable[[Memberships, int], float]
    over: Literal["real", "fake", "both"]  # images that it is a fraction of, or a mean over
    # The ball around each real whose counts it needs, for a k
    real_ball: Callable[[int], BallKind] | None = None
    fake_ball: Callable[[int], BallKind] | None = None  # the one around each fake
    null: Null = lambda _counts, _k: 1.0  # expected value for a perfect generator, from the same counts
    null_source: str = "closed form"  # where the null comes from
    null_ball: Callable[[int], BallKind] | None = None  # a ball around each real that only the null needs
    calibrates: str | None = None  # the metric whose value over its null this is
    halves: HalfSampling | None = None  # how its interval is computed; None if no interval was validated
    # Value above which intervals were not validated; None if there is none
    most_with_interval: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairwiseMetric(NeighborMetric):
    """A metric of neighbors that memberships do not give. Its balls are closed whatever the rule for ties."""

    # The metric, for a k; None where it is undefined. It reports pairs of rows that it searched
    find: Callable[[Neighborhood, Neighborhood, Memberships, int, Advance], MetricValue | None]
    pairs: Callable[[int, int], int] = lambda _n, _m: 0  # how many these are, for n reals and m fakes
    ball: Callable[[int], BallKind]  # the ball around each real that it needs, for a k
    smallest: bool = False  # whether it needs the smallest such ball around each fake
    keep: int = 0  # nearest neighbors of each real that it needs


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributionOptions:
    """Options of distribution metrics that protocols set."""

    device: torch.device  # where to compute
    inception_score_split_size: int | None = None  # images per part of the Inception Score, in order
    interval_seed: int | None = None  # of the halves that replicates are made of; None computes no intervals
    # numbers of the groups of dependent reals and fakes, one per row; None for independent ones
    groups: tuple[Tensor | None, Tensor | None] = (None, None)


@dataclass(frozen=True, kw_only=True)
class DistributionMetric(Metric):
    """A metric of two distributions, or of the fakes alone, without neighbors."""

    compute: Callable[..., MetricValue]  # from features or moments of both sets, and options
    uses_moments: bool = False  # whether mean and covariance are all that it needs of the reals
    samples_subsets: bool = False  # whether it is a mean over random subsets whose size the references fix


@dataclass(frozen=True, kw_only=True)
class HeldOutMetric(Metric):
    """A test of fakes against the reals of training and others that were held out of it."""

    kind: Kind = "held-out"
    compute: Callable[..., MetricValue | None]  # from features of reals, held-out reals and fakes
