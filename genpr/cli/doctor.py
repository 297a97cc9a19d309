"""`genpr doctor`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr import __version__
from genpr.cli.console import as_json, cache_dir, emit
from genpr.errors import ResourceError, printable

if TYPE_CHECKING:
    from genpr.doctor import Report


@click.command(name="doctor")
@cache_dir
@as_json
def command(*, cache_dir: Path | None, as_json: bool) -> int:
    """Check everything that a score needs on this machine, and say what is broken and how to fix it.

    Libraries and their versions, GPUs, memory, the cache, and a self-test of ten seconds with known answers. Exit code 0 if scores can be trusted, 4 if something is broken. Nothing is changed or downloaded. Put the
    output into bug reports.
    """
    from genpr.doctor import run_checks
    from genpr.runtime import cache_root

    with redirect_stdout(sys.stderr):  # what libraries print is not part of the output
        report = run_checks(__version__, root=cache_dir or cache_root())
    emit(json.dumps(report.to_record()) if as_json else _text(report))
    return 0 if report.is_healthy else ResourceError.exit_code


def _text(report: Report) -> str:
    """A line for each finding, what to do below it, and a summary; unwrapped where rich itself is broken."""
    try:
        from genpr.report.text import wrapped
    except Exception:  # noqa: BLE001 - whatever a broken library raises

        def wrapped(text: str, *, first: str = "", others: str = "  ") -> str:
            return printable(first + text)

    lines = []
    for each in report.findings:
        lines.append(wrapped(each.text, first=f"{each.state:<6} {each.name:<13} ", others=" " * 21))
        if each.remedy:
            lines.append(wrapped(each.remedy, first=f"{'':7}fix: ", others=" " * 12))
    warnings = sum(each.state == "warn" for each in report.findings)
    verdict = (
        f"healthy, {warnings} warnings" if report.is_healthy else "broken: fix this before you trust a score"
    )
    return "\n".join([*lines, f"{verdict}; {len(report.findings)} checks in {report.seconds:.0f} s"])
