"""`genpr align IMAGES --prompts FILE`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.options import option_group, source_flags
from genpr.cli.thresholds import Thresholds
from genpr.conditional.options import AlignOptions
from genpr.errors import DataError, UsageError
from genpr.evaluation.plan import check_weights

if TYPE_CHECKING:
    from genpr.conditional.align import Aligned
    from genpr.images.policy import DecodePolicy


@click.command(name="align")
@click.argument("images")
@click.option(
    "--prompts",
    required=True,
    metavar="FILE",
    help="What each image was asked for: .csv, .tsv, .jsonl, .json, .txt, a folder of .txt files, or the word beside.",
)
@option_group(AlignOptions)
@source_flags
@click.option(
    "--csv",
    "table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write rank, score and the prompt ranked first of each image to FILE (.csv).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write one page for a browser, with the images that fit another prompt better.",
)
@option_group(Thresholds, "thresholds")
def command(
    images: str,
    prompts: str,
    *,
    options: AlignOptions,
    table: Path | None,
    as_json: bool,
    html: Path | None,
    thresholds: Thresholds,
    quiet: bool,
) -> int:
    """Judge IMAGES by the prompts that they were made from.

    A CLIP model (--extractor clip-vit-b-32 by default) embeds images and prompts. Each image ranks its own prompt among
    those of other images, and each prompt its image; R-precision is the share that rank their own first.

    IMAGES is a folder, an archive, an .npz file, or features of that extractor.
    """
    from genpr.conditional.prompts import open_prompts

    thresholds.check(options.names)
    _check_outputs(html, table)
    open_prompts(prompts, images)  # what is wrong with them is told before anything is downloaded
    check_weights([options.extractor], [images], options, of_features=True)

    from genpr.conditional.align import align_with
    from genpr.report.detail_tables import failures_list
    from genpr.report.score_tables import score_table

    # What a custom encoder prints must not end up in the result.
    with redirect_stdout(sys.stderr), progress_bars(quiet=quiet) as progress:
        found = align_with(images, prompts, replace(options, progress=progress))
    result = found.result
    if not quiet:
        show_notices(result.notices)
    if as_json:
        emit(result.to_json())
    else:
        assert result.alignment is not None
        tables = [score_table(result), failures_list(result.alignment)]
        emit("\n\n".join(each for each in tables if each))
    copies_of = None if options.copies_of is None else str(options.copies_of)
    _write(found, (images, copies_of), html, table, policy=options.decoding, quiet=quiet)
    return thresholds.exit_code([result])


def _check_outputs(html: Path | None, table: Path | None) -> None:
    """Refuse what cannot be written before minutes of work."""
    from genpr.storage import check_place

    if html is not None:
        check_place(html)
    if table is not None:
        from genpr.report.files import check_table

        check_table(table)


def _write(
    found: Aligned,
    sources: tuple[str, str | None],
    html: Path | None,
    table: Path | None,
    *,
    policy: DecodePolicy,
    quiet: bool,
) -> None:
    """The page and the table, and say so."""
    if table is not None:
        from genpr.report.files import write_ranks

        rows = write_ranks(table, found.ranks, found.copies)
        if not quiet:
            complain(f"wrote {rows:,} rows to {table}")
    if html is None:
        return
    from genpr.report.files import write_page
    from genpr.report.score_page import align_report

    try:
        page = align_report(found, *sources, policy=policy)
    except (DataError, UsageError) as error:
        # Moved or damaged since they were scored: that score must not go without a page.
        complain(f"warning: the page has no pictures: {error}")
        page = align_report(found)
    write_page(html, page)
    if not quiet:
        complain(f"wrote {html}")
