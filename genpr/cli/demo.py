"""`genpr demo`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from genpr.cli.console import progress_bars


@click.command(name="demo")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write the images there, to look at and score.",
)
@click.option("--n", default=600, show_default=True, type=click.IntRange(min=50), help="Images per set.")
@click.option("--seed", default=0, show_default=True, help="Chooses the images.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bars.")
def command(*, save: Path | None, n: int, seed: int, device: str, as_json: bool, quiet: bool) -> None:
    """Draw a set of "real" pictures and four imperfect imitations, and score them.

    Nothing is downloaded. The four imitations fail in different ways, and the table shows which of the four
    numbers notices which failure.
    """
    from genpr.demo import run_demo
