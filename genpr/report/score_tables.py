"""Scores as text tables of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genpr.errors import printable
from genpr.evaluation.result import Result, SideSummary, StatisticsSummary
from genpr.images.item import passed_over_text
from genpr.images.policy import choices_in
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.report.text import interval, number, table, wrapped

THRESHOLDS = {"fixed": "one for all detections", "labeled": "chosen on labeled images"}
"""How thresholds of entities were chosen."""


def features_of(result: Result) -> str | None:
    """The extractor of the features; None for scores of answers, which have none, and of pairs, which may have several."""
    if result.extractor is not None:
        return result.extractor.name
    is_of_answers = result.entities is not None and set(result.families) <= {"entity"}
    return None if is_of_answers or result.reconstruction is not None else "features of an unknown extractor"


def remarks_of(result: Result, name: str) -> list[str]:
    """Remarks on one value: spread, features, variant, effect of unreadable answers."""
    metric, found = result.metrics[name], []
    if metric.spread is not None:
        found.append(f"standard deviation {metric.spread:.4g} over {metric.spread_over}")
    if metric.bias is not None:
        found.append(f"finite-sample bias of at least about {metric.bias:.3g}")
    own = result.extractor.name if result.extractor else None
    if metric.extractor not in {None, own} and (own or result.reconstruction):
        found.append(f"on {metric.extractor} features")
    if metric.variant is not None:
        found.append(metric.variant)
    found += [
        f"{each.low:.3f} if all unreadable answers were wrong, {each.high:.3f} if all were right"
        for each in (() if result.entities is None else result.entities.bounds)
        if each.metric == name
    ]
    return found


def ends_text(ends: Interval | None, between: str = " - ", missing: str = "-") -> str:
    """Both ends of an interval."""
    return interval(None if ends is None else (ends.low, ends.high), between, missing)


def metric_texts(result: Result, name: str, *, between: str = " - ") -> dict[str, str]:
    """The texts of a metric by column; a hyphen for unknown ones."""
    metric, control = result.metrics[name], result.control
    value, null = (None, None) if control is None else (control.values.get(name), control.nulls.get(name))
    is_share = metric.relative is not None and ALL_METRICS[name].better == "higher"
    return {
        "value": number(metric.value),
        "interval": interval(metric.interval, between, as_values=result.reconstruction is not None),
        "null": number(metric.known_null),
        "relative": f"{metric.relative:.0%}" if is_share else "-",
        "k": "-" if metric.k is None else str(metric.k),
        "control": number(value) if value is None or null is None else f"{value:.3f} ({null:.3f})",
        "chance": number(metric.chance),
        "pool": "-" if metric.pool is None else f"{metric.pool:,}",
    }


def score_table(result: Result) -> str:
    """Every metric with its interval, null and control, followed by the sources and settings."""
    tables = [text for text in (_manifold_table(result), _family_table(result)) if text]
    facts = {name: remarks_of(result, name) for name in result.metrics}
    for family, names in result.families.items():
        same = {tuple(facts[name]) for name in names}
        if family != MANIFOLD and len(names) > 1 and len(same) == 1:
            facts = {name: found for name, found in facts.items() if name not in names}
            facts[f"{family}.*"] = list(same.pop())
    remarks = [wrapped(f"{name}: {'; '.join(found)}") for name, found in facts.items() if found]
    if result.undefined:
        remarks.append(wrapped(f"undefined for these images: {', '.join(result.undefined)}"))
    return "\n".join(["\n\n".join(tables), *remarks, _footer(result)])


def _manifold_table(result: Result) -> str:
    names, control = result.families.get(MANIFOLD, ()), result.control
    if not names:
        return ""
    columns = ["value", "interval", "null", "relative", "k", *["control"] * (control is not None)]
    lines = [_metric_table(result, names, columns)]
    purposes = [
        f"{purpose}: {', '.join(found)}"
        for purpose in ("fidelity", "diversity")
        if (found := [name for name in names if f"({purpose})" in ALL_METRICS[name].meaning])
    ]
    lines += [wrapped("; ".join(purposes))] * bool(purposes)
    if any(result.metrics[name].known_null is not None for name in names):
        lines.append("null: the mean value of a perfect generator with these numbers of images")
    if control is not None:
        sizes = f"{control.n_real:,} of the reals against the other {control.n_fake:,}"
        lines.append(f"real v. real: {sizes} (in parentheses: null)")
    if any(metric.null_source == "real halves" for metric in result.metrics.values()):
        lines.append("without a null (-), compare the value with real v. real")
    return "\n".join(lines)


_HEADS = {"interval": "95 % interval", "relative": "/null", "control": "real v. real"}


def _metric_table(
    result: Result, names: Sequence[str], columns: Sequence[str], *, sections: Sequence[int] = ()
) -> str:
    rows = [[name, *map(metric_texts(result, name).__getitem__, columns)] for name in names]
    heads = [_HEADS.get(column, column) for column in columns]
    return table(["metric", *heads], rows, sections=sections, whole="none")


def _family_table(result: Result) -> str:
    """Metrics of labels, prompts and entities with chance levels."""
    families = [names for family, names in result.families.items() if family != MANIFOLD]
    found = [name for names in families for name in names]
    if not found:
        return ""
    texts = [metric_texts(result, name) for name in found]
    extra = [head for head in ("null", "chance", "pool") if any(each[head] != "-" for each in texts)]
    ends = [sum(map(len, families[: index + 1])) - 1 for index in range(len(families))]
    lines = ["chance: the value of random guessing"] * ("chance" in extra)
    lines += ["pool: number of ranked candidates"] * ("pool" in extra)
    lower = [name for name in found if ALL_METRICS[name].better == "lower"]
    lines += [f"lower is better: {', '.join(lower)}"] * bool(lower)
    text = _metric_table(result, found, ["value", "interval", *extra], sections=ends)
    return "\n".join([text, *[wrapped("; ".join(lines))] * bool(lines)])


def sides_text(sides: Mapping[str, SideSummary]) -> list[str]:
    """A line for each source by its role; paths are not wrapped."""
    width, lines = max(map(len, sides)), []
    for role, summary in sides.items():
        chosen = "".join(f", {name} {value}" for name, value in choices_in(summary.decoder).items())
        skipped = f", {len(summary.skipped):,} left out" if summary.skipped else ""
        skipped += passed_over_text(summary.passed_over)
        counted = f"{summary.n:,} {summary.what}" if summary.n else "mean and covariance"
        lines.append(f"{role:<{width}}  {counted} of {printable(summary.source + chosen)}{skipped}")
    return lines


def _footer(result: Result) -> str:
    """A line for each source, and the settings."""
    lines = sides_text(dict(zip(result.roles, (result.real, result.fake), strict=True)))
    if result.reference_statistics is not None:
        lines += statistics_lines(result.reference_statistics)
    return "\n".join([*lines, *map(wrapped, settings_lines(result))])


def settings_lines(result: Result) -> list[str]:
    """Features, protocol and device of a result, and the hash of its settings."""
    info, parts = result.extractor, [f"protocol {result.protocol}"]
    features = features_of(result) if info is None else f"{info.name} ({info.dim}-d, {info.resize_text})"
    parts = [*filter(None, [features]), *parts, *[f"{result.ties} balls"] * (MANIFOLD in result.families)]
    lines = [", ".join([*parts, result.device]), f"settings hash {result.fingerprint}"]
    return [*lines, *["not comparable with published numbers"] * (not result.comparable)]


def statistics_lines(*results: StatisticsSummary) -> list[str]:
    """The reference statistics in a file and the metrics that use them; keys are named for a single result."""
    summary = results[0]
    names = ", ".join(dict.fromkeys(name for each in results for name in each.metrics))
    keys = f" ({', '.join(dict.fromkeys(summary.metrics.values()))})" if len(results) == 1 else ""
    facts = [summary.known] if summary.known else []
    facts += [f"of {summary.count:,} images"] if summary.count else []
    # Paths are not wrapped.
    first = f"{names} from mean and covariance{keys} of {printable(summary.source)}"
    return [first, *[wrapped(", ".join(facts), first="  ")] * bool(facts)]


def blocks_of(names: Sequence[str], widths: Sequence[int], room: int) -> list[list[str]]:
    """The columns of one table in blocks that fit `room`."""
    blocks: list[list[str]] = [[]]
    left = room
    for name, width in zip(names, widths, strict=True):
        if blocks[-1] and width > left:
            blocks.append([])
            left = room
        blocks[-1].append(name)
        left -= width
    return blocks


def listing(rows: Sequence[Mapping[str, object]], details: Sequence[str]) -> str:
    """Records with equal keys: short values in columns, and the `details` on separate lines below."""
    columns = [key for key in rows[0] if key not in details]
    cells = [["-" if row[key] is None else str(row[key]) for key in columns] for row in rows]
    head, rule, *lines = table(columns, cells, texts=range(len(columns)), whole="all").splitlines()
    parts = [head, rule]
    for line, row in zip(lines, rows, strict=True):
        texts = [str(row[key]) for key in details if row[key] is not None]
        parts += [line, *(wrapped(text, first="   ", others="     ") for text in texts)]
    return "\n".join(parts)
