"""Results back from the plain JSON types that `Result.to_dict` gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from genpr.features.extractor import ExtractorInfo
from genpr.metrics.catalogue import ALL_METRICS
from genpr.notices import Notice
from genpr.rebuild import rebuilt
from genpr.result import SCHEMA, HubSummary, Result, SideSummary
from genpr.summaries import AlignmentSummary, EntitySummary, LabelSummary
from genpr.values import Control, MetricValue

_READABLE = (3, SCHEMA)  # 3 knew of no labels, prompts and entities


def result_of(record: Mapping[str, Any]) -> Result:
    """The result that `Result.to_dict` turned into plain JSON types.

    Raises:
        ValueError: It is of another schema.
        KeyError, TypeError: It is no such record.
    """
    if record["schema"] not in _READABLE:
        raise ValueError(f"schema {record['schema']} instead of {SCHEMA}")
    fields = {key: value for key, value in record.items() if key in Result.__dataclass_fields__}
    extractor = record["extractor"]
    fields |= {
        "metrics": {name: _metric_of(name, value) for name, value in record["metrics"].items()},
        "extractor": None if extractor is None else ExtractorInfo(**extractor),
        "extractors": {name: ExtractorInfo(**info) for name, info in record["extractors"].items()},
        "deviations": tuple(record["deviations"]),
        "real": _side_of(record["real"]),
        "fake": _side_of(record["fake"]),
        "notices": tuple(Notice(**item) for item in record["notices"]),
        "hubness": None if record["hubness"] is None else HubSummary(**record["hubness"]),
        "undefined": tuple(record["undefined"]),
        "held_out": None if record["held_out"] is None else _side_of(record["held_out"]),
        "control": None if record["control"] is None else Control(**record["control"]),
        "labels": rebuilt(LabelSummary | None, record.get("labels")),
        "alignment": rebuilt(AlignmentSummary | None, record.get("alignment")),
        "entities": rebuilt(EntitySummary | None, record.get("entities")),
    }
    return Result(**fields)


def _metric_of(name: str, record: Mapping[str, Any]) -> MetricValue:
    lists = {key: tuple(record[key]) for key in ("interval", "replicates") if record[key] is not None}
    metric = MetricValue(**{**record, **lists})
    is_number = isinstance(metric.value, int | float) and math.isfinite(metric.value)
    if name not in ALL_METRICS or not is_number or not isinstance(metric.extractor, str | None):
        raise ValueError(f"{name!r} with {record} is no metric")
    return metric


def _side_of(record: Mapping[str, Any]) -> SideSummary:
    if not isinstance(record["n"], int) or not isinstance(record["source"], str):
        raise TypeError(f"{record['n']!r} images of {record['source']!r}")
    return SideSummary(**{**record, "skipped": tuple((path, code) for path, code in record["skipped"])})
