"""Results as text: tables that fit 80 columns, plain when the output is not a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Column, Table

from genpr.evaluation.compare import Comparison
from genpr.evaluation.result import Result, SideSummary
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.registry import ALL_METRICS
from genpr.metrics.value import Control, MetricValue
from genpr.report.remarks import features_of, remarks_of
from genpr.report.text.asked_table import asked_table
from genpr.report.text.layout import WIDTH, number, plain, plain_table, render, wrapped

_PERFECT = "perfect"
_NUMBER = 9  # columns of a value
_FOR_METRICS = WIDTH - 24  # columns beside the labels of results


def score_table(result: Result, *, details: bool = False) -> str:
    """Every metric with its interval and what it is held against, then what was compared with what."""
    hubs = _hubs(result) if details else []
    tables = [table for table in (_manifold_table(result), asked_table(result)) if table]
    return "\n".join(["\n\n".join(tables), *_remarks(result), *hubs, _footer(result)])


def _manifold_table(result: Result) -> str:
    """Beside the null and the control; empty where there are no such metrics."""
    names = result.families.get(MANIFOLD, ())
    if not names:
        return ""
    control = result.control
    columns = ["metric", "value", "95 % interval", "null", "/null", "k"]
    table = plain_table(*columns, *(["real v. real"] if control else []))
    for column in table.columns[1:]:
        column.justify = "right"
    for column in table.columns:
        column.overflow = "fold"  # a number that is cut reads as another
    for name in names:
        metric = result.metrics[name]
        low_high = "-" if metric.interval is None else " - ".join(f"{end:.3f}" for end in metric.interval)
        is_known = metric.null_source != "real halves"
        null = number(metric.null) if is_known and metric.null is not None else "-"
        is_share = metric.relative is not None and ALL_METRICS[name].better == "higher"
        relative = f"{metric.relative:.0%}" if is_share else "-"
        k = "-" if metric.k is None else str(metric.k)
        table.add_row(name, _value(metric), low_high, null, relative, k, *_controlled(name, control))
    return "\n".join([render(table), *_legend(result)])


def _hubs(result: Result) -> list[str]:
    """How unevenly the reals are each other's neighbours."""
    found = result.hubness
    if found is None:
        return []
    return [
        wrapped(
            f"hubness, k = {found.k}: {found.orphan_rate:.1%} of the reals lie in no other's ball "
            f"({found.expected_orphan_rate:.1%} without hubs), skewness {found.skewness:.1f}; "
            f"{found.largest_name} vouches for {found.largest_share:.1%} of the fakes"
        )
    ]


def _value(metric: MetricValue) -> str:
    text = number(metric.value)
    return text if metric.exact else f"~{text}"


def _controlled(name: str, control: Control | None) -> list[str]:
    """The value of the control beside its own null."""
    if control is None:
        return []
    value, null = control.values.get(name), control.nulls.get(name)
    if value is None:
        return ["-"]
    return [number(value) if null is None else f"{value:.3f} ({null:.3f})"]


def _legend(result: Result) -> list[str]:
    """What the columns mean, as far as they hold anything."""
    lines = _purposes(result)
    if any(result.metrics[name].null is not None for name in result.families[MANIFOLD]):
        lines.append("null: what a perfect generator scores with so many images; more is normal")
    if result.control is not None:
        n_real, n_fake = result.control.n_real, result.control.n_fake
        lines.append(f"real v. real: {n_real:,} of the reals against the other {n_fake:,} (with that null)")
    if any(metric.null_source == "real halves" for metric in result.metrics.values()):
        lines.append("no null is known where it says -: read the value beside real v. real")
    undefined = ", ".join(result.undefined)
    return [*lines, *([f"no value with these images: {undefined}"] if undefined else [])]


def _remarks(result: Result) -> list[str]:
    """What stands behind single values, a line for each."""
    facts = {name: remarks_of(result, metric) for name, metric in result.metrics.items()}
    for family, names in result.families.items():
        same = {tuple(facts[name]) for name in names}
        if family != MANIFOLD and len(names) > 1 and len(same) == 1:
            facts = {name: found for name, found in facts.items() if name not in names}
            facts[f"{family}.*"] = list(same.pop())
    return [wrapped(f"{name}: {'; '.join(found)}") for name, found in facts.items() if found]


def _purposes(result: Result) -> list[str]:
    """Which metrics judge what."""
    parts = []
    for purpose in ("fidelity", "diversity"):
        known = result.families[MANIFOLD]
        names = [name for name in known if f"({purpose})" in ALL_METRICS[name].meaning]
        if names:
            parts.append(f"{purpose}: {', '.join(names)}")
    return [wrapped("; ".join(parts))] if parts else []


def comparison_table(results: Mapping[str, Result], captions: Mapping[str, str]) -> str:
    """One row per named fake set, with a caption that says what its numbers show; and one for a perfect generator."""
    metrics = list(next(iter(results.values())).metrics)
    table = plain_table("fakes", *metrics, "what it shows")
    for name, result in results.items():
        table.add_row(name, *(f"{result[metric]:.2f}" for metric in metrics), captions[name])
    nulls = [next(iter(results.values())).metrics[metric].null for metric in metrics]
    table.add_row(_PERFECT, *("-" if null is None else f"{null:.2f}" for null in nulls), captions[_PERFECT])
    for column in table.columns[1:-1]:
        column.justify = "right"
    return render(table)


def side_by_side_table(comparison: Comparison) -> str:
    """Metrics down and results across while they fit; many results go down, with the metrics across."""
    results, metrics = comparison.results, comparison.metrics
    if len(results) <= _MOST_ACROSS:
        table = plain_table("metric", *results, "better")
        for name in metrics:
            values = [_value(result.metrics[name]) for result in results.values()]
            table.add_row(name, *values, ALL_METRICS[name].better)
        tables = [_folding(table, table.columns[1:-1])]
    else:
        tables = [_down(results, names) for names in _fitting(metrics)]
    differences = [wrapped(f"not made alike: {difference}") for difference in comparison.differences]
    return "\n".join(["\n\n".join(tables), *differences, *_contrasts(comparison)])


def _down(results: Mapping[str, Result], metrics: Sequence[str]) -> str:
    table = plain_table("result", *metrics)
    for label, result in results.items():
        table.add_row(label, *(_value(result.metrics[name]) for name in metrics))
    return _folding(table, table.columns[1:])


def _folding(table: Table, numbers: Sequence[Column]) -> str:
    """Names are folded to fit; numbers stand to the right."""
    for column in table.columns:
        column.overflow = "fold"
    for column in numbers:
        column.justify = "right"
    return render(table)


def _fitting(metrics: Sequence[str]) -> list[list[str]]:
    """The metrics in as few tables as leave their names and numbers in one piece."""
    found: list[list[str]] = [[]]
    room = _FOR_METRICS
    for name in metrics:
        width = max(len(name), _NUMBER) + 2
        if found[-1] and width > room:
            found.append([])
            room = _FOR_METRICS
        found[-1].append(name)
        room -= width
    return found


def _contrasts(comparison: Comparison) -> list[str]:
    """How sure each difference from the first result is, in a table per other result."""
    first, *others = comparison.results
    side = comparison.results[first].real
    what = "reals" if side.what == "images" else side.what
    blocks = []
    for name in others:
        table = plain_table("metric", "difference", "95 % interval", "verdict")
        table.columns[1].justify = table.columns[2].justify = "right"
        pairing = ""
        for metric in comparison.metrics:
            contrast = comparison.contrast(name, metric)
            if contrast is None:
                table.add_row(metric, "-", "-", "no interval is known")
                continue
            low, high = contrast.interval.low, contrast.interval.high
            pairing = f" ({contrast.pairing}: {_PAIRINGS[contrast.pairing].format(what=what)})"
            table.add_row(metric, f"{contrast.value:+.4f}", f"{low:+.4f} to {high:+.4f}", contrast.verdict)
        blocks += ["", wrapped(f"{name} against {first}{pairing}"), render(table)]
    return blocks


_PAIRINGS = {
    "paired": "the same {what}, so what they do to both cancels",
    "unpaired": "other {what} or halves",
}


_MOST_ACROSS = 3


def listing(rows: Sequence[Mapping[str, object]], details: Sequence[str]) -> str:
    """Records with equal keys: the short facts in columns, and the `details` below each, one to a line."""
    columns = [key for key in rows[0] if key not in details]
    table = plain_table(*columns)
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*("-" if row[key] is None else str(row[key]) for key in columns))
    head, rule, *lines = render(table).splitlines()
    texts = [[str(row[key]) for key in details if row[key] is not None] for row in rows]
    below = ["\n".join(wrapped(text, first="   ", others="     ") for text in each) for each in texts]
    return "\n".join([head, rule, *(f"{line}\n{text}" for line, text in zip(lines, below, strict=True))])


def _footer(result: Result) -> str:
    features, info = features_of(result), result.extractor
    if info is not None:
        features = f"{info.name} ({info.dim}-d, resize {info.resize})"
    made = f"{features}, " if features else ""
    balls = f", {result.ties} balls" if MANIFOLD in result.families else ""
    comparable = "" if result.comparable else "\nnot comparable with published numbers"
    return (
        _sides(result)
        + wrapped(f"{made}protocol {result.protocol}{balls}, {result.device}")
        + f"\nfingerprint {result.fingerprint}{comparable}"
    )


def _sides(result: Result) -> str:
    """A line for each: what it is called, and what it holds."""
    roles = result.roles
    width = max(map(len, roles))
    sides = zip(roles, (result.real, result.fake), strict=True)
    return "".join(f"{role:<{width}}  {_side(side)}\n" for role, side in sides)


def _side(side: SideSummary) -> str:
    skipped = f", {len(side.skipped):,} left out" if side.skipped else ""
    return f"{side.n:,} {side.what} of {plain(side.source)}{skipped}"  # a path stays in one piece
