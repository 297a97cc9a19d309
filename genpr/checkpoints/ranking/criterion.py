"""What results are ranked by: a metric, the F-score of precision and recall, or the Pareto front of the two.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from genpr.errors import UsageError, some
from genpr.metrics.f_beta import F_SCORE_METRICS, beta_of, f_beta, resampled_f_beta
from genpr.metrics.metric import plain_name
from genpr.metrics.registry import ALL_METRICS

if TYPE_CHECKING:
    from genpr.evaluation.result import Result
    from genpr.metrics.uncertainty import Interval, Resampled

PARETO = "pareto"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One number of a result, and which way is better.

    Attributes:
        name: As the user wrote it.
        needs: The metrics that it is found from.
        better: "higher" or "lower".
        beta: Of an F-score; None for a metric.
    """

    name: str
    needs: tuple[str, ...]
    better: str = "higher"
    beta: float | None = None

    @property
    def sign(self) -> int:
        """What turns the number into one of which more is better."""
        return 1 if self.better == "higher" else -1

    def value(self, result: Result) -> float:
        """The number; every metric that it needs has a value."""
        return self._of({name: result[name] for name in self.needs})

    def value_in(self, values: Mapping[str, float]) -> float | None:
        """The number from values by metric; None where one that it needs is missing."""
        return self._of(values) if all(name in values for name in self.needs) else None

    def _of(self, values: Mapping[str, float]) -> float:
        if self.beta is None:
            return values[self.name]
        precision, recall = (values[name] for name in F_SCORE_METRICS)
        return f_beta(precision, recall, self.beta)

    def resampled(self, result: Result) -> Resampled | None:
        """The number with its replicates, in the sign in which more is better; None where it has none."""
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

    def interval(self, result: Result) -> Interval | None:
        """95 %, of this result alone; None where none is known."""
        from genpr.metrics.uncertainty import Interval, interval_of

        if self.beta is None:
            ends = result.metrics[self.name].interval
            return None if ends is None else Interval(*ends)
        found = self.resampled(result)
        return None if found is None else interval_of(found.value, found.replicates, n=found.n)


def criterion_of(by: str) -> tuple[Criterion, ...]:
    """The number that `by` names; for "pareto", precision and recall.

    Raises:
        UsageError: It is unknown ("unknown-metric"), an F-score of an impossible beta ("bad-beta"), or a metric of
            which neither more nor less is better ("no-order").
    """
    by = plain_name(by)
    if by == PARETO:
        return tuple(Criterion(name, (name,)) for name in F_SCORE_METRICS)
    beta = beta_of(by)
    if beta is not None:
        return (Criterion(by, F_SCORE_METRICS, beta=beta),)
    if by not in ALL_METRICS:
        raise UsageError(
            f"unknown ranking {by!r}: needed f<beta> such as f1, f0.5 or f2, {PARETO}, or one of {', '.join(ALL_METRICS)}",
            code="unknown-metric",
        )
    better = ALL_METRICS[by].better
    if better == "at null":
        raise UsageError(
            f"{by} cannot rank: a perfect generator is in its middle, so neither more nor less is better",
            code="no-order",
        )
    return (Criterion(by, (by,), better=better),)


def number_of(by: str) -> Criterion:
    """The one number that `by` names.

    Raises:
        UsageError: As `criterion_of`; or `by` is "pareto", which names two ("no-order").
    """
    first, *others = criterion_of(by)
    if others:
        raise UsageError(
            f"{by} is no single number, so it names no best one; needed f<beta> such as f1, f0.5 or f2, or a metric",
            code="no-order",
        )
    return first


def check_computed(by: str, held: Sequence[str], who: str = "the Evaluator does not compute") -> None:
    """Refuse what cannot be ranked by.

    Args:
        by: As for `criterion_of`.
        held: The metrics that there are.
        who: Has them, for the message.

    Raises:
        UsageError: As `criterion_of`; or a metric that is needed is not there ("not-computed").
    """
    missing = [need for each in criterion_of(by) for need in each.needs if need not in held]
    if missing:
        raise UsageError(
            f"ranking by {by} needs {' and '.join(dict.fromkeys(missing))}, which {who} "
            f"(there are {some(held, 20)}); score again with these metrics, or rank by another",
            code="not-computed",
        )
