"""`genpr doctor`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr import __version__
from genpr.cli.console import emit, printable
from genpr.errors import ResourceError

if TYPE_CHECKING:
    from genpr.doctor.examine import Examination


@click.command(name="doctor")
@click.option("--full", is_flag=True, help="Hash all weights and all cached features, too: minutes.")
@click.option(
    "--cache-dir", type=click.Path(path_type=Path), help="The cache to look at.  [default: GENPR_CACHE]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the lines.")
def command(*, full: bool, cache_dir: Path | None, as_json: bool) -> int:
    """Look at all that a score needs on this machine, and say what is broken and how to mend it.

    Libraries and whether they belong together, GPUs, memory, the cache, weights, and ten seconds of work with known
    answers. Exit code 0 if scores can be trusted, 4 if something is broken. Nothing is changed or downloaded. Put the
    output into bug reports.
    """
    from genpr.doctor.examine import examine
    from genpr.runtime import cache_root

    with redirect_stdout(sys.stderr):  # what libraries print is no finding
        found = examine(__version__, root=cache_dir or cache_root(), full=full)
    emit(json.dumps(found.to_record()) if as_json else _text(found))
    return 0 if found.is_healthy else ResourceError.exit_code


def _text(found: Examination) -> str:
    """Laid out, or line by line where what lays it out is broken itself."""
    try:
        from genpr.report.text.doctor_table import doctor_table

        return doctor_table(found)
    except Exception:  # noqa: BLE001 - a broken rich, say
        lines = [f"{each.state}  {each.name}: {each.text}  {each.remedy}".rstrip() for each in found.findings]
        return "\n".join(map(printable, lines))
