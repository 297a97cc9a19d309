"""`genpr audit`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click

from genpr.cli.console import complain, progress_bars
from genpr.cli.options import option_group
from genpr.cli.output import TextOutput
from genpr.errors import UsageError
from genpr.features.options import option
from genpr.storage import replace_file, report_write_errors

Kind = Literal["fidelity", "diversity"]
RESULTS, MARKDOWN = "results.jsonl", "matrix.md"
_SEVERAL: dict[str, Any] = {"metavar": "NAME", "multiple": True}


@dataclass(frozen=True, kw_only=True)
class AuditFlags:
    """Which metrics are held against which checks, on which data."""

    metrics: Sequence[str] = option(
        (), "A metric; repeat for more.  [default: all]", flag="--metric", **_SEVERAL
    )
    functions: Sequence[str] = option(
        (),
        "A function of your own, from reals (n, d) and fakes (m, d) to a number; alone unless --metric is given.",
        flag="--function",
        metavar="FILE.PY:NAME",
        multiple=True,
    )
    kind: Kind | None = option(
        None, "What every --function claims to measure.", choices=("fidelity", "diversity")
    )
    checks: Sequence[str] = option(
        (), "A check; repeat for more.  [default: all]", flag="--check", **_SEVERAL
    )
    full: bool = option(
        False,
        "The published grids (hours), or coarse ones (minutes).  [default: quick]",
        flag="--full/--quick",
    )
    seed: int = option(0, "Chooses all data.", least=0)
    jobs: int = option(1, "Processes.", least=1)
    out: Path | None = option(
        None, f"Where to write {MARKDOWN} and {RESULTS}.", type=click.Path(path_type=Path), metavar="FOLDER"
    )
    resume: bool = option(False, "Go on from the results in --out; metrics can be added to them.")


@click.command(name="audit")
@option_group(AuditFlags, "flags")
@option_group(TextOutput, "output")
def command(*, flags: AuditFlags, output: TextOutput) -> None:
    """Hold metrics against fifteen sanity checks, on data whose fidelity and diversity are known.

    \b
    genpr audit --metric precision --metric recall
    genpr audit --function mine.py:score --kind fidelity --out audit-of-mine

    Prints which of the thirty demands of Räisä et al. 2025 each metric meets.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.audit.runner import families_of, judge, run_audit, shipped_kinds, user_family
    from genpr.report.audit_report import audit_text, markdown

    os.environ["PYTHONSAFEPATH"] = "1"  # its processes import nothing from the working directory
    if flags.resume and flags.out is None:
        raise UsageError("--resume needs --out, the folder to go on from", code="bad-option")
    if (flags.kind is None) == bool(flags.functions):
        raise UsageError("--function and --kind are given together, or neither", code="bad-option")
    own = [user_family(spec, flags.kind) for spec in flags.functions if flags.kind is not None]
    families = (*families_of(flags.metrics or (() if own else shipped_kinds())), *own)
    folder = flags.out
    if folder is not None:
        with report_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    with progress_bars(quiet=output.quiet) as progress:
        results = run_audit(
            families,
            grid="full" if flags.full else "quick",
            checks=flags.checks or None,
            seed=flags.seed,
            jobs=flags.jobs,
            path=None if folder is None else folder / RESULTS,
            resume=flags.resume,
            progress=progress,
        )
    # What was asked for, and the shipped metrics that the results hold from earlier runs.
    measured = {name for spreads in results.values.values() for name in spreads}
    kinds = {name: kind for name, kind in shipped_kinds().items() if name in measured}
    matrix = judge(results, kinds | {name: kind for each in families for name, kind in each.kinds.items()})
    if folder is not None:
        replace_file(folder / MARKDOWN, markdown(matrix, results.run))
        complain(f"wrote {MARKDOWN} and {RESULTS} to {folder}")
    names = ("metric", "mark", "published", "reason")
    cells = [
        {"check": cell.demand.check, "demand": cell.demand.desideratum}
        | {name: getattr(cell, name) for name in names}
        for cell in matrix.ordered
    ]
    record = {**asdict(results.run), "cells": cells}
    output.show((), json.dumps(record) if output.as_json else audit_text(matrix, results.run))
