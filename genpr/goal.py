"""What the best of several settings is best at: one number, with others that must not be too low."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from genpr.criterion import PARETO, Criterion, criterion_of
from genpr.errors import UsageError
from genpr.result import Result


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
                    f"{name} needs {', '.join(missing)}, but computed are {', '.join(computed)}; add it to the metrics",
                    code="goal-not-computed",
                )

    def best(self, results: Sequence[Result]) -> int | None:
        """Place of the best of several results, the first among equals; None if all of them are out.

        Raises:
            UsageError: As `check`.
        """
        self.check(list(results[0].metrics))
        floors = {_higher(name): least for name, least in self.at_least.items()}
        fit = [
            place
            for place, result in enumerate(results)
            if all(criterion.value(result) >= least for criterion, least in floors.items())
        ]
        wanted = _higher(self.maximize)
        return max(fit, key=lambda place: (wanted.value(results[place]), -place), default=None)

    def __str__(self) -> str:
        floors = [f"{name} at least {least:g}" for name, least in self.at_least.items()]
        return f"highest {self.maximize}" + (f" with {' and '.join(floors)}" if floors else "")


def _higher(name: str) -> Criterion:
    """One number of which more is better."""
    found = criterion_of(name)
    if name == PARETO or found[0].better != "higher":
        why = "no single number" if name == PARETO else "a number of which less is better"
        raise UsageError(f"the goal wants much of {name}, which is {why}", code="goal-not-higher")
    return found[0]
