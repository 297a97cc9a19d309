"""An audit as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genpr.audit.criteria import COLUMN_OF, SOURCE, Kind
from genpr.audit.runner import NOISE, Matrix, Run
from genpr.report.score_tables import blocks_of
from genpr.report.text import WIDTH, cut, head_width, table, wrapped

TITLE = "# Audit of fidelity and diversity metrics"
_KINDS: tuple[Kind, ...] = ("fidelity", "diversity")
_MAX_WIDTH = 40  # columns of a metric's name; a user's function may have a name of any length
_LEGEND = (
    "T: passes. F: fails. H, L: passes if fakes are wider than reals, with high or with low diversity.",
    f"~: the margin is within {NOISE:g} standard errors of the threshold, so other draws may change it.",
    "*: not as published.",
    "bounds: the values at the ends and at equality; property: the shape of the curve.",
    "D2, D3, D5: the value must not depend on the number of fakes, on the number of samples, on the unit of an axis.",
)


def audit_text(matrix: Matrix, run: Run) -> str:
    """The matrix with its legend, in 80 columns."""
    lines = [wrapped(line, others="   ") for line in _LEGEND]
    return "\n".join([audit_table(matrix), "", *lines, _drawn(run)])


def _drawn(run: Run) -> str:
    return f"{run.grid} grids, {run.repeats} draws per point, seed {run.seed}"


def audit_table(matrix: Matrix) -> str:
    """The matrix: rows down, metrics across, in as many tables as fit 80 columns."""
    label = max(len(demand.name) for demand in matrix.demands)
    widths = [
        2
        + max(
            head_width(cut(metric, _MAX_WIDTH)), len("30/30"), *(len(cell.text) for cell in matrix.of(metric))
        )
        for metric in matrix.metrics
    ]
    return "\n\n".join(
        table(["", *(cut(metric, _MAX_WIDTH) for metric in metrics)], _rows(matrix, metrics))
        for metrics in blocks_of(matrix.metrics, widths, WIDTH - label)
    )


def _rows(matrix: Matrix, metrics: Sequence[str], total: str = "{}/{}") -> list[list[str]]:
    """The marks of each check, and the number of passed checks of each metric."""
    rows = []
    for demand in matrix.demands:
        cells = (matrix.cells.get((demand.name, metric)) for metric in metrics)
        rows.append([demand.name, *("-" if cell is None else cell.text for cell in cells)])
    return [*rows, ["passed", *(total.format(matrix.passes(each), len(matrix.of(each))) for each in metrics)]]


def agreement(matrix: Matrix) -> list[tuple[str, str, str]]:
    """Metric, published column, and the number of cells that agree with it."""
    rows = []
    for metric in matrix.metrics:
        cells = [cell for cell in matrix.of(metric) if cell.published is not None]
        if cells:
            same = sum(not cell.differs for cell in cells)
            rows.append((metric, COLUMN_OF[metric], f"{same} of {len(cells)}"))
    return rows


def differences(matrix: Matrix) -> list[str]:
    """Differences from the published matrix, with the reason of the mark here."""
    texts = []
    for cell in matrix.ordered:
        if not cell.differs:
            continue
        noise = f"{cell.errors:.1f} standard errors from the threshold" if cell.errors < 1e3 else "no noise"
        marks = f"{cell.mark} here, {cell.published} published"
        texts.append(f"{cell.metric}, {cell.demand.name}: {marks}; {cell.reason}; {noise}")
    return texts


def markdown(matrix: Matrix, run: Run) -> str:
    """The matrix and its differences from the published one."""
    parts = [
        TITLE,
        f"The sanity checks of {SOURCE}: {_drawn(run)}.\n",
        *(f"- {line}" for line in _LEGEND),
    ]
    for kind in _KINDS:
        if metrics := [name for name in matrix.metrics if matrix.kinds[name] == kind]:
            rows = _rows(matrix, metrics, "{} of {}")
            parts += [f"\n## {kind.capitalize()}\n", *_markdown_table(["check", *metrics], rows)]
    if rows_published := agreement(matrix):
        parts.append("\n## Against the published matrix\n")
        parts += _markdown_table(["metric", "published as", "cells as published"], rows_published)
        parts += ["", *(f"- {text}" for text in differences(matrix))]
    return "\n".join(parts) + "\n"


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table, with the special characters of Markdown escaped."""
    for cells in (heads, ["---"] * len(heads), *rows):
        escaped = (text.replace("|", "\\|").replace("*", "\\*").replace("~", "\\~") for text in cells)
        yield f"| {' | '.join(escaped)} |"
