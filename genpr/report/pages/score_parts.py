"""What a page shows of a result, as plain text: rows of its table, facts of its provenance, strips of its intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genpr.evaluation.result import AlignmentSummary, RecogniserSummary, Result, SideSummary
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import Control, MetricValue
from genpr.report.reading import capital
from genpr.report.remarks import CHOSEN, features_of, remarks_of
from genpr.report.safe_text import shown
from genpr.report.text.layout import number

BETTER = {"higher": "more", "lower": "less", "at null": "at its null"}
"""In words."""

_STRIP_TOP = 1.2  # shares and density; a value beyond it is drawn at the end


@dataclass(frozen=True, slots=True)
class Strip:
    """A value, its interval and its null along a line from 0 to 1.2; positions in units of 1/100 of the line.

    Attributes:
        value: Place of the value.
        low: Place of the lower end; that of the value where no interval is known.
        high: Place of the upper end.
        null: Place of what a perfect generator scores; None if not known.
    """

    value: float
    low: float
    high: float
    null: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of the table; a dash where something is not known.

    Attributes:
        name: Of the metric.
        meaning: What it measures.
        value: As text; `~` marks the arithmetic of another tool.
        interval: 95 %.
        null: What a perfect generator scores.
        relative: The value over that.
        k: Neighbours.
        control: Of the reals against the reals, with its own null.
        better: Which direction is.
        strip: How it lies; None for what is no share.
        remarks: What stands behind it.
    """

    name: str
    meaning: str
    value: str
    interval: str
    null: str
    relative: str
    k: str
    control: str
    better: str
    strip: Strip | None
    remarks: tuple[str, ...]


def rows_of(result: Result) -> list[Row]:
    """The table of what is found from features alone, in display order."""
    return [_row(result, name, result.metrics[name]) for name in result.families.get(MANIFOLD, ())]


def provenance_of(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    """Everything needed to repeat the score, in groups of (heading, facts)."""
    groups = [
        ("How it was scored", _recipe(result)),
        *_sides(result),
    ]
    if result.alignment is not None:
        groups.append(("Alignment", _alignment(result.alignment)))
    if result.entities is not None and result.entities.recogniser is not None:
        groups.append(("Recognition", _recogniser(result.entities.recogniser)))
    if result.held_out is not None:
        groups.append(("Held-out reals", _side(result.held_out)))
    for info in result.extractors.values():
        facts = {
            "dimensions": f"{info.dim:,}",
            "resize": info.resize,
            "weights, sha256": info.weights_sha256 or "none, or not known",
            "code, sha256": info.cache_key or info.uncached_reason or "not known",
            "comparable with published numbers": "yes" if info.comparable else "no",
        }
        groups.append((f"Extractor {info.name}", list(facts.items())))
    groups.append(
        ("Time", [(key.replace("_", " "), f"{value:.1f} s") for key, value in result.seconds.items()])
    )
    groups.append(("Versions", list(result.versions.items())))
    return groups


def _recipe(result: Result) -> list[tuple[str, str]]:
    facts = {
        "protocol": result.protocol,
        "protocol met": "; ".join(result.deviations) or "yes",
        **_features(result),
        "every value exact": "yes" if result.exact else "no, see the table",
        "comparable with published numbers": "yes" if result.comparable else "no",
        "seed": str(result.seed),
        "most images per side": "no limit" if result.max_images is None else f"{result.max_images:,}",
        **({"fakes identical to a real": f"{result.n_shared:,}"} if result.real.what == "images" else {}),
        "device": result.device,
        "fingerprint": result.fingerprint,
    }
    if result.hubness is not None:
        hubs = result.hubness
        facts["hubness of the reals"] = (
            f"k = {hubs.k}: {hubs.orphan_rate:.1%} lie in no other's ball ({hubs.expected_orphan_rate:.1%} without hubs), "
            f"skewness {hubs.skewness:.1f}; {hubs.largest_name} vouches for {hubs.largest_share:.1%} of the fakes"
        )
    return list(facts.items())


def _features(result: Result) -> dict[str, str]:
    """What was measured between features; entities have none of it."""
    of = features_of(result)
    if set(result.families) <= {"entity"} and result.entities is not None:
        return {} if of is None else {"entities seen by": of}
    balls = {"balls": result.ties} if MANIFOLD in result.families else {}
    name = "an unknown extractor" if result.extractor is None else result.extractor.name
    return {"features of": name, **balls, "distances": result.distances}


def _recogniser(found: RecogniserSummary) -> list[tuple[str, str]]:
    facts = {
        "kind": found.kind,
        "entities it looks for": f"{len(found.entities):,}",
        "thresholds": CHOSEN[found.chosen],
        **({"labelled images": found.source} if found.source else {}),
        "entities that share one": f"{found.n_shared:,}" if found.chosen != "fixed" else "all",
        **({"names are asked for as": " / ".join(found.templates)} if found.templates else {}),
    }
    return list(facts.items())


def _alignment(found: AlignmentSummary) -> list[tuple[str, str]]:
    unknown = "not known"
    facts = {
        "prompts that an image ranks": f"{found.pool:,}",
        "images that a prompt ranks": "none" if found.image_pool is None else f"{found.image_pool:,}",
        "different prompts": f"{found.n_prompts:,}",
        "drawn independently": f"{found.n_units:,} prompts or groups of prompts, each with all of its images",
        "prompts of one image": f"{found.captions:,} at most",
        "put in front of prompts": repr(found.prefix) if found.prefix else "nothing",
        "tokenizer": found.tokenizer,
        "tokens read": unknown if found.context is None else f"{found.context:,} at most",
        "prompts cut off": unknown if found.n_truncated is None else f"{found.n_truncated:,}",
        "equal scores": "the mean over all orders",
    }
    return list(facts.items())


def _sides(result: Result) -> list[tuple[str, list[tuple[str, str]]]]:
    titles = (
        ("Real images", "Fake images") if result.roles == ("real", "fake") else map(capital, result.roles)
    )
    return list(zip(titles, (_side(result.real), _side(result.fake)), strict=True))


def _side(side: SideSummary) -> list[tuple[str, str]]:
    facts = {
        "source": side.source,
        f"{side.what} scored": f"{side.n:,}",
        "embedded in this run": f"{side.n_embedded:,}",
        "from the cache": f"{side.n_cached:,}",
        "repeats": f"{side.n_duplicates:,}",
        "left out": _skipped(side.skipped),
        "decoding": ", ".join(f"{flag}: {count:,}" for flag, count in side.flags.items())
        or "nothing unusual",
        "decoder": ", ".join(f"{name} {version}" for name, version in side.decoder.items()) or "none",
        "contents, sha256": side.content,
        "contents in order, sha256": side.order,
    }
    return list(facts.items())


def _skipped(skipped: Sequence[tuple[str, str]]) -> str:
    if not skipped:
        return "none"
    named = ", ".join(f"{shown(path)} ({code})" for path, code in skipped[:_MOST_SKIPPED])
    rest = len(skipped) - _MOST_SKIPPED
    return f"{len(skipped):,}: {named}" + (f" and {rest:,} more, all in the JSON" if rest > 0 else "")


_MOST_SKIPPED = 5


def _row(result: Result, name: str, metric: MetricValue) -> Row:
    info = ALL_METRICS[name]
    has_null = metric.null is not None and metric.null_source != "real halves"
    is_share = metric.relative is not None and info.better == "higher"
    return Row(
        name=name,
        meaning=info.meaning,
        value=number(metric.value) if metric.exact else f"~{number(metric.value)}",
        interval="–" if metric.interval is None else " to ".join(f"{end:.3f}" for end in metric.interval),
        null=number(metric.null) if has_null and metric.null is not None else "–",
        relative=f"{metric.relative:.0%}".replace("%", " %") if is_share else "–",
        k="–" if metric.k is None else str(metric.k),
        control=_control(name, result.control),
        better=BETTER[info.better],
        strip=strip_of(metric, metric.null) if is_share else None,
        remarks=tuple(remarks_of(result, metric)),
    )


def _control(name: str, control: Control | None) -> str:
    values: Mapping[str, float] = {} if control is None else control.values
    if name not in values or control is None:
        return "–"
    null = control.nulls.get(name)
    return number(values[name]) if null is None else f"{values[name]:.3f} (null {null:.3f})"


def strip_of(metric: MetricValue, mark: float | None) -> Strip:
    """A value with its interval, and a mark to hold it against."""
    low, high = metric.interval or (metric.value, metric.value)
    value, low, high = (_place(end) for end in (metric.value, low, high))
    return Strip(value, low, high, None if mark is None else _place(mark))


def _place(value: float) -> float:
    return round(100 * min(max(value, 0.0), _STRIP_TOP) / _STRIP_TOP, 2)
