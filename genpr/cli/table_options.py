"""The option of `genpr score` that writes what is known of each image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import complain
from genpr.cli.options import Command, with_options

if TYPE_CHECKING:
    from genpr.evaluation.per_image import PerImageScores


def table_options(command: Command) -> Command:
    """Where to write the table."""
    return with_options(command, _OPTIONS)


def check_table_options(table: Path | None, protocols: Sequence[str]) -> None:
    """Refuse a table that cannot be written before minutes of work.

    Raises:
        click.UsageError: There are several protocols.
        UsageError, ResourceError: As `genpr.report.files.check_table`.
    """
    if table is None:
        return
    if len(set(protocols)) > 1:
        raise click.UsageError("--csv: a table is of one protocol; name one, or write one table for each")
    from genpr.report.files import check_table

    check_table(table)


def write_table(table: Path | None, evidence: PerImageScores | None, *, quiet: bool) -> None:
    """Write what is known of each image, and say so.

    Raises:
        ResourceError: It cannot be written.
    """
    if table is None or evidence is None:
        return
    from genpr.report.files import write_samples

    rows = write_samples(table, evidence)
    if not quiet:
        complain(f"wrote {rows:,} rows to {table}")


_OPTIONS = (
    click.option(
        "--csv",
        "table",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write what is known of each image to FILE (.csv): inside or not, realism, nearest real, and more.",
    ),
)
