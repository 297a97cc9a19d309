"""Rank checkpoints that are scored on the same reals: which is best, and which are statistically tied with it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpr.checkpoints.criterion import (
    PARETO,
    Criterion,
    check_computed,
    criterion_of,
    dominates,
    number_of,
    pareto_front,
    resampled_in_all,
)
from genpr.errors import DataError, GenprError, UsageError
from genpr.evaluation.compare import compare, short_labels
from genpr.evaluation.result import Result, recipe_of
from genpr.images.datasets import CountedBatches
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.uncertainty import Interval, against_best, on_front

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import Evaluator

_LEVEL = 0.95
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class RankEntry:
    """One checkpoint in a ranking.

    Equal values share a rank; in a ranking by "pareto", 1 is the front, 2 the front of the rest, and so on. The rank, the
    value and its difference to that of the winner are None where it has no value with these images, the latter two for
    "pareto". `interval` is of this number alone; `bounds` are of the difference, simultaneous over all checkpoints, and None
    with `is_contender` where none are known. `dominated_by` is of "pareto".
    """

    name: str
    rank: int | None = None
    value: float | None = None
    interval: Interval | None = None
    difference: float | None = None
    bounds: Interval | None = None
    is_contender: bool | None = None
    dominated_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ranking:
    """Checkpoints in order: entries and results with the best first, those without a value last.

    `remarks` is what a reader of the order should know; `drawn_by` says
    what drew the images of those that genpr drew itself.
    """

    by: str
    better: str
    entries: tuple[RankEntry, ...]
    results: Mapping[str, Result]
    remarks: tuple[str, ...]
    drawn_by: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def winner(self) -> str:
        """The first by its value; of equal ones, and on a Pareto front, the one that is listed first."""
        return self.entries[0].name

    @property
    def has_bounds(self) -> bool:
        """Whether differences could be tested."""
        return self.entries[0].is_contender is not None

    @property
    def contenders(self) -> tuple[str, ...]:
        """With 95 %, the true best, or all of the true Pareto front, are among these; empty where no bounds are known."""
        return tuple(each.name for each in self.entries if each.is_contender)

    @property
    def summary(self) -> str:
        """The outcome in a sentence or two."""
        by, entries = self.by, self.entries
        first = [each.name for each in entries if each.rank == 1]
        where = "on the Pareto front of precision and recall" if by == PARETO else f"first by {by}"
        ahead = f"{listed(first)} {'are' if len(first) > 1 else 'is'} {where}"
        if len(first) == len(entries):
            return f"{ahead}; there is no other."
        if entries[0].is_contender is None:
            return f"{ahead}; no confidence bounds are available, so the difference may be chance."
        tied = [each.name for each in entries if each.is_contender and each.name not in first]
        count = sum(each.is_contender is not None for each in entries)
        if not tied:
            return f"{ahead}, and the others are worse by simultaneous 95 % bounds over all {count}."
        truth = "the true front is" if by == PARETO else f"the true best of these {count} is"
        verb = "are" if len(tied) > 1 else "is"
        return f"{ahead}, but {listed(tied)} {verb} statistically tied with the best: with 95 % confidence, {truth} among those marked *."

    def __getitem__(self, name: str) -> RankEntry:
        """The entry of the checkpoint `name`."""
        return {each.name: each for each in self.entries}[name]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        return {
            "by": self.by,
            "better": self.better,
            "level": _LEVEL,
            "winner": self.winner,
            "has_bounds": self.has_bounds,
            "contenders": list(self.contenders),
            "summary": self.summary,
            "remarks": list(self.remarks),
            "drawn_by": {name: dict(what) for name, what in self.drawn_by.items()},
            "checkpoints": [asdict(each) for each in self.entries],
            "results": {name: result.to_dict() for name, result in self.results.items()},
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def rank_checkpoints(
    evaluator: Evaluator,
    checkpoints: Mapping[str, object] | Sequence[str | os.PathLike[str]],
    *,
    by: str = "f1",
    force: bool = False,
) -> Ranking:
    """Score each checkpoint's images once, and rank them.

    Args:
        evaluator: The reals, and what to compute.
        checkpoints: Anything that `Evaluator.score` takes, by name; or paths, which are then named like their files.
        by: `f1`, `f0.5` or any other F-score of precision and recall; a metric of `genpr list metrics`; or "pareto", for
            the checkpoints to which no other is preferable in both precision and recall.
        force: Rank even sets of different numbers of images.

    Raises:
        UsageError: `by` is unknown or not computed by this Evaluator, or the checkpoints are none, or have no names.
        DataError: One of them cannot be scored (the message names it), or has another number of images.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import genpr
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, late = rng.normal(size=(2, 300, 4))
        >>> sets = {"early": 0.3 * late, "late": late}
        >>> ranking = genpr.rank_checkpoints(genpr.Evaluator(real), sets, by="recall")
        >>> ranking.winner, ranking.contenders
        ('late', ('late',))
    """
    named = checkpoints if isinstance(checkpoints, Mapping) else by_name(checkpoints)
    check_computed(by, evaluator.metrics)
    results, drawn_by = dict[str, Result](), dict[str, Mapping[str, object]]()
    for name, source in named.items():
        try:
            results[name] = evaluator.score(source)
        except GenprError as error:
            error.args = (f"checkpoint {name}: {error}", *error.args[1:])
            raise
        if isinstance(source, CountedBatches) and source.drawn_by is not None:
            drawn_by[name] = source.drawn_by
    return replace(rank_results(results, by=by, force=force), drawn_by=drawn_by)


def rank_results(results: Mapping[str, Result], *, by: str = "f1", force: bool = False) -> Ranking:
    """Rank scores that were made alike, on the same reals.

    Args:
        results: By name, at least one.
        by: As in `rank_checkpoints`.
        force: Rank even what was not made alike; the differences are then among the remarks.

    Raises:
        UsageError: `by` is unknown, or a result does not hold it; or there are no results.
        DataError: They differ in more than the fakes ("not-alike"), or none of them has a value ("undefined").
    """
    criteria = criterion_of(by)
    if not results:
        raise UsageError("a ranking needs at least one checkpoint, found none", code="no-checkpoints")
    needs = tuple(dict.fromkeys(metric for each in criteria for metric in each.needs))
    for name, result in results.items():
        check_computed(by, (*result.metrics, *result.undefined), f"{name} does not hold")
    valued = {name: result for name, result in results.items() if {*needs} <= {*result.metrics}}
    missing = [name for name in results if name not in valued]
    if not valued:
        raise DataError(f"{' and '.join(needs)} have no value with any of these images", code="undefined")
    remarks = [f"not made alike: {difference}" for difference in _differences(valued, needs, force=force)]
    if missing:
        remarks.append(f"no value of {by} with these images: {listed(missing)}")
    recipes = [recipe_of(result) for result in valued.values()]
    bounded = all(recipe[need] == recipes[0][need] for recipe in recipes for need in needs)
    if by == PARETO:
        ranked = _rank_by_front(criteria, valued, bounded=bounded)
    else:
        ranked = _rank_by_number(criteria[0], valued, bounded=bounded)
    if ranked[0].is_contender is None:
        remarks.append(f"no bounds: {by} was not found alike in all, or has no interval in some")
    entries = (*ranked, *(RankEntry(name) for name in missing))
    ordered = {each.name: results[each.name] for each in entries}
    return Ranking(by, criteria[0].better, entries, ordered, tuple(remarks))


def _rank_by_number(criterion: Criterion, results: Mapping[str, Result], *, bounded: bool) -> list[RankEntry]:
    """Entries by one number, the best first; equal ones in the given order."""
    scores = resampled_in_all(criterion, results.values()) if bounded else None
    tests = against_best(scores) if scores else None
    names, sign = list(results), criterion.sign
    values = [criterion.value(result) for result in results.values()]
    best = max(values, key=lambda value: sign * value)
    entries = []
    for index in sorted(range(len(values)), key=lambda index: -sign * values[index]):
        ends = None if tests is None else tests.intervals[index]
        entries.append(
            RankEntry(
                name=names[index],
                rank=1 + sum(sign * (value - values[index]) > 0 for value in values),
                value=values[index],
                interval=criterion.interval(results[names[index]]),
                difference=values[index] - best,
                bounds=ends if ends is None or sign > 0 else Interval(-ends.high, -ends.low),
                is_contender=None if tests is None else tests.contenders[index],
            )
        )
    return entries


def _rank_by_front(
    criteria: Sequence[Criterion], results: Mapping[str, Result], *, bounded: bool
) -> list[RankEntry]:
    """Entries by two numbers: the Pareto front, then the front of the rest, and so on; within each by the first number."""
    first, second = criteria
    pairs = {name: (first.value(result), second.value(result)) for name, result in results.items()}
    scores = [resampled_in_all(each, results.values()) for each in criteria] if bounded else []
    contenders = dict[str, bool]()
    if len(scores) == 2 and scores[0] and scores[1]:
        contenders = dict(zip(results, on_front(scores[0], scores[1]), strict=True))
    entries, left, rank = list[RankEntry](), dict(pairs), 1
    while left:
        names = list(left)
        front = [names[index] for index in pareto_front(list(left.values()))]
        for name in sorted(front, key=lambda name: -pairs[name][0]):
            dominated_by = tuple(other for other, pair in pairs.items() if dominates(pair, pairs[name]))
            entries.append(
                RankEntry(name, rank, is_contender=contenders.get(name), dominated_by=dominated_by)
            )
            del left[name]
        rank += 1
    return entries


@dataclass(frozen=True)
class Objective:
    """What the best of several results maximizes, with lower limits on other numbers; results below one are excluded."""

    maximize: str = "f1"
    at_least: Mapping[str, float] = field(default_factory=dict)

    def check(self, computed: Collection[str]) -> None:
        """Check that all metrics of the objective are computed, and that higher is better in each."""
        for name in (self.maximize, *self.at_least):
            if number_of(name).better != "higher":
                raise UsageError(f"{name} cannot be an objective: less of it is better", code="no-order")
            check_computed(name, computed)

    def best(self, results: Sequence[Result]) -> int | None:
        """Index of the best of several results, the first of equal ones; None if all are excluded."""
        values = self._included(results)
        return max(values, key=lambda index: (values[index], -index), default=None)

    def contenders(self, results: Sequence[Result]) -> tuple[int, ...] | None:
        """Indices of the best and of those statistically tied with it, among the results that are not excluded.

        The lower limits are compared with the values alone. None where ties are not known: a result has no replicates, or
        they were not made alike; see `genpr.rank_results`.
        """
        included = {str(index): results[index] for index in self._included(results)}
        if not included:
            return ()
        ranking = rank_results(included, by=self.maximize, force=True)
        return None if ranking.remarks else tuple(sorted(map(int, ranking.contenders)))

    def _included(self, results: Sequence[Result]) -> dict[int, float]:
        """The number of each result that has one and is above the lower limits, by its index."""
        self.check(list(results[0].metrics))
        found = {}
        for index, result in enumerate(results):
            values = {name: metric.value for name, metric in result.metrics.items()}
            limited = [(number_of(name).value_in(values), least) for name, least in self.at_least.items()]
            value = number_of(self.maximize).value_in(values)
            if value is not None and all(each is not None and each >= least for each, least in limited):
                found[index] = value
        return found

    def __str__(self) -> str:
        floors = [f"{name} at least {least:g}" for name, least in self.at_least.items()]
        return f"highest {self.maximize}" + (f" with {' and '.join(floors)}" if floors else "")


def by_name(paths: Sequence[str | os.PathLike[str]]) -> dict[str, str]:
    """Paths by what a ranking calls them: their file names where these tell them apart."""
    are_paths = isinstance(paths, Sequence) and all(isinstance(each, str | os.PathLike) for each in paths)
    if isinstance(paths, str) or not are_paths:
        text = "checkpoints are a mapping of names to images, or several paths"
        raise UsageError(text, code="bad-checkpoints")
    names = short_labels([Path(each).absolute() for each in paths]) if paths else []
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"the checkpoint {twice[0]} is given twice", code="bad-checkpoints")
    return dict(zip(names, [os.fspath(each) for each in paths], strict=True))


def _differences(results: Mapping[str, Result], needs: Sequence[str], *, force: bool) -> tuple[str, ...]:
    """In what they were not made alike, in words; only metrics that are ranked or shown count."""
    if len(results) < 2:
        return ()
    used = {*needs, *F_SCORE_METRICS}
    cut = {
        name: replace(result, metrics={key: each for key, each in result.metrics.items() if key in used})
        for name, result in results.items()
    }
    return compare(cut, force=force).differences


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; of many names the first ones."""
    if len(names) > _MOST_NAMES + 1:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
