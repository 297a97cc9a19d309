"""The record of a metric: everything that other modules know about it.

Modules that compute, plan, resample or print a metric read these fields and never compare its name. Importing this
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from genpr.metrics.value import MetricValue
from genpr.neighbors.balls import Ball

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from genpr.metrics.frechet import Gaussian
    from genpr.metrics.real_manifold import CountedFakes, Memberships, RealManifold
    from genpr.neighbors.balls import Ties
    from genpr.neighbors.resample import Asked

Kind = Literal["neighbors", "distance", "fakes-only", "held-out", "conditional"]
LeaveOneOut = Callable[[int, int], float | None]
"""Share of so many reals that lie in the k-NN ball of another real, by (number of reals, k); None where n <= k."""

Null = Callable[["Memberships", int, LeaveOneOut], float | None]
"""What a perfect generator scores, from the counts, k and the leave-one-out share."""

MANIFOLD = "manifold"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: What `metrics=` takes. Conditional metrics have their family as a prefix.
        meaning: What it measures, in at most 54 characters.
        better: Whether a better generator has more or less of it; "at null" where values above and below the null are
            both worse.
        kind: What it is computed from: neighbor counts, two distributions, the fakes alone, reals that were held out
            of training, or conditions (labels, prompts, entities).
        reference: Where it was published.
        measures: What it claims to measure; None for neither.
        space: The extractor on whose features it is defined; None for the extractor of the score.
        least: Images of each source without which it is not defined, besides k + 1.
        lower: Smallest possible value; None if there is none.
        upper: Largest possible value; None if there is none.
        is_default: Whether it is computed when no metrics are chosen, and per class.
    """

    name: str
    meaning: str
    kind: Kind
    reference: str
    better: Literal["higher", "lower", "at null"] = "higher"
    measures: Literal["fidelity", "diversity"] | None = None
    space: str | None = None
    least: int = 2
    lower: float | None = 0.0
    upper: float | None = 1.0
    is_default: bool = False

    @property
    def uses_reals(self) -> bool:
        """Whether it compares with reals, or evaluates the fakes alone."""
        return self.kind != "fakes-only"

    @property
    def family(self) -> str:
        """Metrics of different families are never averaged: "manifold" (with the distances), or the prefix of the name."""
        return family_of(self.name)


def family_of(name: str) -> str:
    """The family of a metric by its name.

    Example:
        >>> family_of("recall"), family_of("entity.recall")
        ('manifold', 'entity')
    """
    family, dot, _ = name.partition(".")
    return family if dot else MANIFOLD


def plain_name(name: str) -> str:
    """The name of a metric as results hold it: `manifold.recall` is `recall`.

    Example:
        >>> plain_name("manifold.recall"), plain_name("entity.recall")
        ('recall', 'entity.recall')
    """
    return name.removeprefix(f"{MANIFOLD}.")


@dataclass(frozen=True, kw_only=True)
class NeighborMetric(Metric):
    """A metric of k nearest neighbors.

    Attributes:
        k: Default number of neighbors.
        k_is_fixed: Whether that cannot be chosen.
        is_size_sensitive: Whether it depends on the ratio of the two numbers of images, and much less in blocks of equal
            size.
        is_per_image: Whether it is the mean, median or share of numbers that single images have.
    """

    kind: Kind = "neighbors"
    k: int = 5
    k_is_fixed: bool = False
    is_size_sensitive: bool = False
    is_per_image: bool = False


class HalfSizes(NamedTuple):
    """Rows of a half of the reals and of a half of the fakes."""

    real: int
    fake: int


@dataclass(frozen=True, slots=True)
class HalfSampling:
    """How a ball metric follows from counts of halves of both sets; an interval is derived from its spread.

    Attributes:
        requests: What to count, for a k and a rule for ties.
        value: The metric from k, the sizes of the halves and these counts, each (t, B) int64: (B,) float64. It is not
            clipped at 1, since halves that are all clipped would have no spread.
    """

    requests: Callable[[int, Ties], tuple[Asked, ...]]
    value: Callable[[int, HalfSizes, Sequence[Tensor]], Tensor]


def _no_balls(_k: int) -> tuple[Ball, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class BallMetric(NeighborMetric):
    """A metric of ball memberships: an integer count followed by one or two divisions.

    Attributes:
        value: The metric from the counts, for a k.
        over: Images that it is a fraction of, or a mean over.
        real_balls: The balls around reals whose counts it needs, for a k.
        fake_balls: Those around fakes.
        null: What a perfect generator scores, from the same counts, for a k; None where only halves of the reals give it.
        null_source: Where the null comes from.
        null_balls: Balls around reals that only the null needs.
        halves: How its interval is computed; None if no interval was validated.
    """

    value: Callable[[Memberships, int], float]
    over: Literal["real", "fake", "both"]
    real_balls: Callable[[int], tuple[Ball, ...]] = _no_balls
    fake_balls: Callable[[int], tuple[Ball, ...]] = _no_balls
    null: Null
    null_source: str
    null_balls: Callable[[int], tuple[Ball, ...]] = _no_balls
    halves: HalfSampling | None = None

    def __call__(self, counts: Memberships, k: int) -> float:
        """The value for a k."""
        return self.value(counts, k)


@dataclass(frozen=True, slots=True)
class PairwiseOptions:
    """How to run a pairwise search.

    Attributes:
        k: Neighbors.
        seed: Of what is drawn at random.
        advance: Called with the number of pairs that were evaluated since the last call.
    """

    k: int
    seed: int = 0
    advance: Callable[[int], None] = lambda _pairs: None


@dataclass(frozen=True, slots=True)
class PairwiseHalves:
    """How to compute pairwise metrics for halves of both sets.

    Attributes:
        find: Values (B,) of each metric, not clipped at 1; halves 2 s and 2 s + 1 share no image.
        count: How many halves, B.
        least: Images of each set without which halves have no value.
    """

    find: Callable[[RealManifold, CountedFakes, PairwiseOptions], dict[str, Tensor]]
    count: int
    least: int


@dataclass(frozen=True, eq=False)
class PairwiseSearch:
    """A search that ball memberships do not replace, and that yields one or several metrics.

    Attributes:
        find: Their values by name, with null and `n_counted`; None where a metric is undefined.
        pairs: How many pairs of rows it evaluates, for n reals and m fakes.
        balls: The balls around reals that it needs besides its own search, for a k.
        smallest: Whether it needs the smallest of these balls around each fake.
        keep: Nearest neighbors of each real that it needs.
        least_real: Neighbors that every real must have, for a k.
        least_fake: Neighbors that every fake must have, for a k.
        halves: Their values for halves of both sets; None if no interval was validated.
    """

    find: Callable[[RealManifold, CountedFakes, PairwiseOptions], Mapping[str, MetricValue | None]]
    pairs: Callable[[int, int], int]
    balls: Callable[[int], tuple[Ball, ...]] = _no_balls
    smallest: bool = False
    keep: int = 0
    least_real: Callable[[int], int] = lambda k: k
    least_fake: Callable[[int], int] = lambda _k: 0
    halves: PairwiseHalves | None = None


@dataclass(frozen=True, kw_only=True)
class PairwiseMetric(NeighborMetric):
    """A metric of neighbors with a search of its own. Its balls are closed whatever the rule for ties.

    Attributes:
        search: What computes it, perhaps together with others.
    """

    search: PairwiseSearch


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributionOptions:
    """What protocols choose for distribution metrics.

    Attributes:
        device: Where to compute.
        inception_score_chunk: Images per part of the Inception Score, in order; None shuffles into 10 parts.
    """

    device: torch.device
    inception_score_chunk: int | None = None


@dataclass(frozen=True, kw_only=True)
class DistributionMetric(Metric):
    """A metric of two distributions, or of the fakes alone, without neighbors.

    Attributes:
        compute: The value from what `fit` returned, fake features (m, d) or their moments, and options.
        uses_moments: Whether it depends on mean and covariance alone.
        samples_subsets: Whether it is a mean over random subsets whose size the references fix.
        file_moments: The arrays of a file of reference statistics that hold its mean and covariance.
    """

    compute: Callable[..., MetricValue]
    uses_moments: bool = False
    samples_subsets: bool = False
    file_moments: tuple[str, str] | None = None

    def fit(self, real: Tensor | Gaussian, options: DistributionOptions) -> Tensor | Gaussian:
        """What it needs to know of real features (n, d), so that each set of fakes costs only its own share."""
        from torch import Tensor

        # The moments of fewer rows than columns cost more than the rows.
        if self.uses_moments and isinstance(real, Tensor) and len(real) > real.shape[1]:
            from genpr.metrics.frechet import Gaussian

            return Gaussian.of(real, device=options.device)
        return real


@dataclass(frozen=True, kw_only=True)
class HeldOutMetric(Metric):
    """A test of fakes against the reals of training and others that were held out of it.

    Attributes:
        compute: The value from features of the reals, the held-out reals and the fakes, (n, d) each; None if undefined.
    """

    kind: Kind = "held-out"
    compute: Callable[..., MetricValue | None]
