"""The option of `genpr score` that writes what is known of each image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import complain
from genpr.cli.options import Command, with_options

if TYPE_CHECKING:
    from genpr.result import Result


def table_options(command: Command) -> Command:
    """Where to write the table."""
    return with_options(command, _OPTIONS)


def check_table_options(table: Path | None, protocols: Sequence[str], *, per_class: bool) -> None:
    """Refuse a table that cannot be written before minutes of work.

    Raises:
        click.UsageError: There are several protocols, or classes are asked for, too.
        UsageError, ResourceError: As `genpr.report.sample_table.check_table`.
    """
    if table is None:
        return
    if len(set(protocols)) > 1:
        raise click.UsageError("--csv: a table is of one protocol; name one, or write one table for each")
    if per_class:
        raise click.UsageError("--csv and --per-class: take two runs; what is embedded stays in the cache")
    from genpr.report.sample_table import check_table

    check_table(table)


def scored_with_table(
    real: str,
    fake: str,
    table: Path,
    *,
    protocol: str,
    **options: Any,  # noqa: ANN401 - passed to genpr.Evaluator, which checks them
) -> Result:
    """Score, and write what is known of each image to `table`."""
    from genpr.evaluator import Evaluator
    from genpr.memory import limited_memory
    from genpr.report.sample_table import write_samples
    from genpr.sides import check_same_kind, open_side

    with limited_memory(options["max_memory"]):
        # Both are found and compared in kind before the first image is embedded.
        sides = open_side(real, "real"), open_side(fake, "fake")
        check_same_kind(*sides)
        evidence = Evaluator(sides[0], protocol=protocol, **options).evidence(sides[1])
    rows = write_samples(table, evidence)
    if options["progress"] is not None:
        complain(f"wrote {rows:,} rows to {table}")
    return evidence.result


_OPTIONS = (
    click.option(
        "--csv",
        "table",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write what is known of each image to FILE (.csv): inside or not, realism, nearest real, and more.",
    ),
)
