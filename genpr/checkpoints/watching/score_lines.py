"""One line per score: what `genpr watch` keeps of a result, and StyleGAN's shape of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genpr.errors import DataError
from genpr.metrics.f_beta import f1_of
from genpr.metrics.registry import check_interval, check_value
from genpr.storage import from_dict

if TYPE_CHECKING:
    from genpr.evaluation.result import Result

SCHEMA = 1
_NOT_OF_THE_SAMPLES = "cache"  # warnings about the cache depend on what ran before
_MAY_MOVE = ("n_fake", "undefined")  # the fingerprint, for it names what a metric does with few images
_OF_ONE = ("checkpoint", "weights")  # what each checkpoint has of its own

Record = Mapping[str, Any]
"""One line; see docs/watching.md."""


def is_record(value: object) -> bool:
    """Whether a value read from JSON is one of these lines, with everything that is read of it later."""
    if not isinstance(value, dict):
        return False
    try:
        if value["schema"] != SCHEMA or not isinstance(value["name"], str):
            return False
        if value["status"] == "failed":
            return isinstance(value["error"]["code"], str) and isinstance(value["listing"], str)
        for name, number in from_dict(Mapping[str, float], value["metrics"]).items():
            check_value(name, number)
        for name, interval in from_dict(
            Mapping[str, tuple[float, float]], value.get("intervals", {})
        ).items():
            check_interval(name, interval)
        for name, null in from_dict(Mapping[str, float], value.get("nulls", {})).items():
            check_value(name, null, "null")
        from_dict(tuple[str, ...], value.get("warnings", []))
        from_dict(tuple[float, float], [value["seconds"], value["timestamp"]])
        from_dict(tuple[str, str, str], [value["listing"], value["device"], value["real"]])
        return bool(value["status"] == "scored" and from_dict(int, value["n_fake"]) >= 0)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return False


def differences(before: Record, after: Mapping[str, Any]) -> list[str]:
    """What of `facts_of` keeps a score from standing beside an earlier one; empty if they were made alike."""
    apart = ("fingerprint", "generator", *_MAY_MOVE)
    differing = [key for key in after if key not in apart and after[key] != before.get(key)]
    differing += _other_generator(before.get("generator"), after["generator"])
    are_as_many = all(after[key] == before.get(key) for key in _MAY_MOVE)
    is_other = are_as_many and after["fingerprint"] != before.get("fingerprint")
    return differing + ["fingerprint"] * is_other


def _other_generator(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    """In what images were not drawn alike: by what, or with which of its options."""
    if before is None or after is None:
        return ["generator"] if before != after else []
    keys = dict.fromkeys([*after, *before])
    return [f"generator.{key}" for key in keys if after.get(key) != before.get(key)]


def facts_of(result: Result, drawn_by: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What has to be equal for two scores to stand in one file, with the numbers that may move the fingerprint.

    Args:
        result: The score.
        drawn_by: What drew the images, of images that genpr drew.
    """
    shared = None if drawn_by is None else {key: drawn_by[key] for key in drawn_by if key not in _OF_ONE}
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
        "generator": shared,
    }


def scored_record(
    name: str,
    listing: str,
    result: Result,
    *,
    drawn_by: Mapping[str, Any] | None = None,
    seconds: float,
    timestamp: float,
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
        **facts_of(result, drawn_by),
        "checkpoint": None
        if drawn_by is None
        else {"sha256": drawn_by.get("checkpoint"), "weights": drawn_by.get("weights")},
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
