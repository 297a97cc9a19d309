"""The order of results, with bounds that hold for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from genpr.checkpoints.ranking.criterion import Criterion
from genpr.evaluation.result import Result
from genpr.metrics.simultaneous import AgainstBest, against_best, on_front
from genpr.metrics.uncertainty import Interval, Resampled


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one checkpoint stands.

    Attributes:
        name: As it was given.
        rank: From 1; equal values share one. In a ranking by "pareto", 1 is the front, 2 the front of the rest, and so
            on. None where the number has no value with these images.
        value: The number that it is ranked by; None for "pareto", and where it has no value.
        interval: 95 %, of this number alone; None where none is known.
        difference: The number minus that of the winner; None as for `value`.
        bounds: 95 %, of this difference, simultaneous over all checkpoints; None where no bounds are known.
        is_contender: Whether it may be the best, or on the Pareto front: with 95 %, whoever truly is has True. None where
            no bounds are known.
        dominated_by: In a ranking by "pareto", who is at least as good in both and better in one, in order.
    """

    name: str
    rank: int | None = None
    value: float | None = None
    interval: Interval | None = None
    difference: float | None = None
    bounds: Interval | None = None
    is_contender: bool | None = None
    dominated_by: tuple[str, ...] = ()


def standings(criterion: Criterion, results: Mapping[str, Result], *, bounded: bool) -> list[Standing]:
    """By one number, the best first; equal ones in the order in which they were given.

    Args:
        criterion: The number.
        results: At least one; all have its metrics.
        bounded: Whether differences may be tested, if all results have replicates.
    """
    scores = _scores(criterion, results.values()) if bounded else None
    found = against_best(scores) if scores else None
    values = [criterion.value(result) for result in results.values()]
    best = max(values, key=lambda value: criterion.sign * value)
    places = sorted(range(len(values)), key=lambda place: -criterion.sign * values[place])
    names = list(results)
    return [
        Standing(
            name=names[place],
            rank=1 + sum(criterion.sign * (value - values[place]) > 0 for value in values),
            value=values[place],
            interval=criterion.interval(results[names[place]]),
            difference=values[place] - best,
            bounds=None if found is None else _bounds(found, place, criterion.sign),
            is_contender=None if found is None else found.contenders[place],
        )
        for place in places
    ]


def front_standings(
    criteria: Sequence[Criterion], results: Mapping[str, Result], *, bounded: bool
) -> list[Standing]:
    """By two numbers: the Pareto front first, then the front of the rest, and so on; within each by the first number.

    Args:
        criteria: The two.
        results: At least one; all have their metrics.
        bounded: Whether differences may be tested, if all results have replicates.
    """
    pairs = {
        name: tuple(each.sign * each.value(result) for each in criteria) for name, result in results.items()
    }
    scores = [_scores(each, results.values()) for each in criteria] if bounded else []
    contenders = dict[str, bool]()
    if len(scores) == 2 and scores[0] and scores[1]:
        contenders = dict(zip(results, on_front(scores[0], scores[1]), strict=True))
    found, left, rank = list[Standing](), dict(pairs), 1
    while left:
        front = [
            name for name, pair in left.items() if not any(_dominates(other, pair) for other in left.values())
        ]
        for name in sorted(front, key=lambda name: -pairs[name][0]):
            dominated_by = tuple(other for other, pair in pairs.items() if _dominates(pair, pairs[name]))
            found.append(Standing(name, rank, is_contender=contenders.get(name), dominated_by=dominated_by))
            del left[name]
        rank += 1
    return found


def _scores(criterion: Criterion, results: Iterable[Result]) -> list[Resampled] | None:
    """None where one of them has no replicates."""
    found = [criterion.resampled(result) for result in results]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _bounds(found: AgainstBest, place: int, sign: int) -> Interval:
    """Of the difference in the metric's own sign."""
    ends = found.intervals[place]
    return ends if sign > 0 else Interval(-ends.high, -ends.low)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)
