"""Criteria of rankings: a metric, an F-score, or the Pareto front.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from genpr.errors import UsageError, similar, some
from genpr.metrics.f_beta import F_SCORE_METRICS, beta_of, f_beta, resampled_f_beta
from genpr.metrics.metric import plain_name
from genpr.metrics.registry import ALL_METRICS

if TYPE_CHECKING:
    from genpr.evaluation.result import Result
    from genpr.metrics.uncertainty import Interval, Resampled

Point = tuple[float, float]
"""Recall and precision."""

PARETO = "pareto"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A value of a result, the metrics that it is computed from, and whether higher is better; beta is that of an F-score."""

    name: str
    needs: tuple[str, ...]
    better: str = "higher"
    beta: float | None = None

    @property
    def sign(self) -> int:
        """1 if higher is better, -1 if lower is better."""
        return 1 if self.better == "higher" else -1

    def value(self, result: Result) -> float:
        """The value in a result that has all metrics that it needs."""
        value = self.value_in({name: result[name] for name in self.needs})
        assert value is not None
        return value

    def value_in(self, values: Mapping[str, float]) -> float | None:
        """The value from values by metric; None if a metric that it needs is missing."""
        if not all(name in values for name in self.needs):
            return None
        if self.beta is None:
            return values[self.name]
        precision, recall = (values[name] for name in F_SCORE_METRICS)
        return f_beta(precision, recall, self.beta)

    def resampled(self, result: Result) -> Resampled | None:
        """The value with its replicates, negated if lower is better; None without replicates."""
        from genpr.evaluation.compare import resampled

        if self.beta is None:
            found = resampled(result, self.name)
            if found is None:
                return None
            return replace(found, value=self.sign * found.value, replicates=self.sign * found.replicates)
        precision, recall = (resampled(result, name) for name in F_SCORE_METRICS)
        if precision is None or recall is None:
            return None
        return resampled_f_beta(precision, recall, self.beta)

    def null(self, result: Result) -> float | None:
        """The value from the nulls of the metrics that it needs; None if one is unknown or only estimated from halves."""
        found = ((name, result.metrics[name]) for name in self.needs)
        return self.value_in(
            {name: each.null for name, each in found if each.null is not None and each.relative is not None}
        )

    def interval(self, result: Result) -> Interval | None:
        """The 95 % interval in this result alone; None if it is not known."""
        from genpr.metrics.uncertainty import Interval, interval_of

        if self.beta is None:
            ends = result.metrics[self.name].interval
            return None if ends is None else Interval(*ends)
        found = self.resampled(result)
        return None if found is None else interval_of(found.value, found.replicates, n=found.n)


def criterion_of(by: str) -> tuple[Criterion, ...]:
    """Parse `by` into a criterion; for "pareto", into those of precision and recall."""
    by = plain_name(by)
    if by == PARETO:
        return tuple(Criterion(name, (name,)) for name in F_SCORE_METRICS)
    beta = beta_of(by)
    if beta is not None:
        return (Criterion(by, F_SCORE_METRICS, beta=beta),)
    if by not in ALL_METRICS:
        raise UsageError(
            f"unknown criterion {by!r}{similar(by, ALL_METRICS)}; expected f<beta> such as f1, f0.5 or f2, {PARETO}, or a metric from "
            "`genpr list metrics`",
            code="unknown-metric",
        )
    better = ALL_METRICS[by].better
    if better == "at null":
        text = f"{by} cannot be a criterion: a perfect generator has a value between its limits, so neither higher nor lower is better"
        raise UsageError(text, code="no-order")
    return (Criterion(by, (by,), better=better),)


def number_of(by: str) -> Criterion:
    """Parse `by` into a single criterion."""
    first, *others = criterion_of(by)
    if others:
        text = f"{by} is not a single value, so it does not define a best result; expected f<beta> such as f1, or a metric"
        raise UsageError(text, code="no-order")
    return first


def check_computed(by: str, held: Collection[str], who: str = "the Evaluator does not compute") -> None:
    """Check that results with the metrics `held` can be ranked by `by`; `who` completes the message."""
    missing = [need for each in criterion_of(by) for need in each.needs if need not in held]
    if missing:
        raise UsageError(
            f"ranking by {by} needs {' and '.join(dict.fromkeys(missing))}, which {who} "
            f"(found {some(held, 20)}); score again with these metrics, or use another criterion",
            code="not-computed",
        )


def resampled_in_all(criterion: Criterion, results: Collection[Result]) -> list[Resampled] | None:
    """The value of each result with its replicates; None if one of them has no replicates."""
    found = [criterion.resampled(result) for result in results]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def dominates(one: Point, other: Point) -> bool:
    """Whether a point is at least as good as another in both coordinates, and better in one."""
    return one[0] >= other[0] and one[1] >= other[1] and one != other


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other point dominates, by ascending recall; equal points stay together."""
    front = [
        index for index, point in enumerate(points) if not any(dominates(other, point) for other in points)
    ]
    return sorted(front, key=lambda index: points[index])
