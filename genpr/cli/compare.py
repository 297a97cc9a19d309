"""`genpr compare A.json B.json`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from genpr.cli.options import option_group, refuse_given
from genpr.cli.output import PageOutput


@click.command(name="compare")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare even results that were not made alike.")
@option_group(PageOutput, "output", without={"quiet"})
@click.option(
    "--samples",
    metavar="IMAGES",
    multiple=True,
    help="Images of a result, to show beside those of the others on that page: once per result, in their order.",
)
def command(files: tuple[Path, ...], *, force: bool, output: PageOutput, samples: tuple[str, ...]) -> None:
    """Show the results in FILES (from `genpr score --json`) side by side, and how sure their differences are.

    Results that differ in extractor, weights, resize rule, k, ties, arithmetic, real set or numbers of images are
    refused, and what differs is named. A file may also be of `genpr rank --json`, or the folder of a sweep.

    \b
    genpr compare old.json new.json
    genpr compare step-*.json --html page.html
    genpr compare a.json b.json --html page.html --samples a/ --samples b/
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    if output.html is None:
        refuse_given({"samples"}, "puts images on the page of --html FILE, which is missing")
    output.check_place()
    from genpr.evaluation.compare import compare, load_all
    from genpr.report.score_tables import side_by_side_table

    results = load_all(files)
    comparison = compare(results, force=force)
    if samples and len(samples) != len(results):
        text = f"--samples is given once per result, in their order: {len(results)} times, not {len(samples)}"
        raise click.UsageError(text)
    output.write_comparison(results, dict(zip(results, samples, strict=False)))
    if not output.as_json:
        output.show([], side_by_side_table(comparison))
        return
    metrics, contrasts = comparison.metrics, {}
    values = {name: {metric: result[metric] for metric in metrics} for name, result in results.items()}
    for name in list(results)[1:]:  # contrasts to the first result, where an interval is known
        found = {metric: comparison.contrast(name, metric) for metric in metrics}
        contrasts[name] = {metric: asdict(each) for metric, each in found.items() if each is not None}
    record = {"values": values, "differences": list(comparison.differences), "contrasts": contrasts}
    output.show([], json.dumps(record, allow_nan=False))
