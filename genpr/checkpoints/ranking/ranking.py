"""Which of several checkpoints, scored on the same reals, is the best, and which cannot be told from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genpr.checkpoints.ranking.criterion import PARETO, Criterion, check_computed, criterion_of
from genpr.checkpoints.ranking.standings import Standing, front_standings, standings
from genpr.checkpoints.ranking.words import listed, summary_of, unlike_nulls
from genpr.errors import DataError, GenprError, ResourceError, UsageError, some
from genpr.evaluation.compare import compare, short_labels
from genpr.evaluation.result import Result, recipe_of
from genpr.images.datasets import CountedBatches
from genpr.metrics.f_beta import F_SCORE_METRICS

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import Evaluator

_LEVEL = 0.95


@dataclass(frozen=True)
class Ranking:
    """Checkpoints in order.

    Attributes:
        by: What they are ranked by, as it was asked for.
        better: Whether "higher" or "lower" values of it are better.
        standings: The best first; those without a value last.
        results: The score of each, in the same order.
        left_out: Why, by name; only where that was asked for.
        remarks: What a reader of the order should know, in sentences.
        drawn_by: What drew the images of those that genpr drew itself, as plain JSON types, by name.
    """

    by: str
    better: str
    standings: tuple[Standing, ...]
    results: Mapping[str, Result]
    left_out: Mapping[str, str]
    remarks: tuple[str, ...]
    drawn_by: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def winner(self) -> str:
        """The first by its value; of equal ones, and on a Pareto front, the one that is listed first."""
        return self.standings[0].name

    @property
    def has_bounds(self) -> bool:
        """Whether differences could be tested."""
        return self.standings[0].is_contender is not None

    @property
    def contenders(self) -> tuple[str, ...]:
        """With 95 %, the true best, or all of the true Pareto front, are among these; empty where no bounds are known."""
        return tuple(each.name for each in self.standings if each.is_contender)

    @property
    def summary(self) -> str:
        """What came out, in a sentence."""
        return summary_of(self.by, self.standings)

    def __getitem__(self, name: str) -> Standing:
        """Where the checkpoint `name` stands.

        Raises:
            KeyError: It is not ranked.
        """
        return {each.name: each for each in self.standings}[name]

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
            "left_out": dict(self.left_out),
            "drawn_by": {name: dict(what) for name, what in self.drawn_by.items()},
            "checkpoints": [asdict(each) for each in self.standings],
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
    skip_bad: bool = False,
    force: bool = False,
) -> Ranking:
    """Score each checkpoint's images once, and rank them.

    Args:
        evaluator: The reals, and what to compute.
        checkpoints: Anything that `Evaluator.score` takes, by name; or paths, which are then named like their files.
        by: `f1`, `f0.5` or any other F-score of precision and recall; a metric of `genpr list metrics`; or "pareto", for
            the checkpoints to which no other is preferable in both precision and recall.
        skip_bad: Leave out a checkpoint whose images cannot be scored, and say so, instead of raising. What is missing
            around the images, such as weights or memory, is raised all the same.
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
    named = _named(checkpoints)
    check_computed(by, evaluator.metrics)
    results, left_out = dict[str, Result](), dict[str, str]()
    drawn_by = dict[str, Mapping[str, object]]()
    for name, source in named.items():
        try:
            results[name] = evaluator.score(source)
        except GenprError as error:
            # The same error, with its code and what else it holds, that says where.
            error.args = (f"checkpoint {name}: {error}", *error.args[1:])
            if not skip_bad or isinstance(error, ResourceError):
                raise
            left_out[name] = str(error)
            continue
        if isinstance(source, CountedBatches) and source.drawn_by is not None:
            drawn_by[name] = source.drawn_by
        if not force:
            _check_sizes(results)
    if not results:
        raise DataError(
            f"no checkpoint is left to rank: {some(left_out.values(), longest=300, between='; ')}",
            code="no-checkpoints-left",
        )
    return replace(rank_results(results, by=by, force=force), left_out=left_out, drawn_by=drawn_by)


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
    valued = {
        name: result for name, result in results.items() if all(need in result.metrics for need in needs)
    }
    missing = [name for name in results if name not in valued]
    if not valued:
        raise DataError(f"{' and '.join(needs)} have no value with any of these images", code="undefined")
    differences = _differences(valued, needs, force=force)
    bounded = _are_one_recipe(valued, needs)
    found = _in_order(by, criteria, valued, bounded=bounded)
    placed = (*found, *(Standing(name) for name in missing))
    remarks = [f"not made alike: {difference}" for difference in differences]
    remarks += unlike_nulls(valued, needs)
    if missing:
        remarks.append(f"no value of {by} with these images: {listed(missing)}")
    if found[0].is_contender is None:
        remarks.append(_why_unbounded(by, criteria, valued, bounded=bounded))
    ordered = {each.name: results[each.name] for each in placed}
    return Ranking(by, criteria[0].better, placed, ordered, {}, tuple(remarks))


def _in_order(
    by: str, criteria: Sequence[Criterion], results: Mapping[str, Result], *, bounded: bool
) -> list[Standing]:
    if by == PARETO:
        return front_standings(criteria, results, bounded=bounded)
    return standings(criteria[0], results, bounded=bounded)


def _named(checkpoints: object) -> dict[str, object]:
    """Sources by name.

    Raises:
        UsageError: There are none ("no-checkpoints"), or they are neither a mapping nor paths of their own
            ("bad-checkpoints").
    """
    if isinstance(checkpoints, Mapping):
        named = {str(name): source for name, source in checkpoints.items()}
        paths = [str(name) for name in checkpoints]
    else:
        if isinstance(checkpoints, str | os.PathLike) or not isinstance(checkpoints, Iterable):
            raise UsageError(
                f"checkpoints are a mapping of names to images, or several paths, not a {type(checkpoints).__name__}",
                code="bad-checkpoints",
            )
        given = list(checkpoints)
        if strangers := [each for each in given if not isinstance(each, str | os.PathLike)]:
            raise UsageError(
                f"checkpoints without names must be paths, not a {type(strangers[0]).__name__}; give a mapping of names",
                code="bad-checkpoints",
            )
        return dict(by_name(given))
    _check_names(named, paths)
    return named


def by_name(paths: Sequence[str | os.PathLike[str]]) -> dict[str, str]:
    """Paths by what a ranking calls them: their file names where these tell them apart.

    Raises:
        UsageError: There are none ("no-checkpoints"), or one of them twice ("bad-checkpoints").
    """
    names = short_labels([Path(each).absolute() for each in paths]) if paths else []
    named = dict(zip(names, [os.fspath(each) for each in paths], strict=True))
    _check_names(named, names)
    return named


def _check_names(named: Mapping[str, object], names: Sequence[str]) -> None:
    if not named:
        raise UsageError("a ranking needs at least one checkpoint, found none", code="no-checkpoints")
    if len(named) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"the checkpoint {twice} is given twice", code="bad-checkpoints")


def _check_sizes(results: Mapping[str, Result]) -> None:
    """The last one against the first, as soon as it is scored."""
    (first, one), (last, other) = next(iter(results.items())), list(results.items())[-1]
    if one.fake.n != other.fake.n:
        least = min(one.fake.n, other.fake.n)
        raise DataError(
            f"{one.fake.n:,} fake images in {first} and {other.fake.n:,} in {last}: recall and coverage depend on how "
            f"many there are; score equally many of each, at most {least:,} (max_images), or rank all the same (force)",
            code="not-alike",
        )


def _differences(results: Mapping[str, Result], needs: Sequence[str], *, force: bool) -> tuple[str, ...]:
    """In what they were not made alike, in words; only metrics that are ranked or shown count.

    Raises:
        DataError: They were not, and that is not forced ("not-alike").
    """
    if len(results) < 2:
        return ()
    used = {*needs, *F_SCORE_METRICS}
    cut = {
        name: replace(result, metrics={key: each for key, each in result.metrics.items() if key in used})
        for name, result in results.items()
    }
    return compare(cut, force=force).differences


def _are_one_recipe(results: Mapping[str, Result], needs: Sequence[str]) -> bool:
    """Whether the metrics are the same ones in all results, so that differences mean anything."""
    recipes = [recipe_of(result) for result in results.values()]
    return all(recipe[need] == recipes[0][need] for recipe in recipes for need in needs)


def _why_unbounded(
    by: str, criteria: Sequence[Criterion], results: Mapping[str, Result], *, bounded: bool
) -> str:
    if not bounded:
        return f"no bounds: {by} was not found in the same way in all of them"
    without = [
        name for name, result in results.items() if any(each.resampled(result) is None for each in criteria)
    ]
    who = "any of them" if len(without) == len(results) else listed(without)
    return f"no bounds: no interval of {by} is known for {who}"
