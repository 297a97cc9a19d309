"""The pass/fail matrix with the margin that decided each cell, as text and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from genpr.audit.checks import CHECKS
from genpr.audit.criteria import (
    COLUMN_OF,
    DEMANDS,
    SOURCE,
    Demand,
    Kind,
    Margin,
    Mark,
    all_of,
    published_mark,
)
from genpr.audit.runner import Results, Run

_LONGEST = 40  # columns of a metric's name
NOISE = 2.0
"""Standard errors within which a margin may be due to the draws."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric under one demand.

    Attributes:
        demand: What was demanded.
        metric: Of which metric.
        mark: "T", "H" or "L" if it passes, "F" if it fails.
        margin: By how much, at the point that decides; of a failure, towards the published pass if there is one.
        published: The published mark, if the metric was audited there.
        marks: The marks with every seed, that of the first one first.
    """

    demand: Demand
    metric: str
    mark: Mark
    margin: Margin
    published: Mark | None
    marks: tuple[Mark, ...]

    @property
    def passes(self) -> bool:
        """Whether the demand is met."""
        return self.mark != "F"

    @property
    def differs(self) -> bool:
        """Whether something else was published."""
        return self.published is not None and self.published != self.mark

    @property
    def errors(self) -> float:
        """The margin in its own standard errors, never negative; infinite if it has none."""
        se = self.margin.se
        return abs(self.margin.value) / se if se > 0 else math.inf

    @property
    def is_open(self) -> bool:
        """Whether the margin is within the noise of the draws, so that another seed may turn the cell."""
        return self.errors <= NOISE

    @property
    def passing_seeds(self) -> int:
        """With how many of the seeds the demand is met."""
        return sum(mark != "F" for mark in self.marks)

    @property
    def changes(self) -> bool:
        """Whether it passes with some seeds and fails with others."""
        return 0 < self.passing_seeds < len(self.marks)

    @property
    def reason(self) -> str:
        """Where and why it passes or fails, in words."""
        where = f" ({self.margin.setting})" if self.margin.setting else ""
        if not math.isfinite(self.margin.value):
            return f"{self.margin.what}{where}"
        return f"{self.margin.what}{where}; {margin_text(self.margin)}"


@dataclass(frozen=True, slots=True)
class Matrix:
    """All cells that could be judged.

    Attributes:
        kinds: What each metric claims to measure, in display order.
        demands: The rows, in the published order.
        cells: By row name and metric.
        seeds: Of the runs that were judged; all but the marks of a cell is of the first one.
    """

    kinds: Mapping[str, Kind]
    demands: tuple[Demand, ...]
    cells: Mapping[tuple[str, str], Cell]
    seeds: tuple[int, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.kinds)

    def of(self, metric: str) -> tuple[Cell, ...]:
        """The judged cells of a metric, in the order of the rows."""
        found = (self.cells.get((demand.name, metric)) for demand in self.demands)
        return tuple(cell for cell in found if cell is not None)

    def passes(self, metric: str) -> int:
        """How many demands a metric meets."""
        return sum(cell.passes for cell in self.of(metric))

    @property
    def differing(self) -> tuple[Cell, ...]:
        """Cells that are not as published, metric by metric."""
        return tuple(cell for metric in self.metrics for cell in self.of(metric) if cell.differs)

    @property
    def changing(self) -> tuple[Cell, ...]:
        """Cells whose outcome changes with the seed, metric by metric."""
        return tuple(cell for metric in self.metrics for cell in self.of(metric) if cell.changes)


def judge(results: Results, kinds: Mapping[str, Kind], *more: Results) -> Matrix:
    """Hold every metric in `kinds` against every demand; rows that no metric was measured for are left out.

    Args:
        results: What was measured.
        kinds: What each metric claims to measure.
        more: The same, measured with other seeds; a cell has a mark for each.
    """
    cells: dict[tuple[str, str], Cell] = {}
    for row, demand in enumerate(DEMANDS):
        for metric, kind in kinds.items():
            cell = _cell(results, demand, row, metric, kind)
            if cell is not None:
                others = [_cell(each, demand, row, metric, kind) for each in more]
                marks = [other.mark for other in others if other is not None]
                complete = len(marks) == len(more)  # results of an earlier run may lack a metric
                cells[demand.name, metric] = replace(cell, marks=(cell.mark, *marks)) if complete else cell
    names = {name for name, _ in cells}
    demands = tuple(demand for demand in DEMANDS if demand.name in names)
    return Matrix(dict(kinds), demands, cells, tuple(each.run.seed for each in (results, *more)))


def margin_text(margin: Margin) -> str:
    """By how much, with the standard error."""
    if not math.isfinite(margin.value):
        return "-"
    se = "" if math.isnan(margin.se) else f" ± {margin.se:.3f}"
    return f"margin {margin.value:+.3f}{se}"


def _cell(results: Results, demand: Demand, row: int, metric: str, kind: Kind) -> Cell | None:
    curves = [results.curve(demand.check, setting, metric) for setting in CHECKS[demand.check].settings]
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves):
        return None
    ways = demand.ways(kind)
    margins = {mark: all_of(*(criterion(curve) for curve in known)) for mark, criterion in ways.items()}
    best = max(margins, key=lambda mark: margins[mark].value)
    published = published_mark(metric, row)
    if margins[best].holds:
        return Cell(demand, metric, best, margins[best], published, (best,))
    nearest = published if published in margins else best
    return Cell(demand, metric, "F", margins[nearest], published, ("F",))


def text_blocks(matrix: Matrix, *, width: int = 80) -> str:
    """The matrix for a terminal: rows down, metrics across, in as many blocks as fit `width` columns.

    A star marks what is not as published, a tilde what lies within the noise of the draws, and "3/5" what passes with
    three of five seeds.
    """
    label = max(len(demand.name) for demand in matrix.demands)
    blocks: list[list[str]] = [[]]
    used = label
    for metric in matrix.metrics:
        needed = 2 + _column_width(matrix, metric)
        if blocks[-1] and used + needed > width:
            blocks.append([])
            used = label
        blocks[-1].append(metric)
        used += needed
    return "\n\n".join(_block(matrix, metrics, label) for metrics in blocks)


def _fitting(metric: str) -> str:
    """A name of the user's function may be of any length."""
    return metric if len(metric) <= _LONGEST else f"{metric[: _LONGEST - 3]}..."


def _block(matrix: Matrix, metrics: Sequence[str], label: int) -> str:
    widths = [_column_width(matrix, metric) for metric in metrics]
    lines = [_line("", [_fitting(metric) for metric in metrics], widths, label)]
    for demand in matrix.demands:
        cells = [matrix.cells.get((demand.name, metric)) for metric in metrics]
        lines.append(_line(demand.name, [cell_text(cell) for cell in cells], widths, label))
    totals = [f"{matrix.passes(metric)}/{len(matrix.of(metric))}" for metric in metrics]
    lines.append(_line("passed", totals, widths, label))
    return "\n".join(lines)


def cell_text(cell: Cell | None) -> str:
    """The mark; how many seeds pass if that changes, else a tilde if it is open; a star if it is not as published."""
    if cell is None:
        return "-"
    noise = f" {cell.passing_seeds}/{len(cell.marks)}" if cell.changes else "~" if cell.is_open else ""
    return cell.mark + noise + ("*" if cell.differs else "")


def _line(label: str, texts: Sequence[str], widths: Sequence[int], width: int) -> str:
    parts = (f"  {text:^{column}}" for text, column in zip(texts, widths, strict=True))
    return (f"{label:<{width}}" + "".join(parts)).rstrip()


def _column_width(matrix: Matrix, metric: str) -> int:
    longest = max((len(cell_text(cell)) for cell in matrix.of(metric)), default=0)
    return max(len(_fitting(metric)), len("30/30"), longest)


KINDS: tuple[Kind, ...] = ("fidelity", "diversity")

_LEGEND = (
    "T: passes. F: fails. H, L: passes, where fakes are wider than reals, with high or with low diversity.",
    f"~: the margin is within {NOISE:g} standard errors of the threshold, so other draws may turn it.",
    "*: not as published.",
    (
        "bounds: the values at the ends and at equality; property: the shape of the curve; D2, D3, D5: the value must not "
        "depend on the number of fakes, on the number of samples, on the unit of an axis."
    ),
)


_SEEDS = "3/5: passes with so many of the seeds; without a fraction, the outcome is the same with all of them. The letter, the margin and the curves are of the first seed."


def legend(matrix: Matrix) -> tuple[str, ...]:
    """What the marks in the cells mean, line by line."""
    return (*_LEGEND, _SEEDS) if len(matrix.seeds) > 1 else _LEGEND


def of_kind(matrix: Matrix, kind: Kind) -> tuple[str, ...]:
    """The metrics that claim to measure `kind`."""
    return tuple(name for name, known in matrix.kinds.items() if known == kind)


def agreement(matrix: Matrix) -> list[tuple[str, str, int, int]]:
    """Metric, published column, cells as published and cells published, of what was published."""
    rows = []
    for metric in matrix.metrics:
        cells = [cell for cell in matrix.of(metric) if cell.published is not None]
        if cells:
            rows.append((metric, COLUMN_OF[metric], sum(not cell.differs for cell in cells), len(cells)))
    return rows


def run_text(run: Run, seeds: Sequence[int]) -> str:
    """What was drawn, in words, with consecutive seeds."""
    shown = f"seed {run.seed}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{run.grid} grids, {run.repeats} draws per point, {shown}"


def markdown(matrix: Matrix, run: Run) -> str:
    """The matrix, what differs from the published one and why, and all margins."""
    parts = [
        "# Audit of fidelity and diversity metrics",
        f"The sanity checks of {SOURCE}: {run_text(run, matrix.seeds)}.\n",
        *(f"- {line}" for line in legend(matrix)),
    ]
    for kind in KINDS:
        if metrics := of_kind(matrix, kind):
            parts += [f"\n## {kind.capitalize()}\n", _marks_table(matrix, metrics)]
    if rows := agreement(matrix):
        head = ("metric", "published as", "cells as published")
        body = [(metric, column, f"{same} of {count}") for metric, column, same, count in rows]
        parts += ["\n## Against the published matrix\n", _table(head, body)]
        parts += ["", *(f"- {difference(cell)}" for cell in matrix.differing)]
    if len(matrix.seeds) > 1:
        parts += ["\n## Cells whose outcome changes with the seed\n", f"{changing_count(matrix)}\n"]
        parts += [f"- {changing(cell, matrix.seeds)}" for cell in matrix.changing]
    parts += [
        "\n## Margins\n",
        (
            "By how much each cell passes (or fails, if negative) at the point that decides, and the standard error of the "
            "values it rests on."
        ),
    ]
    for kind in KINDS:
        if metrics := of_kind(matrix, kind):
            parts += ["", _margins_table(matrix, metrics)]
    return "\n".join(parts) + "\n"


def difference(cell: Cell) -> str:
    """What differs from the published matrix, and what decides it here."""
    noise = f"{cell.errors:.1f} standard errors from the threshold" if cell.errors < 1e3 else "no noise"
    return f"{cell.metric}, {cell.demand.name}: {cell.mark} here, {cell.published} published; {cell.reason}; {noise}"


def changing_count(matrix: Matrix) -> str:
    """How many cells change with the seed, and how many of these are marked as near their threshold, in words."""
    cells, known = matrix.changing, sum(len(matrix.of(metric)) for metric in matrix.metrics)
    near = sum(cell.is_open for cell in cells)
    return (
        f"{len(cells)} of {known} cells pass with some of {len(matrix.seeds)} seeds and fail with others; with the first "
        f"seed, {near} of them lie within {NOISE:g} standard errors of their threshold."
    )


def changing(cell: Cell, seeds: Sequence[int]) -> str:
    """With which seeds a cell passes, and what decides it with the first one."""
    passing = ", ".join(str(seed) for seed, mark in zip(seeds, cell.marks, strict=True) if mark != "F")
    count = f"passes with {cell.passing_seeds} of {len(cell.marks)} seeds ({passing})"
    return f"{cell.metric}, {cell.demand.name}: {count}; with seed {seeds[0]}: {cell.reason}"


def _marks_table(matrix: Matrix, metrics: Sequence[str]) -> str:
    rows = [
        (demand.name, *(cell_text(matrix.cells.get((demand.name, metric))) for metric in metrics))
        for demand in matrix.demands
    ]
    totals = (f"**{matrix.passes(metric)} of {len(matrix.of(metric))}**" for metric in metrics)
    return _table(("check", *metrics), [*rows, ("**passed**", *totals)])


def _margins_table(matrix: Matrix, metrics: Sequence[str]) -> str:
    def text(cell: Cell | None) -> str:
        if cell is None or not math.isfinite(cell.margin.value):
            return "-"
        return f"{cell.margin.value:+.3f} ± {cell.margin.se:.3f}"

    rows = [
        (demand.name, *(text(matrix.cells.get((demand.name, metric))) for metric in metrics))
        for demand in matrix.demands
    ]
    return _table(("check", *metrics), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_escape_cell(text) for text in line) + " |" for line in lines)


def _escape_cell(text: str) -> str:
    """A star is emphasis in Markdown, and a bar ends the cell; bold text is bold on purpose."""
    if text.startswith("**"):
        return text
    return text.replace("|", "\\|").replace("*", "\\*").replace("~", "\\~")
