"""What a set of (recall, precision) points says: the front, the area below it, its knee, the best for a goal.

References:
    Zitzler & Thiele 1999, "Multiobjective Evolutionary Algorithms: A Comparative Case Study" (dominated area).
    Das 1999, "On characterizing the knee of the Pareto curve based on normal-boundary intersection" (knee).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from genpr.errors import UsageError
from genpr.metrics.catalogue import METRICS

Point = tuple[float, float]
"""Recall and precision."""


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Which points no other one beats: as good in both, and better in one. Equal points stay together.

    Returns:
        Their places, in order of rising recall.
    """
    front = [
        place
        for place, (recall, precision) in enumerate(points)
        if not any(r >= recall and p >= precision and (r, p) != (recall, precision) for r, p in points)
    ]
    return sorted(front, key=lambda place: points[place])


def dominated_area(points: Sequence[Point]) -> float:
    """Area of all (recall, precision) that some point reaches in both: 0 to 1 for values of 0 to 1.

    More points can only add to it, so that it compares sweeps over different settings fairly enough; the area under a
    line through the points would reward gaps.
    """
    area, covered = 0.0, 0.0
    for place in pareto_front(points):
        recall, precision = points[place]
        area += (recall - covered) * precision
        covered = recall
    return area


def knee(points: Sequence[Point]) -> int | None:
    """The point of the front that bulges most from the line between its ends, both axes scaled to these.

    None where the front has fewer than three different points, or none beyond the line.
    """
    front = pareto_front(points)
    (left, top), (right, bottom) = points[front[0]], points[front[-1]]
    if left == right or top == bottom:
        return None
    bulges = {
        place: (points[place][0] - left) / (right - left) + (points[place][1] - bottom) / (top - bottom) - 1
        for place in front
    }
    best = max(bulges, key=lambda place: bulges[place])
    return best if bulges[best] > 1e-12 else None


def f_beta(precision: float, recall: float, beta: float = 1.0) -> float:
    """Harmonic mean of the two, in which recall counts `beta` times as much; 0 where both are 0."""
    weight = beta * beta
    below = weight * precision + recall
    return (1 + weight) * precision * recall / below if below else 0.0


@dataclass(frozen=True)
class Goal:
    """What the best setting is best at.

    Attributes:
        maximize: A metric, or "f1".
        at_least: Metrics with values below which a setting is out.
    """

    maximize: str = "f1"
    at_least: Mapping[str, float] | None = None

    def check(self, computed: Collection[str]) -> None:
        """Refuse a goal about metrics that are not computed, or of which less is better.

        Raises:
            UsageError: "goal-not-computed" or "goal-not-higher".
        """
        needed = {
            *(self.at_least or {}),
            *({"precision", "recall"} if self.maximize == "f1" else {self.maximize}),
        }
        needed -= {"f1"}
        if missing := sorted(needed - set(computed)):
            raise UsageError(
                f"the goal needs {', '.join(missing)}, but computed are {', '.join(computed)}; add it to the metrics",
                code="goal-not-computed",
            )
        if wrong := sorted(name for name in needed if METRICS[name].better != "higher"):
            raise UsageError(
                f"the goal wants much of {', '.join(wrong)}, of which {METRICS[wrong[0]].better} is better",
                code="goal-not-higher",
            )

    def best(self, values: Sequence[Mapping[str, float]]) -> int | None:
        """Place of the best of several settings, the first among equals; None if all of them are out.

        Args:
            values: By metric, of each setting; "f1" among them.
        """
        floors = self.at_least or {}
        fit = [
            place
            for place, each in enumerate(values)
            if all(each[name] >= least for name, least in floors.items())
        ]
        if not fit:
            return None
        return max(fit, key=lambda place: (values[place][self.maximize], -place))

    def __str__(self) -> str:
        floors = [f"{name} at least {least:g}" for name, least in (self.at_least or {}).items()]
        return f"highest {self.maximize}" + (f" with {' and '.join(floors)}" if floors else "")
