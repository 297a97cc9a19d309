"""`genpr modes REAL FAKE`."""

from __future__ import annotations

from dataclasses import replace

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand, grouped_option
from genpr.cli.options import check_sources, follow_symlinks, option_group
from genpr.cli.output import TextOutput
from genpr.evaluation.options import ModesOptions


@click.command(cls=GroupedCommand, name="modes")
@click.argument("real", type=SOURCE)
@click.argument("fake", type=SOURCE)
@option_group(ModesOptions)
@follow_symlinks
@grouped_option(
    "--all", "every", is_flag=True, help="Show all clusters, not only the significant ones.", group="output"
)
@option_group(TextOutput, "output")
def command(real: str, fake: str, *, options: ModesOptions, every: bool, output: TextOutput) -> None:
    """Find modes of REAL that the generator misses, and modes of FAKE that it invents.

    REAL and FAKE are sources as for `genpr score`. Both are clustered together. A cluster is missed if significantly many
    of its reals are not covered by a fake, and invented if significantly many of its fakes lie outside the manifold of
    the reals. If classes are known, the most common classes of each cluster are named.
    """
    check_sources(real, fake)
    from genpr.evaluation.modes import find_modes_with
    from genpr.report.score_tables import modes_table

    with progress_bars(quiet=output.quiet) as progress:
        found = find_modes_with(real, fake, replace(options, progress=progress))
    output.show(found.notices, found.to_json() if output.as_json else modes_table(found, every=every))
