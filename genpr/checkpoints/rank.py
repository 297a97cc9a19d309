"""Rank checkpoints that are scored on the same reals: which is best, and which are statistically tied with it.

Importing this module does not import torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpr.errors import DataError, GenprError, UsageError, get_named, some
from genpr.evaluation.compare import compare, resampled, results_text, short_labels
from genpr.evaluation.result import Result, recipe_of
from genpr.metrics.f_beta import F_SCORE_METRICS, beta_of, f_beta, resampled_f_beta
from genpr.metrics.metric import plain_name
from genpr.metrics.registry import ALL_METRICS, similar_metrics
from genpr.metrics.uncertainty import Interval, Resampled, against_best, interval_of, on_front
from genpr.validation import check_flag

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import Evaluator

_MOST_NAMES = 5

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
        found = _all_known([resampled(result, name) for name in self.needs])
        if found is None:
            return None
        if self.beta is not None:
            precision, recall = found
            return resampled_f_beta(precision, recall, self.beta)
        (own,) = found
        return replace(own, value=self.sign * own.value, replicates=self.sign * own.replicates)

    def null(self, result: Result) -> float | None:
        """The value from the nulls of the metrics that it needs; None if one is unknown or only estimated from halves."""
        found = ((name, result.metrics[name]) for name in self.needs)
        return self.value_in(
            {name: each.null for name, each in found if each.null is not None and each.relative is not None}
        )

    def interval(self, result: Result) -> Interval | None:
        """The 95 % interval in this result alone; None if it is not known."""
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
            f"unknown criterion {by!r}{similar_metrics(by, ALL_METRICS)}; expected f<beta> such as f1, f0.5 or f2, {PARETO}, or a metric from "
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


def _all_known(found: Sequence[Resampled | None]) -> list[Resampled] | None:
    """Values with their replicates; None if one of them has no replicates."""
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


@dataclass(frozen=True, slots=True)
class RankEntry:
    """One checkpoint in a ranking.

    Equal values share a rank; in a ranking by "pareto", rank 1 is the front, rank 2 the front of the rest, and so on. Rank, value
    and difference to the winner are None if the criterion has no value with these images; value and difference are also None
    for "pareto". `interval` belongs to this value alone. `bounds` are those of the difference, simultaneous over all checkpoints;
    they and `is_contender` are None if they are not known. `dominated_by` is for "pareto".
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
    """Checkpoints in order: entries and results from best to worst, those without a value last.

    `remarks` are caveats of the ranking. `drawn_by` has the identity of the generator, for images that genpr drew.
    """

    by: str
    better: str
    entries: tuple[RankEntry, ...]
    results: Mapping[str, Result]
    remarks: tuple[str, ...]
    drawn_by: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def winner(self) -> str:
        """The best checkpoint; of equal ones, and on a Pareto front, the one that is listed first."""
        return self.entries[0].name

    @property
    def has_bounds(self) -> bool:
        """Whether bounds of differences are known."""
        return self.entries[0].is_contender is not None

    @property
    def contenders(self) -> tuple[str, ...]:
        """With 95 % confidence, these include the true best, or all of the true Pareto front; empty if no bounds are known."""
        return tuple(each.name for each in self.entries if each.is_contender)

    @property
    def summary(self) -> str:
        """The outcome in one or two sentences."""
        by, entries = self.by, self.entries
        first = [each.name for each in entries if each.rank == 1]
        where = "on the Pareto front of precision and recall" if by == PARETO else f"first by {by}"
        ahead = f"{listed(first)} {'are' if len(first) > 1 else 'is'} {where}"
        if len(first) == len(entries):
            return f"{ahead}; there are no others."
        if entries[0].is_contender is None:
            return f"{ahead}; no confidence bounds are available, so the difference may be due to chance."
        tied = [each.name for each in entries if each.is_contender and each.name not in first]
        count = sum(each.is_contender is not None for each in entries)
        if not tied:
            others = "the others are" if count > 2 else "the other is"
            return f"{ahead}, and {others} worse by simultaneous 95 % bounds over all {count}."
        truth = "the true front is" if by == PARETO else f"the true best of these {count} is"
        verb = "are" if len(tied) > 1 else "is"
        return f"{ahead}, but {listed(tied)} {verb} statistically tied with the best: with 95 % confidence, {truth} among those marked *."

    def __str__(self) -> str:
        """The summary, the remarks, and each result with its notices, from best to worst."""
        return "\n".join([self.summary, *self.remarks, "", results_text(self.results)])

    def __getitem__(self, name: str) -> RankEntry:
        """The entry of the checkpoint `name`."""
        return get_named({each.name: each for each in self.entries}, name, "checkpoint")

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        return {
            "by": self.by,
            "better": self.better,
            "level": 0.95,
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
    """Score the images of each checkpoint once, and rank the checkpoints.

    Args:
        evaluator: The fitted reals and the options of the score.
        checkpoints: Sources for `Evaluator.score`, by name; or paths, which are named by their files.
        by: `f1`, `f0.5` or any other F-score of precision and recall; a metric of `genpr list metrics`; or "pareto", for
            the checkpoints that no other one dominates in precision and recall.
        force: Accept sets with different numbers of images.

    Raises:
        UsageError: `by` is unknown or not computed by this Evaluator, or there are no checkpoints, or no names.
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
    from genpr.images.datasets import CountedBatches

    check_flag(force, "force")
    named = checkpoints if isinstance(checkpoints, Mapping) else by_name(checkpoints)
    check_computed(by, evaluator.metrics)
    results, drawn_by = dict[str, Result](), dict[str, Mapping[str, object]]()
    for name, source in named.items():
        results[name] = score_named(evaluator, source, f"checkpoint {name}")
        if isinstance(source, CountedBatches) and source.drawn_by is not None:
            drawn_by[name] = source.drawn_by
    return replace(rank_results(results, by=by, force=force), drawn_by=drawn_by)


def score_named(evaluator: Evaluator, source: object, name: str) -> Result:
    """The score of a source, whose errors name it."""
    try:
        return evaluator.score(source)
    except GenprError as error:
        error.args = (f"{name}: {error}", *error.args[1:])
        raise


def rank_results(results: Mapping[str, Result], *, by: str = "f1", force: bool = False) -> Ranking:
    """Rank scores that were computed in the same way, on the same reals.

    Args:
        results: By name, at least one.
        by: As in `rank_checkpoints`.
        force: Accept results that are not comparable; the differences are then among the remarks.

    Raises:
        UsageError: `by` is unknown, or missing in a result; or there are no results.
        DataError: They differ in more than the fakes ("not-alike"), or none of them has a value ("undefined").
    """
    criteria = criterion_of(by)
    if not results:
        raise UsageError("expected at least one checkpoint, found none", code="no-checkpoints")
    needs = tuple(dict.fromkeys(metric for each in criteria for metric in each.needs))
    for name, result in results.items():
        check_computed(by, (*result.metrics, *result.undefined), f"{name} does not contain")
    valued = {name: result for name, result in results.items() if {*needs} <= {*result.metrics}}
    missing = [name for name in results if name not in valued]
    if not valued:
        raise DataError(f"{' and '.join(needs)} have no value with any of these images", code="undefined")
    used = {*needs, *F_SCORE_METRICS}  # ranked or shown
    cut = {
        name: replace(result, metrics={key: each for key, each in result.metrics.items() if key in used})
        for name, result in valued.items()
    }
    differences = compare(cut, force=force).differences if len(cut) > 1 else ()
    remarks = [f"not comparable: {difference}" for difference in differences]
    if missing:
        remarks.append(f"{by} has no value with these images: {listed(missing)}")
    recipes = [recipe_of(result) for result in valued.values()]
    bounded = all(recipe[need] == recipes[0][need] for recipe in recipes for need in needs)
    if by == PARETO:
        ranked = _rank_by_front(criteria, valued, bounded=bounded)
    else:
        ranked = _rank_by_number(criteria[0], valued, bounded=bounded)
    if ranked[0].is_contender is None:
        remarks.append(f"no bounds: {by} was computed differently in some results, or has no interval")
    entries = (*ranked, *(RankEntry(name) for name in missing))
    ordered = {each.name: results[each.name] for each in entries}
    return Ranking(by, criteria[0].better, entries, ordered, tuple(remarks))


def _rank_by_number(criterion: Criterion, results: Mapping[str, Result], *, bounded: bool) -> list[RankEntry]:
    """Entries by one value, the best first; equal ones in the given order."""
    scores = _all_known([criterion.resampled(each) for each in results.values()]) if bounded else None
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
    """Entries by two values: the Pareto front, then the front of the rest, and so on; within each by the first value."""
    first, second = criteria
    pairs = {name: (first.value(result), second.value(result)) for name, result in results.items()}
    scores = [_all_known([by.resampled(each) for each in results.values()]) for by in criteria]
    contenders = dict[str, bool]()
    if bounded and scores[0] and scores[1]:
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


def by_name(paths: Sequence[str | os.PathLike[str]]) -> dict[str, str]:
    """Paths by their names in a ranking: file names, as far as these are unique."""
    are_paths = isinstance(paths, Sequence) and all(isinstance(each, str | os.PathLike) for each in paths)
    if isinstance(paths, str) or not are_paths:
        text = "checkpoints must be a mapping of names to images, or a sequence of paths"
        raise UsageError(text, code="bad-checkpoints")
    names = short_labels([Path(each).absolute() for each in paths]) if paths else []
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"the checkpoint {twice[0]} is given twice; give each checkpoint once", code="bad-checkpoints"
        )
    return dict(zip(names, [os.fspath(each) for each in paths], strict=True))


def listed(names: Sequence[str]) -> str:
    """Join names as `a, b and c`; of many, the first ones."""
    if len(names) > _MOST_NAMES + 1:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
