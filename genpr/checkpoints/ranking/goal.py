"""What the best of several settings is best at: one number, with others that must not be too low."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from genpr.checkpoints.ranking.criterion import PARETO, Criterion, criterion_of
from genpr.checkpoints.ranking.standings import standings
from genpr.errors import UsageError, some
from genpr.evaluation.result import Result, recipe_of


@dataclass(frozen=True)
class Goal:
    """What the best setting is best at.

    Attributes:
        maximize: A metric, or an F-score of precision and recall such as "f1".
        at_least: Such names with numbers below which a setting is out.
    """

    maximize: str = "f1"
    at_least: Mapping[str, float] = field(default_factory=dict)

    def check(self, computed: Collection[str]) -> None:
        """Refuse a goal about metrics that are not computed, or of which less is better.

        Raises:
            UsageError: "goal-not-computed", "goal-not-higher", or a name is unknown.
        """
        for name in (self.maximize, *self.at_least):
            criterion = _higher(name)
            if missing := [metric for metric in criterion.needs if metric not in computed]:
                raise UsageError(
                    f"{name} needs {', '.join(missing)}, but computed are {some(computed, 20)}; add it to the metrics",
                    code="goal-not-computed",
                )

    def best(self, results: Sequence[Result]) -> int | None:
        """Place of the best of several results, the first among equals; None if all of them are out.

        Raises:
            UsageError: As `check`.
        """
        wanted = _higher(self.maximize)
        fit = self._fit(results)
        return max(fit, key=lambda place: (wanted.value(results[place]), -place), default=None)

    def contenders(self, results: Sequence[Result]) -> tuple[int, ...] | None:
        """Places of the best and of those that cannot be told from it, among all that are not too low.

        With 95 %, the truly best of those that are not too low is among them, however many there are; see
        `genpr.metrics.simultaneous`. Whether one is too low is told by its value alone.

        Args:
            results: At least one, all on the same reals.

        Returns:
            Ascending; empty if all of them are out. None where nobody can tell: one has no replicates, or they were not made
            alike, or differ in their number of fakes.

        Raises:
            UsageError: As `check`.
        """
        wanted = _higher(self.maximize)
        fit = {str(place): results[place] for place in self._fit(results)}
        if not fit:
            return ()
        made = {
            (result.fake.n, json.dumps([recipe_of(result)[need] for need in wanted.needs]))
            for result in fit.values()
        }
        if len(made) > 1:
            return None
        found = standings(wanted, fit, bounded=True)
        if found[0].is_contender is None:
            return None
        return tuple(sorted(int(each.name) for each in found if each.is_contender))

    def _fit(self, results: Sequence[Result]) -> list[int]:
        """Places of those that have a value and are not too low."""
        self.check(list(results[0].metrics))
        floors = {self.maximize: -math.inf, **self.at_least}
        return [
            place
            for place, result in enumerate(results)
            if all(_is_at_least(result, name, least) for name, least in floors.items())
        ]

    def __str__(self) -> str:
        floors = [f"{name} at least {least:g}" for name, least in self.at_least.items()]
        return f"highest {self.maximize}" + (f" with {' and '.join(floors)}" if floors else "")


def _is_at_least(result: Result, name: str, least: float) -> bool:
    value = _higher(name).value_in({key: metric.value for key, metric in result.metrics.items()})
    return value is not None and value >= least


def _higher(name: str) -> Criterion:
    """One number of which more is better."""
    found = criterion_of(name)
    if name == PARETO or found[0].better != "higher":
        why = "no single number" if name == PARETO else "a number of which less is better"
        raise UsageError(f"the goal wants much of {name}, which is {why}", code="goal-not-higher")
    return found[0]
