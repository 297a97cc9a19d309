"""What a ranking says, in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genpr.checkpoints.ranking.criterion import PARETO
from genpr.checkpoints.ranking.standings import Standing
from genpr.evaluation.result import Result
from genpr.metrics.metric import family_of

_MOST_NAMES = 5
_SAME_NULL = 0.02  # that of classes drawn at random differs by less


def summary_of(by: str, standings: Sequence[Standing]) -> str:
    """What came out, in a sentence or two.

    Args:
        by: What they are ranked by.
        standings: The best first, at least one.
    """
    if len(standings) == 1:
        return f"{standings[0].name} is the only checkpoint: there is nothing to compare it with."
    return _of_front(standings) if by == PARETO else _of_number(by, standings)


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; of many names the first ones."""
    if len(names) > _MOST_NAMES + 1:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _of_number(by: str, standings: Sequence[Standing]) -> str:
    first = [each.name for each in standings if each.rank == 1]
    if len(first) == len(standings):
        return f"all {len(first)} are equal by {by}."
    ahead = f"{listed(first)} {'are equal first' if len(first) > 1 else 'is first'} by {by}"
    if standings[0].is_contender is None:
        return f"{ahead}; without bounds, nobody can say whether that is more than luck."
    others = [each.name for each in standings if each.is_contender and each.name not in first]
    count = sum(each.is_contender is not None for each in standings)
    if others:
        return (
            f"{ahead}, but {listed(others)} cannot be told from the best: with 95 %, the truly best of these {count} "
            "is among those marked *."
        )
    return f"{ahead}, and the others are not as good: simultaneous 95 % bounds over all {count} tell."


def _of_front(standings: Sequence[Standing]) -> str:
    front = [each.name for each in standings if each.rank == 1]
    if len(front) == len(standings):
        return f"all {len(front)} are on the Pareto front: none is beaten in both precision and recall."
    ahead = f"{listed(front)} {'are' if len(front) > 1 else 'is'} on the Pareto front of precision and recall"
    if standings[0].is_contender is None:
        return f"{ahead}; without bounds, nobody can say whether that is more than luck."
    others = [each.name for each in standings if each.is_contender and each.name not in front]
    count = sum(each.is_contender is not None for each in standings)
    if others:
        return (
            f"{ahead}, and {listed(others)} may be: with 95 %, all that are truly on the front of these {count} are "
            "among those marked *."
        )
    return f"{ahead}, and no other is: simultaneous 95 % bounds over all {count} tell."


def unlike_nulls(results: Mapping[str, Result], needs: Sequence[str]) -> list[str]:
    """A sentence per label metric that a perfect generator does not score alike in: other classes were asked for.

    Args:
        results: By name, with a value of each of `needs`.
        needs: Metrics.
    """
    found = []
    for need in needs:
        nulls = [null for result in results.values() if (null := result.metrics[need].null) is not None]
        if family_of(need) == "label" and nulls and max(nulls) - min(nulls) > _SAME_NULL:
            found.append(
                f"a perfect generator would score {min(nulls):.3f} to {max(nulls):.3f} in {need}, as classes were asked for in "
                "other proportions: hold each value against its own null"
            )
    return found
