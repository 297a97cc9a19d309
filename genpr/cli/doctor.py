"""`genpr doctor`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path

import click

from genpr import __version__
from genpr.cli.options import GroupedCommand, cache_dir, option_group
from genpr.cli.output import TextOutput
from genpr.errors import ResourceError, printable


@click.command(cls=GroupedCommand, name="doctor")
@cache_dir
@option_group(TextOutput, "output", without={"quiet"})
def command(*, cache_dir: Path | None, output: TextOutput) -> int:
    """Check the libraries, GPUs, memory and cache of this machine, and run a self-test with known answers.

    Problems are printed with a fix. The exit code is 0 if scores can be trusted, and 4 if something is broken. The
    checks take about ten seconds, and change and download nothing. Include the output in bug reports.
    """
    from genpr.doctor import run_checks
    from genpr.runtime import cache_root

    with redirect_stdout(sys.stderr):  # output of libraries is not part of the report
        findings = run_checks(__version__, root=cache_dir or cache_root())
    lines = []
    for each in findings:
        lines.append(f"{each.state:<6} {each.name:<13} {printable(each.text)}")
        lines += [f"{'':7}fix: {printable(each.remedy)}"] if each.remedy else []
    is_healthy = all(each.state != "broken" for each in findings)
    verdict = "healthy" if is_healthy else "broken: fix this before you use scores of this machine"
    record = {"genpr": __version__, "findings": [asdict(each) for each in findings], "healthy": is_healthy}
    output.show_record(record, "\n".join([*lines, verdict]))
    return 0 if is_healthy else ResourceError.exit_code
