"""`genpr compare A.json B.json`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import emit, show_notices

if TYPE_CHECKING:
    from genpr.comparison import Comparison


@click.command(name="compare")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare even results that were not made alike.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(files: tuple[Path, ...], *, force: bool, as_json: bool) -> None:
    """Show the results in FILES (from `genpr score --json`) side by side, and how sure their differences are.

    Results that differ in extractor, weights, resize rule, k, ties, arithmetic, real set or numbers of images are
    refused, and what differs is named.
    """
    from genpr.comparison import compare, load_results, short_labels
    from genpr.notices import notice
    from genpr.report.terminal import side_by_side_table

    labels = short_labels(files)
    found = [
        item
        for path, label in zip(files, labels, strict=True)
        for item in load_results(path, label=label).items()
    ]
    names = [name for name, _ in found]
    unique = [name if names.count(name) == 1 else f"{name} [{i + 1}]" for i, name in enumerate(names)]
    results = {label: result for label, (_, result) in zip(unique, found, strict=True)}
    comparison = compare(results, force=force)
    if comparison.is_undecided:
        show_notices([notice("not-distinguishable", names=" and ".join(list(results)[1:]))])
    if as_json:
        values = {
            name: {metric: result[metric] for metric in comparison.metrics}
            for name, result in comparison.results.items()
        }
        record = {
            "values": values,
            "differences": list(comparison.differences),
            "contrasts": _contrasts(comparison),
        }
        emit(json.dumps(record, allow_nan=False))
    else:
        emit(side_by_side_table(comparison))


def _contrasts(comparison: Comparison) -> dict[str, dict[str, dict[str, Any]]]:
    """Against the first result, by result and metric, where an interval is known."""
    return {
        name: {
            metric: asdict(contrast)
            for metric in comparison.metrics
            if (contrast := comparison.contrast(name, metric)) is not None
        }
        for name in list(comparison.results)[1:]
    }
