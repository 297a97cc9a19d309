"""`genpr modes REAL FAKE`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace

import click

from genpr.cli.console import emit, progress_bars, show_notices
from genpr.cli.options import option_group, source_flags
from genpr.evaluation.options import ModesOptions


@click.command(name="modes")
@click.argument("real")
@click.argument("fake")
@option_group(ModesOptions)
@source_flags
@click.option(
    "--all", "every", is_flag=True, help="Show every cluster, not only what chance does not explain."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
def command(
    real: str,
    fake: str,
    *,
    options: ModesOptions,
    every: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Which kinds of images in REAL the generator misses, and which kinds in FAKE it invents.

    REAL and FAKE are what `genpr score` takes. Both are clustered together; a cluster is missed if more of its reals
    are covered by no fake than chance explains, and invented if more of its fakes lie off the reals' manifold. Where
    the classes of REAL are known, they are ranked, too.
    """
    from genpr.images.paths import check_there

    for source in (real, fake):
        check_there(source)
    from genpr.evaluation.modes import find_modes_with
    from genpr.report.detail_tables import modes_table

    # What a custom extractor prints must not end up in the result.
    with redirect_stdout(sys.stderr), progress_bars(quiet=quiet) as progress:
        found = find_modes_with(real, fake, replace(options, progress=progress))
    if not quiet:
        show_notices(found.notices)
    emit(found.to_json() if as_json else modes_table(found, every=every))
