"""`genpr modes REAL FAKE`."""

from __future__ import annotations

from dataclasses import replace

import click

from genpr.cli.console import progress_bars
from genpr.cli.options import check_sources, follow_symlinks, option_group
from genpr.cli.output import TextOutput
from genpr.evaluation.options import ModesOptions


@click.command(name="modes")
@click.argument("real")
@click.argument("fake")
@option_group(ModesOptions)
@follow_symlinks
@click.option(
    "--all", "every", is_flag=True, help="Show every cluster, not only what chance does not explain."
)
@option_group(TextOutput, "output")
def command(real: str, fake: str, *, options: ModesOptions, every: bool, output: TextOutput) -> None:
    """Which kinds of images in REAL the generator misses, and which kinds in FAKE it invents.

    REAL and FAKE are what `genpr score` takes. Both are clustered together; a cluster is missed if more of its reals
    are covered by no fake than chance explains, and invented if more of its fakes lie off the reals' manifold. Where
    classes are known, the commonest in each kind are named.
    """
    check_sources(real, fake)
    from genpr.evaluation.modes import find_modes_with
    from genpr.report.detail_tables import modes_table

    with progress_bars(quiet=output.quiet) as progress:
        found = find_modes_with(real, fake, replace(options, progress=progress))
    output.show(found.notices, found.to_json() if output.as_json else modes_table(found, every=every))
