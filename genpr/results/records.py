"""Results back from the plain JSON types that `Result.to_dict` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genpr.metrics.catalogue import ALL_METRICS
from genpr.rebuild import rebuilt
from genpr.results.result import SCHEMA, Result

_READABLE = (3, SCHEMA)  # 3 knew of no labels, prompts and entities


def result_of(record: Mapping[str, Any]) -> Result:
    """The result that `Result.to_dict` turned into plain JSON types.

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
    return result
