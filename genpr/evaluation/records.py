"""Results back from the plain JSON types that `Result.to_dict` gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from genpr.evaluation.result import SCHEMA, Result
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import MetricValue
from genpr.metrics.value_ranges import check_interval, check_value
from genpr.rebuild import rebuilt

_READABLE = (3, SCHEMA)  # 3 knew of no labels, prompts and entities
_MAY_BE_NEGATIVE = {"seed"}


def result_of(record: Mapping[str, Any]) -> Result:
    """The result that `Result.to_dict` turned into plain JSON types.

    Every number is checked here, so that whatever takes a result may compute with it.

    Raises:
        ValueError: It is of another schema, or holds numbers or metrics that no result has.
        KeyError, TypeError: It is no such record.
    """
    if record["schema"] not in _READABLE:
        raise ValueError(f"schema {record['schema']} instead of {SCHEMA}")
    result: Result = rebuilt(Result, record)
    unknown = [name for name in result.metrics if name not in ALL_METRICS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no metric")
    for name, metric in result.metrics.items():
        _check_metric(name, metric)
    if result.control is not None:
        for name in result.control.values:
            check_value(name, result.control.values[name], "control value")
        for name in result.control.nulls:
            check_value(name, result.control.nulls[name], "control null")
    _check_positive("the number of rows", (result.real.n, result.fake.n))
    for name, count in _counts(result):
        if count < 0:
            raise ValueError(f"{name} is {count}, and must not be negative")
    return result


def _check_metric(name: str, metric: MetricValue) -> None:
    for what in ("value", "exact_value", "null", "chance"):
        check_value(name, getattr(metric, what), what)
    check_interval(name, metric.interval)
    for each in metric.replicates or ():
        check_interval(name, (each, each))
    _check_positive(f"k, n_counted and pool of {name}", (metric.k, metric.n_counted, metric.pool))
    if metric.spread is not None and metric.spread < 0:
        raise ValueError(f"the spread of {name} is {metric.spread:g}, and must not be negative")
    if metric.replicates is not None and (len(metric.replicates) < 2 or len(metric.replicates) % 2):
        raise ValueError(f"{name} has {len(metric.replicates)} replicates, which come in pairs")


def _check_positive(what: str, counts: tuple[int | None, ...]) -> None:
    if any(count is not None and count < 1 for count in counts):
        raise ValueError(f"{what} must be positive, not {counts}")


def _counts(record: object, name: str = "") -> Iterator[tuple[str, int]]:
    """Every integer of a record, with the name of its field."""
    if is_dataclass(record) and not isinstance(record, type):
        for field in fields(record):
            yield from _counts(getattr(record, field.name), field.name)
    elif isinstance(record, Mapping):
        for key, value in record.items():
            yield from _counts(value, str(key))
    elif isinstance(record, tuple):
        for value in record:
            yield from _counts(value, name)
    elif isinstance(record, int) and name not in _MAY_BE_NEGATIVE:
        yield name, record
