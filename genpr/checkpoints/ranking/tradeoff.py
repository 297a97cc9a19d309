"""What a set of (recall, precision) points says: the front, the area below it, its knee.

References:
    Zitzler & Thiele 1999, "Multiobjective Evolutionary Algorithms: A Comparative Case Study" (dominated area).
    Das 1999, "On characterizing the knee of the Pareto curve based on normal-boundary intersection" (knee).
"""

from __future__ import annotations

from collections.abc import Sequence

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
