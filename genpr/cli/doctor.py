"""`genpr doctor`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr import __version__
from genpr.cli.console import as_json, cache_dir, print_stdout
from genpr.cli.grouped import GroupedCommand
from genpr.errors import ResourceError, printable

if TYPE_CHECKING:
    from genpr.doctor import Report


@click.command(cls=GroupedCommand, name="doctor")
@cache_dir
@as_json
def command(*, cache_dir: Path | None, as_json: bool) -> int:
    """Check the libraries, GPUs, memory and cache of this machine, and run a self-test with known answers.

    Problems are printed with a fix. The exit code is 0 if scores can be trusted, and 4 if something is broken. The
    checks take about ten seconds, and change and download nothing. Include the output in bug reports.
    """
    from genpr.doctor import run_checks
    from genpr.runtime import cache_root

    with redirect_stdout(sys.stderr):  # output of libraries is not part of the report
        report = run_checks(__version__, root=cache_dir or cache_root())
    print_stdout(json.dumps(report.to_record()) if as_json else _text(report))
    return 0 if report.is_healthy else ResourceError.exit_code


def _text(report: Report) -> str:
    """One line per finding, with its fix below it, and a summary; not wrapped if rich itself is broken."""
    try:
        from genpr.report.text import wrapped
    except Exception:  # noqa: BLE001 - a broken library may raise anything

        def wrapped(text: str, *, first: str = "", others: str = "  ", width: int = 80) -> str:
            return printable(first + text)

    lines = []
    for each in report.findings:
        lines.append(wrapped(each.text, first=f"{each.state:<6} {each.name:<13} ", others=" " * 21))
        if each.remedy:
            lines.append(wrapped(each.remedy, first=f"{'':7}fix: ", others=" " * 12))
    warnings = sum(each.state == "warn" for each in report.findings)
    verdict = (
        f"healthy, {warnings} warnings"
        if report.is_healthy
        else "broken: fix this before you use scores of this machine"
    )
    return "\n".join([*lines, f"{verdict}; {len(report.findings)} checks in {report.seconds:.0f} s"])
