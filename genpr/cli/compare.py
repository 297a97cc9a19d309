"""`genpr compare A.json B.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import complain, emit, show_notices
from genpr.cli.page_options import html_option
from genpr.errors import some

if TYPE_CHECKING:
    from genpr.evaluation.compare import Comparison


@click.command(name="compare")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Compare even results that were not made alike.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@html_option
@click.option(
    "--samples",
    metavar="IMAGES",
    multiple=True,
    help="Images of a result, to show beside those of the others on that page: once per result, in their order.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many of --samples to show of each.  [default: 12]",
)
def command(
    files: tuple[Path, ...],
    *,
    force: bool,
    as_json: bool,
    html: Path | None,
    samples: tuple[str, ...],
    rows: int | None,
) -> None:
    """Show the results in FILES (from `genpr score --json`) side by side, and how sure their differences are.

    Results that differ in extractor, weights, resize rule, k, ties, arithmetic, real set or numbers of images are
    refused, and what differs is named. A file may also be of `genpr rank --json`, or the folder of a sweep.

    \b
    genpr compare old.json new.json
    genpr compare step-*.json --html page.html
    genpr compare a.json b.json --html page.html --samples a/ --samples b/
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    _check_page(html, samples, rows)
    from genpr.evaluation.compare import compare, load_all
    from genpr.notices import notice
    from genpr.report.score_tables import side_by_side_table

    results = load_all(files)
    comparison = compare(results, force=force)
    page = None if html is None else _page(comparison, samples, rows)
    if comparison.is_undecided:
        show_notices([notice("not-distinguishable", names=some(list(results)[1:]))])
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
    if html is not None and page is not None:
        from genpr.report.files import write_page

        write_page(html, page)
        complain(f"wrote {html}")


def _check_page(html: Path | None, samples: Sequence[str], rows: int | None) -> None:
    """What can be wrong at once is said at once."""
    if html is None and samples:
        raise click.UsageError("--samples puts images on the page of --html FILE, which is missing")
    if rows is not None and not samples:
        raise click.UsageError("--rows says how many of --samples to show, which are missing")
    if html is not None:
        from genpr.storage import check_place

        check_place(html)


def _page(comparison: Comparison, samples: Sequence[str], rows: int | None) -> str:
    from genpr.report.compare_page import compare_report
    from genpr.report.side_by_side import MOST_ROWS, side_by_side

    results = comparison.results
    if samples and len(samples) != len(results):
        raise click.UsageError(
            f"--samples is given once per result, in their order: {len(results)} times, not {len(samples)}"
        )
    galleries = []
    if samples:
        sources = dict(zip(results, samples, strict=True))
        galleries = [side_by_side(sources, rows=rows or MOST_ROWS, scored=results)]
    return compare_report(comparison, galleries)


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
