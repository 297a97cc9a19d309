"""Scores as text tables of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from rich.cells import cell_len

from genpr.errors import printable
from genpr.evaluation.result import Result, SideSummary, StatisticsSummary
from genpr.images.item import passed_over_text
from genpr.images.policy import choices_in
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.report.text import Table, interval, number, wrapped

THRESHOLDS = {"fixed": "one for all detections", "labeled": "chosen on labeled images"}
"""How thresholds of entities were chosen."""


def features_of(result: Result) -> list[str]:
    """The extractor of the features; none for scores of answers, which have no features, and of pairs, which may have several."""
    if (info := result.extractor) is not None:
        return [f"{info.name} ({info.dim}-d, {info.resize_text})"]
    is_of_answers = result.entities is not None and set(result.families) <= {"entity"}
    is_without = is_of_answers or result.reconstruction is not None
    return [] if is_without else ["features of an unknown extractor"]


def remarks_of(result: Result, name: str) -> list[str]:
    """Remarks on one value: spread, bias, features, variant."""
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
    return found


def metric_texts(result: Result, name: str, *, between: str = " - ") -> dict[str, str]:
    """The texts of a metric by column; a hyphen for unknown ones."""
    metric, control = result.metrics[name], result.control
    value, null = (None, None) if control is None else (control.values.get(name), control.nulls.get(name))
    is_share = metric.relative is not None and ALL_METRICS[name].better == "higher"
    return {
        "value": number(metric.value),
        "95 % interval": interval(metric.interval, between, as_values=result.reconstruction is not None),
        "null": number(metric.known_null),
        "/null": f"{metric.relative:.0%}" if is_share else "-",
        "k": "-" if metric.k is None else str(metric.k),
        "real v. real": number(value) if value is None or null is None else f"{value:.3f} ({null:.3f})",
        "chance": number(metric.chance),
        "pool": "-" if metric.pool is None else f"{metric.pool:,}",
    }


_OF_OTHERS = ("metric", "value", "95 % interval", "null", "chance", "pool")


def score_table(result: Result) -> str:
    """Every metric with its interval, null and control, followed by the sources and settings."""
    families = result.families
    own, others = families.get(MANIFOLD, ()), [names for name, names in families.items() if name != MANIFOLD]
    texts = {name: {"metric": name} | metric_texts(result, name) for name in result.metrics}
    rest = [{head: texts[name][head] for head in _OF_OTHERS} for names in others for name in names]
    ends = [end - 1 for end in accumulate(map(len, others))]
    tables = [
        Table.of("", [texts[name] for name in own], _manifold_lines(result, own)),
        Table.of("", rest, _family_lines(result, [each["metric"] for each in rest]), sections=ends),
    ]
    remarks = {name: "; ".join(remarks_of(result, name)) for name in result.metrics}
    for family, names in families.items():
        if family != MANIFOLD and len(names) > 1 and len({remarks[name] for name in names}) == 1:
            remarks[f"{family}.*"] = remarks[names[0]]
            remarks |= dict.fromkeys(names, "")
    lines = [f"{name}: {text}" for name, text in remarks.items() if text]
    lines += [f"undefined for these images: {', '.join(result.undefined)}"] * bool(result.undefined)
    sides = sides_text(dict(zip(result.roles, (result.real, result.fake), strict=True)))
    if result.reference_statistics is not None:
        sides += statistics_lines(result.reference_statistics)
    shown = "\n\n".join(str(each) for each in tables if each.rows)
    return "\n".join([shown, *map(wrapped, lines), *sides, *map(wrapped, settings_lines(result))])


def _manifold_lines(result: Result, names: Sequence[str]) -> list[str]:
    """Explanations of the metrics of the two sets."""
    purposes = [
        f"{purpose}: {', '.join(found)}"
        for purpose in ("fidelity", "diversity")
        if (found := [name for name in names if f"({purpose})" in ALL_METRICS[name].meaning])
    ]
    lines = ["; ".join(purposes)] * bool(purposes)
    if any(result.metrics[name].known_null is not None for name in names):
        lines.append("null: the mean value of a perfect generator with these numbers of images")
    if (control := result.control) is not None:
        sizes = f"{control.n_real:,} of the reals against the other {control.n_fake:,}"
        lines.append(f"real v. real: {sizes} (in parentheses: null)")
    if any(metric.null_source == "real halves" for metric in result.metrics.values()):
        lines.append("without a null (-), compare the value with real v. real")
    return lines


def _family_lines(result: Result, names: Sequence[str]) -> list[str]:
    """Explanations of the metrics of labels, prompts, entities and pairs."""
    found = [result.metrics[name] for name in names]
    lower = [name for name in names if ALL_METRICS[name].better == "lower"]
    lines = ["chance: the value of random guessing"] * any(each.chance is not None for each in found)
    lines += ["pool: number of ranked candidates"] * any(each.pool is not None for each in found)
    lines += [f"lower is better: {', '.join(lower)}"] * bool(lower)
    return ["; ".join(lines)] * bool(lines)


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


def settings_lines(result: Result) -> list[str]:
    """Features, protocol and device of a result, and the hash of its settings."""
    balls = [f"{result.ties} balls"] * (MANIFOLD in result.families)
    parts = [*features_of(result), f"protocol {result.protocol}", *balls, result.device]
    lines = [", ".join(parts), f"settings hash {result.fingerprint}"]
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


def listing(rows: Sequence[Mapping[str, object]], details: Sequence[str]) -> str:
    """Records with equal keys: short values in columns, and the `details` on separate lines below."""
    heads = [key for key in rows[0] if key not in details]
    cells = [["-" if row[head] is None else printable(str(row[head])) for head in heads] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    first, *lines = (
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        for row in (heads, *cells)
    )
    parts = [first, "─" * len(first)]
    for line, row in zip(lines, rows, strict=True):
        texts = [str(row[key]) for key in details if row[key] is not None]
        parts += [line, *(wrapped(text, first="   ", others="     ") for text in texts)]
    return "\n".join(part.rstrip() for part in parts)
