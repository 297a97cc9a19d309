"""Comparison of results that were computed alike, on the same reals, with equal numbers of images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from genpr.errors import DataError, UsageError, printable, short, some
from genpr.evaluation.result import Result, recipe_of, result_of
from genpr.limits import RESULT_BYTES, parse_json, read_bytes
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Difference, Resampled, difference
from genpr.notices import Notice
from genpr.storage import from_dict, open_regular
from genpr.validation import check_flag

_COMPARED = ("extractor", "weights", "resize", "code", "variant", "k", "ties", "pool", "decoding")


@dataclass(frozen=True)
class Comparison:
    """Results by name, with the metrics that all of them have."""

    results: Mapping[str, Result]  # by file name or another unique name
    metrics: tuple[str, ...]  # in display order; never empty
    differences: tuple[str, ...]  # reasons against a comparison, as text; empty if there are none

    def __str__(self) -> str:
        """Differences in how the results were computed, then each result."""
        return "\n".join([*self.differences, results_text(self.results)])

    def contrast(self, name: str, metric: str) -> Difference | None:
        """How much higher `metric` is in the result `name` than in the first; None where no interval is known."""
        first = next(iter(self.results.values()))
        if recipe_of(first)[metric] != recipe_of(self.results[name])[metric]:
            return None
        ours, theirs = resampled(self.results[name], metric), resampled(first, metric)
        return None if ours is None or theirs is None else difference(ours, theirs)


def resampled(result: Result, metric: str) -> Resampled | None:
    """A metric of a result with its replicates; None where it has none."""
    value = result.metrics[metric]
    if value.replicates is None:
        return None
    return Resampled(
        value=value.value,
        replicates=np.array(value.replicates, dtype=np.float64),
        n=value.n_counted,
        seed=result.seed,
        n_real=result.real.n,
        real_identity=result.real.order,
    )


def compare(results: Mapping[str, Result], *, force: bool = False) -> Comparison:
    """Compare results by their common metrics.

    Args:
        results: At least two, by name.
        force: Compare results that were computed differently, too; the outcome then lists the differences.

    Raises:
        UsageError: Fewer than two results.
        DataError: They differ in more than the fakes ("not-alike"), or have no metric in common ("no-common-metric").
    """
    check_flag(force, "force")
    if len(results) < 2:
        text = f"a comparison needs at least two results, found {len(results)}"
        raise UsageError(text, code="too-few-results")
    (first_name, first), *others = results.items()
    metrics = tuple(name for name in first.metrics if all(name in result.metrics for _, result in others))
    if not metrics:
        held = [f"{short(name)}: {some(result.metrics, 5)}" for name, result in results.items()]
        shown = some(held, longest=300, between="; ")
        raise DataError(f"the results have no metric in common ({shown})", code="no-common-metric")
    found = dict.fromkeys(
        difference
        for name, result in others
        for difference in _differences(name, result, first_name, first, metrics)
    )
    if found and not force:
        shown = some(found, longest=200, between="; ")
        names = {result.extractor.name for result in results.values() if result.extractor is not None}
        fix = "Score again with equal settings (--max-images N gives equal numbers of images)"
        if len(names) > 1:
            fix = "Compare results of one extractor; genpr.load_results reads those of a panel by name"
        text = f"these results are not comparable: {shown}. {fix}, or compare anyway with --force"
        raise DataError(text, code="not-alike")
    return Comparison(results, metrics, tuple(found))


def load_results(path: str | os.PathLike[str], *, label: str | None = None) -> dict[str, Result]:
    """Read the output of `genpr score --json`, one result or one per protocol, or a file of several named results.

    Args:
        path: The file; also of `genpr rank --json`, the JSON of a comparison's page, or the sweep.json of a sweep or the
            folder that it lies in.
        label: Name of the result; None uses the file name without `.json`.

    Returns:
        Results by label, with the protocol behind it if there are several; by the names in the file if there are any, such
        as "psi=0.7" of a sweep.

    Raises:
        UsageError: There is no such file.
        DataError: It holds no result ("not-a-result").
    """
    path = Path(path)
    text = _text_of(path)
    label = label or path.name.removesuffix(".json")
    try:
        content = parse_json(text)
        if "points" in content:  # of a sweep
            return _results_of_sweep(content)
        if "results" not in content:
            return {label: result_of(content)}
        if isinstance(content["results"], dict):  # named results
            return {name: result_of(each) for name, each in content["results"].items()}
        found = [result_of(each) for each in content["results"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"{path} holds no result of `genpr score --json` of this version ({type(error).__name__}: {error})"
        raise DataError(message, code="not-a-result", path=str(path)) from error
    return _by_name([(f"{label} ({result.protocol})", result) for result in found])


def _results_of_sweep(content: Mapping[str, Any]) -> dict[str, Result]:
    axis, found = from_dict(str, content["axis"]), dict[str, Result]()
    for point in content["points"]:
        name = f"{axis}={from_dict(float, point['setting']):.12g}"
        if name in found:
            raise ValueError(f"two points are at {name}")
        found[name] = result_of(point["result"])
    return found


def _text_of(path: Path) -> bytes:
    """The text of a file of results, or of that of a sweep's folder."""
    try:
        if path.is_dir():
            path = path / "sweep.json"
        if not path.is_file():
            raise UsageError(f"there is no file {path}", code="path-not-found", path=str(path))
        with open_regular(path) as file:
            return read_bytes(file, RESULT_BYTES, name=str(path), what="results", code="not-a-result")
    except OSError as error:  # also of a name that is too long
        text = f"{path} cannot be read ({error.strerror})"
        raise UsageError(text, code="path-not-found", path=str(path)) from error


def load_all(paths: Sequence[Path]) -> dict[str, Result]:
    """The results of several files, each with a unique name: the shortest part of its path, without `.json`."""
    pairs = [
        (path, label.removesuffix(".json")) for path, label in zip(paths, short_labels(paths), strict=True)
    ]
    return _by_name([item for path, label in pairs for item in load_results(path, label=label).items()])


def _by_name(found: Sequence[tuple[str, Result]]) -> dict[str, Result]:
    """Results by name; a name that occurs more than once gets a number."""
    names = [name for name, _ in found]
    return {
        name if names.count(name) == 1 else f"{name} [{number}]": result
        for number, (name, result) in enumerate(found, 1)
    }


def notices_of(results: Mapping[str, Result]) -> dict[Notice, list[str]]:
    """Every notice of some results once, with the names of those that have it."""
    found: dict[Notice, list[str]] = {}
    for name, result in results.items():
        for item in dict.fromkeys(result.notices):
            found.setdefault(item, []).append(name)
    return found


def results_text(results: Mapping[str, Result]) -> str:
    """Each result with its notices, under its name."""
    return "\n\n".join(f"{printable(name)}\n{result}" for name, result in results.items())


def named_notices(results: Mapping[str, Result]) -> list[Notice]:
    """Every notice of some results once; the message begins with the names of those that have it, where not all have."""
    return [
        item if len(names) == len(results) else replace(item, message=f"{some(names)}: {item.message}")
        for item, names in notices_of(results).items()
    ]


def short_labels(paths: Sequence[Path]) -> list[str]:
    """File names if they are unique, else paths relative to the common folder."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    shared = os.path.commonpath([path.absolute().parent for path in paths])
    return [os.path.relpath(path.absolute(), shared) for path in paths]


def _differences(
    name: str, result: Result, other_name: str, other: Result, metrics: Sequence[str]
) -> list[str]:
    """Differences as text, most important first."""
    found = []
    ours, theirs = recipe_of(result), recipe_of(other)
    for metric in metrics:
        for key in _COMPARED:
            here, there = (each[metric].get(key, "the default") for each in (ours, theirs))
            if here != there:
                found.append(
                    f"{key} of {metric} is {_short(here)} in {name} and {_short(there)} in {other_name}"
                )
    if result.real.content != other.real.content:
        reals = "real set" if result.real.what == "images" else f"set of {result.real.what}"
        found.append(
            f"the {reals} of {name} ({result.real.source}) differs from that of {other_name} ({other.real.source})"
        )
    kept, theirs_kept = (each.held_out and each.held_out.content for each in (result, other))
    if kept != theirs_kept and any(ALL_METRICS[name].kind == "held-out" for name in metrics):
        found.append(f"the held-out reals of {name} differ from those of {other_name}")
    for side in ("real", "fake"):
        here, there = getattr(result, side).n, getattr(other, side).n
        if here != there:
            what = f"{side} images" if result.real.what == "images" else getattr(result, side).what
            found.append(f"{here:,} {what} in {name}, {there:,} in {other_name}")
    return found


def _short(value: object) -> str:
    text = "unknown" if value is None else str(value)
    return text[:12] if len(text) == 64 else text  # a sha256
