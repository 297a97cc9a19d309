"""`genpr score REAL FAKE`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import emit, inner_workings, progress_bars, show_notices
from genpr.cli.label_options import ClassFlags
from genpr.cli.options import option_group, source_flags
from genpr.cli.page_options import PageFlags, write_score_page
from genpr.cli.score_run import ScoreRun, score_run
from genpr.cli.table_options import check_table_options, table_options, write_table
from genpr.cli.thresholds import Thresholds
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan, check_weights

if TYPE_CHECKING:
    from genpr.evaluation.result import Result


@click.command(name="score")
@click.argument("real")
@click.argument("fake")
@click.option(
    "--protocol",
    "protocols",
    metavar="NAME",
    multiple=True,
    default=["genpr"],
    show_default=True,
    help="Named recipe (see `genpr list protocols`); may be repeated.",
)
@option_group(ScoreOptions, without={"protocol"})
@source_flags
@option_group(ClassFlags, "labels")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@option_group(PageFlags, "page")
@click.option(
    "-v", "--verbose", is_flag=True, help="Say how the neighbors are searched, and how uneven they are."
)
@option_group(Thresholds, "thresholds")
def command(
    real: str,
    fake: str,
    *,
    protocols: tuple[str, ...],
    options: ScoreOptions,
    labels: ClassFlags,
    table: Path | None,
    as_json: bool,
    page: PageFlags,
    thresholds: Thresholds,
    quiet: bool,
    verbose: bool,
) -> int:
    """Score the images in FAKE against those in REAL.

    REAL and FAKE are folders of images (searched to any depth), .zip or .tar archives of images, .npz files
    with uint8 images in arr_0, .parquet files or folders of them, lists of files (.txt, or - for standard
    input), or feature files (.npy, or .safetensors as `genpr features` writes them). A pattern in quotes, such
    as 'shards/*.tar' or 'real_{1..8}.safetensors', is one source.
    """
    options, classes = replace(options, labels=labels.chosen()), labels.classes(protocols)
    # What can be wrong at once is said at once: importing torch alone takes seconds.
    plans = [ScorePlan.of(protocol, None, options) for protocol in protocols]
    computed = dict.fromkeys(name for plan in plans for name in plan.spaces)
    thresholds.check([*computed, *(() if options.labels is None else options.labels.names)])
    check_table_options(table, protocols)
    others = page.check(protocols)
    from genpr.images.paths import check_there

    for source in (real, fake):
        check_there(source)
    check_weights([space for plan in plans for space in plan.spaces.values()], (real, fake), options)

    from genpr.distributed import rank_zero_only

    # What a custom extractor prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, inner_workings(shown=verbose), progress_bars(quiet=quiet) as progress:
        options = replace(options, progress=progress)
        by_image, must_tell = bool(page.html or table), table is not None
        run = score_run(real, fake, protocols, options, classes, by_image=by_image, must_tell=must_tell)
    if not rank_zero_only():
        return 0
    found = run.results
    if not quiet:
        show_notices(tuple(dict.fromkeys(item for result in found for item in result.notices)))
    if not as_json:
        emit(_text(run, details=verbose))
    elif len(found) == 1:
        emit((run.classes or found[0]).to_json())
    else:
        emit(json.dumps({"results": [result.to_dict() for result in found]}, allow_nan=False))
    write_table(table, run.evidence, quiet=quiet)
    write_score_page(page.html, run, (real, fake), others, policy=options.decoding, quiet=quiet)
    return thresholds.exit_code(found)


def _text(run: ScoreRun, *, details: bool) -> str:
    """Every table of every protocol."""
    from genpr.report.detail_tables import class_table

    tables = [table for result in run.results for table in _tables(result, details=details)]
    return "\n\n".join([*tables, *([] if run.classes is None else [class_table(run.classes)])])


def _tables(result: Result, *, details: bool) -> list[str]:
    """The score, and the classes where labels were compared."""
    from genpr.report.detail_tables import label_table
    from genpr.report.score_tables import score_table

    by_label = [] if result.labels is None else [label_table(result.labels)]
    return [score_table(result, details=details), *by_label]
