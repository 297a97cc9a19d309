"""`genpr compare A.json B.json`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from genpr.cli.console import emit


@click.command(name="compare")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare even results that were not made alike.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(files: tuple[Path, ...], *, force: bool, as_json: bool) -> None:
    """Show the results in FILES (from `genpr score --json`) side by side.

    Results that differ in extractor, weights, resize rule, k, ties, arithmetic, real set or numbers of images are
    refused, and what differs is named.
    """
    from genpr.comparison import compare, load_results, short_labels
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
    if as_json:
        values = {
            name: {metric: result[metric] for metric in comparison.metrics}
            for name, result in comparison.results.items()
        }
        emit(json.dumps({"values": values, "differences": list(comparison.differences)}, allow_nan=False))
    else:
        emit(side_by_side_table(comparison))
