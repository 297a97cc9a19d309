"""`genpr compare A.json B.json`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from genpr.cli.options import GroupedCommand, force, option_group
from genpr.cli.output import PageOutput


@click.command(cls=GroupedCommand, name="compare")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@force
@option_group(PageOutput, "output")
def command(files: tuple[Path, ...], *, force: bool, output: PageOutput) -> None:
    """Compare the results in FILES side by side, with intervals of their differences.

    FILES are written by `genpr score --json` or `genpr rank --json`, or are folders of `genpr sweep --out`. Results that
    differ in extractor, weights, resize rule, k, ties, arithmetic, real set or number of images are refused.

    \b
    genpr compare old.json new.json
    genpr compare step-*.json --html page.html
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.evaluation.compare import compare, load_all
    from genpr.report.compare_tables import side_by_side_table

    results = load_all(files)
    comparison = compare(results, force=force)
    output.write_comparison(results)
    metrics, contrasts = comparison.metrics, {}
    values = {name: {metric: result[metric] for metric in metrics} for name, result in results.items()}
    for name in list(results)[1:]:  # contrasts to the first result, where an interval is known
        found = {metric: comparison.contrast(name, metric) for metric in metrics}
        contrasts[name] = {metric: asdict(each) for metric, each in found.items() if each is not None}
    record = {"values": values, "differences": list(comparison.differences), "contrasts": contrasts}
    output.show_record(record, side_by_side_table(comparison))
