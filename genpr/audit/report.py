"""The audit for people: the matrix with its margins as Markdown, and with its curves as one page of HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence

from genpr.audit.demands import Kind
from genpr.audit.matrix import NOISE, Cell, Matrix, cell_text
from genpr.audit.published import COLUMN_OF, SOURCE
from genpr.audit.results import Run

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
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """A star is emphasis in Markdown, and a bar ends the cell; bold text is bold on purpose."""
    if text.startswith("**"):
        return text
    return text.replace("|", "\\|").replace("*", "\\*").replace("~", "\\~")
