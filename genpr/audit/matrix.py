"""The pass/fail matrix: every cell with the margin that decided it, beside what was published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genpr.audit.checks import CHECKS
from genpr.audit.criteria import Margin, all_of
from genpr.audit.demands import DEMANDS, Demand, Kind, Mark
from genpr.audit.published import published_mark
from genpr.audit.results import Results

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
    """

    demand: Demand
    metric: str
    mark: Mark
    margin: Margin
    published: Mark | None

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
    """

    kinds: Mapping[str, Kind]
    demands: tuple[Demand, ...]
    cells: Mapping[tuple[str, str], Cell]

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


def judge(results: Results, kinds: Mapping[str, Kind]) -> Matrix:
    """Hold every metric in `kinds` against every demand; rows that no metric was measured for are left out."""
    cells: dict[tuple[str, str], Cell] = {}
    for row, demand in enumerate(DEMANDS):
        for metric, kind in kinds.items():
            cell = _cell(results, demand, row, metric, kind)
            if cell is not None:
                cells[demand.name, metric] = cell
    names = {name for name, _ in cells}
    return Matrix(dict(kinds), tuple(demand for demand in DEMANDS if demand.name in names), cells)


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
        return Cell(demand, metric, best, margins[best], published)
    nearest = published if published in margins else best
    return Cell(demand, metric, "F", margins[nearest], published)


def text_blocks(matrix: Matrix, *, width: int = 80) -> str:
    """The matrix for a terminal: rows down, metrics across, in as many blocks as fit `width` columns.

    A star marks what is not as published, a tilde what lies within the noise of the draws.
    """
    label = max(len(demand.name) for demand in matrix.demands)
    blocks: list[list[str]] = [[]]
    used = label
    for metric in matrix.metrics:
        needed = 2 + _column_width(metric)
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
    lines = [_line("", [_fitting(metric) for metric in metrics], metrics, label)]
    for demand in matrix.demands:
        cells = [matrix.cells.get((demand.name, metric)) for metric in metrics]
        lines.append(_line(demand.name, [cell_text(cell) for cell in cells], metrics, label))
    totals = [f"{matrix.passes(metric)}/{len(matrix.of(metric))}" for metric in metrics]
    lines.append(_line("passed", totals, metrics, label))
    return "\n".join(lines)


def cell_text(cell: Cell | None) -> str:
    """The mark, with a tilde where it is open and a star where it is not as published."""
    if cell is None:
        return "-"
    return cell.mark + ("~" if cell.is_open else "") + ("*" if cell.differs else "")


def _line(label: str, texts: Sequence[str], metrics: Sequence[str], width: int) -> str:
    parts = (f"  {text:^{_column_width(metric)}}" for text, metric in zip(texts, metrics, strict=True))
    return (f"{label:<{width}}" + "".join(parts)).rstrip()


def _column_width(metric: str) -> int:
    return max(len(_fitting(metric)), len("30/30"))
