"""Scores and comparisons as text tables of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genpr.errors import printable
from genpr.evaluation.compare import Comparison
from genpr.evaluation.result import Result, SideSummary, StatisticsSummary
from genpr.images.policy import choices_in
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.uncertainty import Interval
from genpr.metrics.value import MetricValue
from genpr.report.text import WIDTH, head_width, interval, number, table, wrapped

THRESHOLDS = {"fixed": "one for all detections", "labeled": "chosen on labeled images"}
"""How thresholds of entities were chosen, in words."""


def features_of(result: Result) -> str | None:
    """What computed the features; None where no one did, as between answers and what was expected, or several."""
    if result.extractor is not None:
        return result.extractor.name
    is_of_answers = result.entities is not None and set(result.families) <= {"entity"}
    return None if is_of_answers or result.reconstruction is not None else "features of an unknown extractor"


def remarks_of(result: Result, name: str) -> list[str]:
    """What distinguishes one value: exact value, spread, features, variant, effect of unreadable answers."""
    metric, found = result.metrics[name], []
    if metric.exact_value is not None:
        found.append(f"{result.distances} arithmetic; the exact value is {metric.exact_value:.4f}")
    if metric.spread is not None:
        found.append(f"standard deviation {metric.spread:.4g} over {metric.spread_over}")
    if metric.bias is not None:
        found.append(f"about {metric.bias:.3g} of it is bias of as many images")
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


def value_text(metric: MetricValue) -> str:
    """A value; `~` marks the arithmetic of another tool."""
    return number(metric.value) if metric.exact else f"~{number(metric.value)}"


def ends_text(ends: Interval | None, between: str = " - ", missing: str = "-") -> str:
    """Both ends of an interval."""
    return interval(None if ends is None else (ends.low, ends.high), between, missing)


def known_null(metric: MetricValue) -> float | None:
    """What a perfect generator scores; None for a null that is estimated from halves of the reals."""
    return None if metric.null_source == "real halves" else metric.null


def metric_texts(result: Result, name: str, *, between: str = " - ", label: str = "") -> dict[str, str]:
    """What is known of a metric, by column, a hyphen where something is not; `label` is of the null of the control."""
    metric, control = result.metrics[name], result.control
    value, null = (None, None) if control is None else (control.values.get(name), control.nulls.get(name))
    is_share = metric.relative is not None and ALL_METRICS[name].better == "higher"
    return {
        "value": value_text(metric),
        "interval": interval(metric.interval, between, as_values=result.reconstruction is not None),
        "null": number(known_null(metric)),
        "relative": f"{metric.relative:.0%}" if is_share else "-",
        "k": "-" if metric.k is None else str(metric.k),
        "control": number(value) if value is None or null is None else f"{value:.3f} ({label}{null:.3f})",
        "chance": number(metric.chance),
        "pool": "-" if metric.pool is None else f"{metric.pool:,}",
    }


def score_table(result: Result) -> str:
    """Every metric with its interval, null and control, then what was compared."""
    tables = [text for text in (_manifold_table(result), _family_table(result)) if text]
    facts = {name: remarks_of(result, name) for name in result.metrics}
    for family, names in result.families.items():
        same = {tuple(facts[name]) for name in names}
        if family != MANIFOLD and len(names) > 1 and len(same) == 1:
            facts = {name: found for name, found in facts.items() if name not in names}
            facts[f"{family}.*"] = list(same.pop())
    remarks = [wrapped(f"{name}: {'; '.join(found)}") for name, found in facts.items() if found]
    if result.undefined:
        remarks.append(wrapped(f"no value with these images: {', '.join(result.undefined)}"))
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
    if any(result.metrics[name].null is not None for name in names):
        lines.append("null: what a perfect generator scores with so many images; more is normal")
    if control is not None:
        sizes = f"{control.n_real:,} of the reals against the other {control.n_fake:,}"
        lines.append(f"real v. real: {sizes} (with that null)")
    if any(metric.null_source == "real halves" for metric in result.metrics.values()):
        lines.append("no null is known where it says -: read the value beside real v. real")
    return "\n".join(lines)


_HEADS = {"interval": "95 % interval", "relative": "/null", "control": "real v. real"}


def _metric_table(
    result: Result, names: Sequence[str], columns: Sequence[str], *, sections: Sequence[int] = ()
) -> str:
    rows = [[name, *map(metric_texts(result, name).__getitem__, columns)] for name in names]
    heads = [_HEADS.get(column, column) for column in columns]
    return table(["metric", *heads], rows, sections=sections, whole="none")


def _family_table(result: Result) -> str:
    """Metrics of labels, prompts and entities beside what guessing scores."""
    families = [names for family, names in result.families.items() if family != MANIFOLD]
    found = [name for names in families for name in names]
    if not found:
        return ""
    texts = [metric_texts(result, name) for name in found]
    extra = [head for head in ("null", "chance", "pool") if any(each[head] != "-" for each in texts)]
    ends = [sum(map(len, families[: index + 1])) - 1 for index in range(len(families))]
    lines = ["chance: what guessing scores"] * ("chance" in extra)
    lines += ["pool: how many candidates each one is ranked among"] * ("pool" in extra)
    lower = [name for name in found if ALL_METRICS[name].better == "lower"]
    lines += [f"less is better: {', '.join(lower)}"] * bool(lower)
    text = _metric_table(result, found, ["value", "interval", *extra], sections=ends)
    return "\n".join([text, *[wrapped("; ".join(lines))] * bool(lines)])


def sides_text(sides: Mapping[str, SideSummary]) -> list[str]:
    """A line for each set by its role; a path stays in one piece."""
    width, lines = max(map(len, sides)), []
    for role, summary in sides.items():
        chosen = "".join(f", {name} {value}" for name, value in choices_in(summary.decoder).items())
        skipped = f", {len(summary.skipped):,} left out" if summary.skipped else ""
        counted = f"{summary.n:,} {summary.what}" if summary.n else "mean and covariance"
        lines.append(f"{role:<{width}}  {counted} of {printable(summary.source + chosen)}{skipped}")
    return lines


def _footer(result: Result) -> str:
    """What was compared, a line for each set, and how."""
    lines = sides_text(dict(zip(result.roles, (result.real, result.fake), strict=True)))
    if result.reference_statistics is not None:
        lines += statistics_lines(result.reference_statistics)
    features, info = features_of(result), result.extractor
    if info is not None:
        features = f"{info.name} ({info.dim}-d, resize {info.resize})"
    balls = [f"{result.ties} balls"] if MANIFOLD in result.families else []
    parts = [*([features] if features else []), f"protocol {result.protocol}", *balls, result.device]
    lines += [wrapped(", ".join(parts)), f"fingerprint {result.fingerprint}"]
    return "\n".join([*lines, *["not comparable with published numbers"] * (not result.comparable)])


def statistics_lines(*results: StatisticsSummary) -> list[str]:
    """Which metrics compare with the reference statistics in a file, and which these are; one result says by which keys."""
    summary = results[0]
    names = ", ".join(dict.fromkeys(name for each in results for name in each.metrics))
    keys = f" ({', '.join(dict.fromkeys(summary.metrics.values()))})" if len(results) == 1 else ""
    facts = [summary.known] if summary.known else []
    facts += [f"of {summary.count:,} images"] if summary.count else []
    # A path stays in one piece.
    first = f"{names} from mean and covariance{keys} of {printable(summary.source)}"
    return [first, *[wrapped(", ".join(facts), first="  ")] * bool(facts)]


def comparison_table(results: Mapping[str, Result]) -> str:
    """One row per metric, one column per named set of fakes, and one, "perfect", for a perfect generator."""
    metrics = next(iter(results.values())).metrics
    rows = []
    for name, metric in metrics.items():
        null = "-" if metric.null is None else f"{metric.null:.2f}"
        rows.append([name, *(f"{result[name]:.2f}" for result in results.values()), null])
    return table(["metric", *results, "perfect"], rows)


_MOST_ACROSS = 3
_FOR_METRICS = WIDTH - 24  # columns beside the labels of results


def side_by_side_table(comparison: Comparison) -> str:
    """Metrics down and results across while they fit; many results go down, with the metrics across."""
    results, metrics = comparison.results, comparison.metrics
    if len(results) <= _MOST_ACROSS:
        rows = [
            [name, *(value_text(each.metrics[name]) for each in results.values()), ALL_METRICS[name].better]
            for name in metrics
        ]
        tables = [table(["metric", *results, "better"], rows, texts=(0, -1), whole="none")]
    else:
        tables = []
        for names in blocks_of(metrics, [max(head_width(each), 9) + 2 for each in metrics], _FOR_METRICS):
            rows = [
                [label, *(value_text(result.metrics[name]) for name in names)]
                for label, result in results.items()
            ]
            tables.append(table(["result", *names], rows, whole="none"))
    differences = [wrapped(f"not made alike: {difference}") for difference in comparison.differences]
    return "\n".join(["\n\n".join(tables), *differences, *_contrasts(comparison)])


def blocks_of(names: Sequence[str], widths: Sequence[int], room: int) -> list[list[str]]:
    """The columns of one table as blocks, each of which fits."""
    blocks: list[list[str]] = [[]]
    left = room
    for name, width in zip(names, widths, strict=True):
        if blocks[-1] and width > left:
            blocks.append([])
            left = room
        blocks[-1].append(name)
        left -= width
    return blocks


_PAIRINGS = {"paired": "the same {what}, whose effect on both cancels", "unpaired": "other {what} or halves"}


def _contrasts(comparison: Comparison) -> list[str]:
    """Each difference from the first result with its interval, in a table per other result."""
    first, *others = comparison.results
    what = comparison.results[first].real.what
    blocks = []
    for name in others:
        rows, pairing = [], ""
        for metric in comparison.metrics:
            contrast = comparison.contrast(name, metric)
            if contrast is None:
                rows.append([metric, "-", "-", "no interval is known"])
                continue
            explained = _PAIRINGS[contrast.pairing].format(what="reals" if what == "images" else what)
            pairing = f" ({contrast.pairing}: {explained})"
            ends = f"{contrast.interval.low:+.4f} to {contrast.interval.high:+.4f}"
            rows.append([metric, f"{contrast.value:+.4f}", ends, contrast.verdict])
        heads = ["metric", "difference", "95 % interval", "verdict"]
        blocks += ["", wrapped(f"{name} against {first}{pairing}"), table(heads, rows, texts=(0, -1))]
    return blocks


def listing(rows: Sequence[Mapping[str, object]], details: Sequence[str]) -> str:
    """Records with equal keys: the short facts in columns, and the `details` below each, one to a line."""
    columns = [key for key in rows[0] if key not in details]
    cells = [["-" if row[key] is None else str(row[key]) for key in columns] for row in rows]
    head, rule, *lines = table(columns, cells, texts=range(len(columns)), whole="all").splitlines()
    parts = [head, rule]
    for line, row in zip(lines, rows, strict=True):
        texts = [str(row[key]) for key in details if row[key] is not None]
        parts += [line, *(wrapped(text, first="   ", others="     ") for text in texts)]
    return "\n".join(parts)
