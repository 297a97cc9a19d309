"""One line per score: what `genpr watch` keeps of a result, which of two is better, and StyleGAN's shape of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from genpr.errors import DataError, UsageError
from genpr.metrics.catalogue import METRICS

if TYPE_CHECKING:
    from genpr.result import Result

SCHEMA = 1
_NOT_OF_THE_SAMPLES = "cache"  # warnings about the cache depend on what ran before
_MAY_MOVE = ("n_fake", "undefined")  # the fingerprint, for it names what a metric does with few images

Record = Mapping[str, Any]
"""One line; see docs/watching.md."""


def check_rank_by(metric: str, computed: Sequence[str]) -> None:
    """Refuse a metric of which it is not known which of two scores is better.

    Raises:
        UsageError: It is not among those computed ("unknown-metric"), or best in the middle ("no-direction").
    """
    needed = ("precision", "recall") if metric == "f1" else (metric,)
    missing = [name for name in needed if name not in computed]
    if missing:
        raise UsageError(
            f"the best cannot be chosen by {metric}: the computed metrics {', '.join(computed)} lack "
            f"{' and '.join(missing)}; compute that too (--metrics), or choose by another (--by)",
            code="unknown-metric",
        )
    if direction(metric) == "at null":
        raise UsageError(
            f"the best cannot be chosen by {metric}, of which more and less than a perfect generator has are both worse",
            code="no-direction",
        )


def direction(metric: str) -> str:
    """Whether "higher" or "lower" is better, or neither."""
    return "higher" if metric == "f1" else METRICS[metric].better


def f1_of(metrics: Mapping[str, float]) -> float | None:
    """Harmonic mean of precision and recall, 0 where both are; None if one is unknown."""
    if "precision" not in metrics or "recall" not in metrics:
        return None
    from genpr.metrics.manifold import PrecisionRecall

    return PrecisionRecall(metrics["precision"], metrics["recall"]).f_score()


def is_record(value: object) -> bool:
    """Whether a value read from JSON is one of these lines, with everything that is read of it later."""
    if not isinstance(value, dict):
        return False
    try:
        if value["schema"] != SCHEMA or not isinstance(value["name"], str):
            return False
        if value["status"] == "failed":
            return isinstance(value["error"]["code"], str) and isinstance(value["listing"], str)
        numbers = [*value["metrics"].values(), value["seconds"], value["timestamp"]]
        are_finite = all(isinstance(number, float | int) and math.isfinite(number) for number in numbers)
        texts = [value["listing"], value["device"], value["real"]]
        is_whole = (
            are_finite and all(isinstance(text, str) for text in texts) and isinstance(value["n_fake"], int)
        )
        return is_whole and value["status"] == "scored"
    except (AttributeError, KeyError, TypeError):
        return False


def differences(before: Record, after: Mapping[str, Any]) -> list[str]:
    """What of `facts_of` keeps a score from standing beside an earlier one; empty if they were made alike."""
    differing = [
        key for key in after if key not in ("fingerprint", *_MAY_MOVE) and after[key] != before.get(key)
    ]
    are_as_many = all(after[key] == before.get(key) for key in _MAY_MOVE)
    is_other = are_as_many and after["fingerprint"] != before.get("fingerprint")
    return differing + ["fingerprint"] * is_other


def facts_of(result: Result) -> dict[str, Any]:
    """What has to be equal for two scores to stand in one file, with the numbers that may move the fingerprint."""
    return {
        "protocol": result.protocol,
        "asked": sorted({*result.metrics, *result.undefined}),
        "undefined": list(result.undefined),
        "fingerprint": result.fingerprint,
        "real": result.real.content,
        "n_real": result.real.n,
        "n_fake": result.fake.n,
        "max_images": result.max_images,
        "seed": result.seed,
    }


def scored_record(
    name: str, listing: str, result: Result, *, seconds: float, timestamp: float
) -> dict[str, Any]:
    """The line of one score: the same whenever the same images are scored in the same way, but for the times."""
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    f1 = f1_of(metrics)
    known = result.metrics.items()
    warnings = [item.code for item in result.notices if item.level == "warning"]
    return {
        "schema": SCHEMA,
        "name": name,
        "status": "scored",
        "metrics": metrics if f1 is None else {**metrics, "f1": f1},
        "intervals": {name: list(metric.interval) for name, metric in known if metric.interval is not None},
        "nulls": {name: metric.null for name, metric in known if metric.null is not None},
        "warnings": [code for code in dict.fromkeys(warnings) if not code.startswith(_NOT_OF_THE_SAMPLES)],
        **facts_of(result),
        "extractor": None if result.extractor is None else result.extractor.name,
        "device": result.device,
        "versions": {name: result.versions[name] for name in ("genpr", "torch")},
        "listing": listing,
        "seconds": seconds,
        "timestamp": timestamp,
    }


def failed_record(name: str, listing: str, error: DataError, *, timestamp: float) -> dict[str, Any]:
    """The line of a source that was given up."""
    return {
        "schema": SCHEMA,
        "name": name,
        "status": "failed",
        "error": {"code": error.code, "message": str(error)},
        "listing": listing,
        "timestamp": timestamp,
    }


def stylegan_line(record: Record) -> dict[str, Any]:
    """A score as `metric_main.report_metric` of stylegan2-ada-pytorch and stylegan3 writes it."""
    return {
        "results": record["metrics"],
        "metric": "genpr",
        "total_time": record["seconds"],
        "total_time_str": time_text(record["seconds"]),
        "num_gpus": int(record["device"].startswith("cuda")),
        "snapshot_pkl": record["name"],
        "timestamp": record["timestamp"],
    }


def time_text(seconds: float) -> str:
    """As StyleGAN writes a duration: "7s", "2m 05s", "3h 00m 09s", "1d 02h 03m"."""
    s = round(seconds)
    minutes, hours, days = s // 60 % 60, s // 3600 % 24, s // 86400
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{minutes}m {s % 60:02}s"
    return f"{hours}h {minutes:02}m {s % 60:02}s" if not days else f"{days}d {hours:02}h {minutes:02}m"
