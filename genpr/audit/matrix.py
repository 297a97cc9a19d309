"""The pass/fail matrix with the margin that decided each cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from genpr.audit.checks import CHECKS
from genpr.audit.criteria import (
    DEMANDS,
    Demand,
    Kind,
    Margin,
    Mark,
    all_of,
    published_mark,
)
from genpr.audit.runner import Results

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
    def text(self) -> str:
        """The mark; how many seeds pass if that changes, else "~" if it is open; "*" if it is not as published."""
        noise = f" {self.passing_seeds}/{len(self.marks)}" if self.changes else "~" if self.is_open else ""
        return self.mark + noise + "*" * self.differs

    @property
    def reason(self) -> str:
        """Where and why it passes or fails, in words."""
        where = f" ({self.margin.setting})" if self.margin.setting else ""
        if not math.isfinite(self.margin.value):
            return f"{self.margin.what}{where}"
        se = "" if math.isnan(self.margin.se) else f" ± {self.margin.se:.3f}"
        return f"{self.margin.what}{where}; margin {self.margin.value:+.3f}{se}"


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

    def of_kind(self, kind: Kind) -> tuple[str, ...]:
        """The metrics that claim to measure `kind`."""
        return tuple(name for name, known in self.kinds.items() if known == kind)

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
