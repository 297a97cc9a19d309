"""Several results as text tables: comparisons, panels, rankings, sweeps and watched training runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from genpr.checkpoints.rank import PARETO, RankEntry, Ranking, number_of
from genpr.errors import some
from genpr.evaluation.compare import Comparison
from genpr.evaluation.panel import RATIO, PanelResult
from genpr.evaluation.result import Result
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.registry import ALL_METRICS
from genpr.report.score_tables import remarks_of, settings_lines, sides_text, statistics_lines
from genpr.report.text import Table, cut, interval, number, plus_minus, wrapped

if TYPE_CHECKING:
    from genpr.checkpoints.score_log import Record
    from genpr.checkpoints.sweep import Objective, Sweep, SweepPoint


def comparison_table(results: Mapping[str, Result]) -> str:
    """One row per metric, one column per fake set, and a column "perfect" for a perfect generator."""
    rows = [
        [name, *(f"{result[name]:.2f}" for result in results.values()), plus_minus(metric.known_null, None)]
        for name, metric in next(iter(results.values())).metrics.items()
    ]
    return str(Table("", ["metric", *results, "perfect"], rows))


def side_by_side_table(comparison: Comparison) -> str:
    """Metrics as rows and results as columns, or the other way round if there are many; then differences from the first."""
    results, metrics = comparison.results, comparison.metrics
    is_across = len(results) <= 3
    cells = [["metric" if is_across else "result", *metrics]]
    cells += [
        [label, *(number(each.metrics[name].value) for name in metrics)] for label, each in results.items()
    ]
    if is_across:
        cells = list(map(list, zip(*cells, strict=True)))
    lower = [name for name in metrics if ALL_METRICS[name].better == "lower"]
    lines = [f"lower is better: {', '.join(lower)}"] * bool(lower)
    lines += [f"not scored alike: {difference}" for difference in comparison.differences]
    blocks = [str(Table("", cells[0], cells[1:], lines))]
    first, *others = results
    for name in others:
        rows, pairing = [], ""
        for metric in metrics:
            contrast = comparison.contrast(name, metric)
            if contrast is None:
                rows.append([metric, "-", "-", "no interval is known"])
                continue
            pairing = f" ({contrast.pairing} differences)"
            ends = "{:+.4f} to {:+.4f}".format(*contrast.interval)
            verdict, quality = verdict_of(comparison, name, metric)
            rows.append(
                [metric, f"{contrast.value:+.4f}", ends, f"{verdict} ({quality})" if quality else verdict]
            )
        heads = ["metric", "difference", "95 % interval", "verdict"]
        blocks += ["", wrapped(f"{name} against {first}{pairing}"), str(Table("", heads, rows, texts={0, 3}))]
    return "\n".join(blocks)


def verdict_of(comparison: Comparison, name: str, metric: str) -> tuple[str, str]:
    """Whether a result is "higher" or "lower" than the first one, and whether this is "better" or "worse".

    The latter is empty if it is unknown, or if both exceed the value of a perfect generator.
    """
    contrast, better = comparison.contrast(name, metric), ALL_METRICS[metric].better
    if contrast is None:
        return "no interval", ""
    if contrast.verdict == "not distinguishable":
        return contrast.verdict, ""
    verdict = "higher" if contrast.value > 0 else "lower"
    both = [
        each.metrics[metric].relative
        for each in (comparison.results[name], next(iter(comparison.results.values())))
    ]
    is_perfect = better == "higher" and all(each is not None and each >= 1 for each in both)
    if better == "at null" or is_perfect:
        return verdict, ""
    return verdict, "better" if verdict == better else "worse"


def columns_of(values: Mapping[str, Texts]) -> list[str]:
    """The metrics of all results in display order, then other columns."""
    names = dict.fromkeys(name for texts in values.values() for name in texts[""])
    return [*filter(names.__contains__, ALL_METRICS), *(each for each in names if each not in ALL_METRICS)]


_NULL, _CONTROL, _HELD_OUT = "null", "real v. real", "held-out reals"
_HALVES, _RATIO, _FDR = f"{RATIO}/halves", f"{RATIO}/held-out", "FDr"
Texts = dict[str, dict[str, str]]
"""Texts of a result by metric: values at "", reference values at their title."""


def panel_text(panel: PanelResult) -> str:
    """A row per representation, followed by its reference values, then the sources and settings."""
    tables = []
    for values in filter(None, panel_values(panel)):
        rows = [
            [f"  {title}" if title else label, *(texts.get(name, "-") for name in columns_of(values))]
            for label, found in values.items()
            for title, texts in found.items()
        ]
        tables.append(Table("", ["representation", *columns_of(values)], rows))
    tables[-1] = replace(tables[-1], lines=panel_legend(panel))
    settings = [
        wrapped(f"{name}: {', '.join(settings_lines(result))}") for name, result in panel.every.items()
    ]
    return "\n\n".join([*map(str, tables), "\n".join([*panel_sides(panel), *settings])])


def panel_values(panel: PanelResult) -> tuple[dict[str, Texts], dict[str, Texts]]:
    """The texts of each representation, and those of the metrics on features of their own."""
    values = {name: _texts_of(result, panel.held_out.get(name)) for name, result in panel.items()}
    others = (
        {} if panel.others is None else {"other features": _texts_of(panel.others, panel.others_held_out)}
    )
    fdr = {} if panel.fdr6 is None else panel.fdr6.ratios
    for head, found in ((_RATIO if panel.held_out else _HALVES, panel.ratios), (_FDR, fdr)):
        for name, ratio in found.items():
            if ratio is not None:
                values[name][""][head] = number(ratio)
    return values, others


def _texts_of(result: Result, held_out: Result | None) -> Texts:
    control = {} if result.control is None else result.control.values
    kept = {} if held_out is None else held_out.metrics
    nulls = {name: metric.known_null for name, metric in result.metrics.items()}
    found = {
        _NULL: {name: number(null) for name, null in nulls.items() if null is not None},
        _CONTROL: {name: number(value) for name, value in control.items()},
        _HELD_OUT: {name: number(metric.value) for name, metric in kept.items()},
    }
    values = {name: number(metric.value) for name, metric in result.metrics.items()}
    return {"": values} | {title: texts for title, texts in found.items() if texts}


def panel_legend(panel: PanelResult) -> list[str]:
    """Explanations of the reference values and ratios, and remarks on metrics with the names of results that have them."""
    first, kept = next(iter(panel.values())), next(iter(panel.held_out.values()), None)
    lines = [f"{_NULL}: the mean value of a perfect generator with the same numbers of images"]
    if first.control is not None:
        sizes = f"{first.control.n_real:,} of the reals against the other {first.control.n_fake:,}"
        lines.append(f"{_CONTROL}: {sizes}")
    if kept is not None:
        fewer = "; they are fewer than the fakes, which raises distances" * (kept.fake.n < first.fake.n)
        lines.append(
            f"{_HELD_OUT}: {kept.fake.n:,} images, scored like the fakes against the same reals{fewer}"
        )
    elif any(panel.ratios.values()):
        text = "half as many images have a larger distance, so a perfect generator is below 1; --held-out avoids this"
        lines.append(f"{_HALVES}: {RATIO} divided by that of {_CONTROL}; {text}")
    if (found := panel.fdr6) is not None:
        lines.append(
            f"FDr6 {number(found.mean)}: the mean of {_FDR}, which is {RATIO} divided by that of ImageNet's validation images. "
            f"The latter is published with two decimals, so FDr6 is between {number(found.low)} and {number(found.high)}"
        )
    remarks: dict[str, list[str]] = {}
    for name, result in panel.every.items():
        given = () if result.reference_statistics is None else result.reference_statistics.metrics
        texts = {metric: "; ".join(remarks_of(result, metric)) for metric in result.metrics}
        texts |= dict.fromkeys(given, "") | dict.fromkeys(result.undefined, "no value with these images")
        for metric, text in texts.items():
            if text:
                remarks.setdefault(f"{metric}: {text}", []).append(name)
    return [*lines, *(f"{text} ({some(names, 6)})" for text, names in remarks.items())]


def panel_sides(panel: PanelResult) -> list[str]:
    """A line per source."""
    first, kept = next(iter(panel.values())), next(iter(panel.held_out.values()), None)
    sides = {"real": first.real, "fake": first.fake} | ({} if kept is None else {"held-out": kept.fake})
    lines = sides_text(sides)
    if kept is not None and kept.n_shared:
        lines[-1] += f", {kept.n_shared:,} of which are among the reals"
    given = [result.reference_statistics for result in panel.every.values() if result.reference_statistics]
    return [*lines, *(statistics_lines(*given) if given else ())]


def ranking_table(ranking: Ranking) -> str:
    """One row per checkpoint, the best first, then the outcome in sentences."""
    by, table = f"{ranking.by}, {ranking.better} is better", None
    if ranking.by == PARETO:
        rows = []
        for entry in ranking.entries:
            row = _place(entry)
            for name in F_SCORE_METRICS:
                found = ranking.results[entry.name].metrics.get(name)
                row += ["-", "-"] if found is None else [number(found.value), interval(found.interval)]
            rows.append([*row, some(entry.dominated_by)])
        heads = ["rank", "checkpoint", *(x for name in F_SCORE_METRICS for x in (name, "95 % interval"))]
        by = "their Pareto front of precision and recall"
        table = Table("", [*heads, "dominated by"], rows, ranking.remarks, {1, len(heads)})
    heading = wrapped(f"{len(ranking.entries)} checkpoints by {by}")
    return "\n\n".join([heading, str(table or ranking_rows(ranking)), wrapped(ranking.summary)])


def _place(entry: RankEntry) -> list[str]:
    """The cells of the rank, which marks contenders, and the name."""
    return [f"{'-' if entry.rank is None else entry.rank} {'*' if entry.is_contender else ' '}", entry.name]


def ranking_rows(ranking: Ranking) -> Table:
    """One row per checkpoint with its difference to the winner, and the value of a perfect generator if all have the same."""
    by, criterion = ranking.by, number_of(ranking.by)
    shown = [
        name
        for name in F_SCORE_METRICS
        if name != by and all(name in result.metrics for result in ranking.results.values())
    ]
    rows = []
    for entry in ranking.entries:
        difference = "-"
        if entry.difference is not None and entry.bounds is not None:
            difference = f"{entry.difference:+.3f} ± {(entry.bounds.high - entry.bounds.low) / 2:.3f}"
        elif entry.difference is not None:
            difference = f"{'-' if entry.difference < 0 else '+'}{number(abs(entry.difference))}"
        values = [number(ranking.results[entry.name][name]) for name in shown]
        values += [number(entry.value), interval(entry.interval), difference * (entry.name != ranking.winner)]
        rows.append([*_place(entry), *values])
    bounds = ", ± its simultaneous 95 % bound" * ranking.has_bounds
    lines = [f"to the winner: {by} minus that of {ranking.winner}{bounds}"] * (len(rows) > 1)
    lines += ["*: with 95 % confidence, the true best is among these"] * ranking.has_bounds
    valued = [ranking.results[entry.name] for entry in ranking.entries if entry.value is not None]
    nulls = {number(criterion.null(result)) for result in valued} - {"-"}
    lines += [f"{by} of a perfect generator: {null}" for null in nulls if len(nulls) == 1]
    heads = ["rank", "checkpoint", *shown, by, "95 % interval", "to the winner"]
    return Table(f"By {by}, {ranking.better} is better", heads, rows, [*lines, *ranking.remarks], {1})


def sweep_table(sweep: Sweep, objective: Objective) -> str:
    """Settings as rows and metrics as columns, then the best setting."""
    axis, best, metrics = sweep.axis, sweep.best(objective), sweep.points[0].result.metrics
    records = []
    for point in sweep.points:
        record = {cut(axis, 12): f"{point.setting:g}", "f1": f"{point.values['f1']:.3f}"}
        for name in metrics:
            metric = point.result.metrics.get(name)
            if metric is None or metric.interval is None:
                record[name] = number(None if metric is None else metric.value)
            elif ALL_METRICS[name].kind == "neighbors":
                record[name] = plus_minus(metric.value, metric.interval, digits=3)
            else:  # intervals of distances are not symmetric
                ends = interval(metric.interval, ", ", as_values=True)
                record[name] = f"{number(metric.value)} [{ends}]"
        records.append(record)
    known = {name: each.known_null for name, each in metrics.items()}
    nulls = [f"{name} {number(null)}" for name, null in known.items() if null is not None]
    lines = [f"null: {', '.join(nulls)}"] * bool(nulls)

    def at(points: Iterable[SweepPoint]) -> str:
        return f"{axis} = {', '.join(f'{point.setting:g}' for point in points)}"

    lines.append(f"best ({objective}): {at([best]) if best else 'no setting meets the constraint'}")
    contenders = sweep.contenders(objective)
    if contenders and best is not None and len(sweep.points) > 1:
        others = [point for point in contenders if point.setting != best.setting]
        tied = at(others) if others else "no other setting"
        lines.append(f"statistically tied with it: {tied} (simultaneous 95 % bounds)")
    front = {each.setting for each in sweep.front}
    if dominated := [point for point in sweep.points if point.setting not in front]:
        what = "another setting has at least the same precision and recall, and one is higher"
        lines.append(f"dominated: {at(dominated)} ({what})")
    if unlike := some(sweep.differences, 1, longest=200):
        lines.append(f"warning: not all points were scored alike, which may change values: {unlike}")
    points: dict[str, list[SweepPoint]] = {}
    for point in sweep.points:
        for code in (item.code for item in point.result.notices if item.level == "warning"):
            points.setdefault(code, []).append(point)
    lines += [f"warning [{code}]: at {at(found)}" for code, found in points.items()]
    return str(Table.of("", records, lines))


def score_line(record: Record, by: str, *, is_best: bool) -> str:
    """One score of a training run in one line."""
    found = ", ".join(f"{name} {number(value)}" for name, value in _values(record, by).items())
    return f"{record['name']}: {found}" + " (best so far)" * is_best


def watched_table(records: Sequence[Record], best: Record | None, by: str) -> str:
    """Every recorded source of a training run in the order of the file, then the best by one metric."""
    values = [_values(record, by) for record in records]
    names = dict.fromkeys(name for each in values for name in each)
    rows = [
        {"source": record["name"], "images": f"{record['n_fake']:,}"}
        | {name: number(known.get(name)) for name in names}
        for record, known in zip(records, values, strict=True)
    ]
    lines = []
    if best is not None:
        value, better = number(_values(best, by)[by]), number_of(by).better
        lines.append(f"best by {by} ({better} is better): {best['name']}, {value}")
    sizes = sorted({record["n_fake"] for record in records})
    if len(sizes) > 1:
        text = f"sources have {sizes[0]:,} to {sizes[-1]:,} images, and recall and coverage depend on the number of images"
        lines.append(text)
    return str(Table.of("", rows, lines))


def _values(record: Record, by: str) -> dict[str, float]:
    """Values by metric, that of the ranking criterion first."""
    value = number_of(by).value_in(record["metrics"])
    return {**({} if value is None else {by: value}), **record["metrics"]}
