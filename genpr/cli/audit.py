"""`genpr audit`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click

from genpr.cli.console import print_stderr, progress_bars
from genpr.cli.grouped import GroupedCommand
from genpr.cli.options import option_group
from genpr.cli.output import FileOutput
from genpr.errors import UsageError
from genpr.evaluation.options import parse_names
from genpr.features.options import option
from genpr.storage import check_place, marked_by, replace_file, report_write_errors

Kind = Literal["fidelity", "diversity"]
RESULTS, MARKDOWN = "results.jsonl", "matrix.md"
_NAMES: dict[str, Any] = {"parse": parse_names, "unset": "all", "metavar": "A,B"}


@dataclass(frozen=True, kw_only=True)
class AuditFlags:
    """Metrics, checks and data of an audit."""

    metrics: Sequence[str] | None = option(None, "Names of metrics.", **_NAMES)
    functions: Sequence[str] = option(
        (),
        "Custom metric: a function of reals (n, d) and fakes (m, d) that returns a number. Other metrics are then computed "
        "only if --metrics names them.",
        flag="--function",
        metavar="FILE.PY:NAME",
        multiple=True,
    )
    kind: Kind | None = option(
        None,
        "Property that every --function is meant to measure.",
        choices=("fidelity", "diversity"),
    )
    checks: Sequence[str] | None = option(None, "Names of checks.", **_NAMES)
    full: bool = option(
        False,
        "Use the published grids (hours), or coarse ones (minutes).",
        unset="quick",
        flag="--full/--quick",
    )
    seed: int = option(0, "Random seed.", least=0, metavar="N")
    jobs: int = option(1, "Number of processes.", least=1, metavar="N")
    out: Path | None = option(
        None, f"Folder for {MARKDOWN} and {RESULTS}.", type=click.Path(path_type=Path), metavar="DIR"
    )
    resume: bool = option(False, "Resume from the results in --out. Metrics can be added.")


@click.command(cls=GroupedCommand, name="audit")
@option_group(AuditFlags, "flags")
@option_group(FileOutput, "output")
def command(*, flags: AuditFlags, output: FileOutput) -> None:
    """Run metrics on fifteen sanity checks with known fidelity and diversity (Räisä et al. 2025).

    \b
    genpr audit --metrics precision,recall
    genpr audit --function mine.py:score --kind fidelity --out audit

    The table shows which of the thirty criteria each metric meets.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.audit.runner import evaluate_demands, families_of, run_audit, shipped_kinds, user_family
    from genpr.report.audit_report import TITLE, audit_text, markdown

    os.environ["PYTHONSAFEPATH"] = "1"  # its processes do not import from the working directory
    if flags.resume and flags.out is None:
        raise UsageError("--resume needs --out, the folder with the results", code="bad-option")
    if (flags.kind is None) == bool(flags.functions):
        raise UsageError("--function and --kind need each other", code="bad-option")
    own = [user_family(spec, flags.kind) for spec in flags.functions if flags.kind is not None]
    families = (*families_of(flags.metrics or (() if own else shipped_kinds())), *own)
    folder = flags.out
    is_own = marked_by(lambda head: head.startswith(TITLE.encode()))
    if folder is not None:
        with report_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        output.check_file(folder / MARKDOWN, (), is_own)
        check_place(folder / RESULTS)
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
    # The requested metrics, and those in the results of earlier runs.
    measured = {name for spreads in results.values.values() for name in spreads}
    kinds = {name: kind for name, kind in shipped_kinds().items() if name in measured}
    matrix = evaluate_demands(
        results, kinds | {name: kind for each in families for name, kind in each.kinds.items()}
    )
    if folder is not None:
        output.check_file(folder / MARKDOWN, (), is_own)
        replace_file(folder / MARKDOWN, markdown(matrix, results.run))
        print_stderr(f"wrote {MARKDOWN} and {RESULTS} to {folder}")
    names = ("metric", "mark", "published", "reason")
    cells = [
        {"check": cell.demand.check, "demand": cell.demand.desideratum}
        | {name: getattr(cell, name) for name in names}
        for cell in matrix.ordered
    ]
    record = {**asdict(results.run), "cells": cells}
    output.show((), json.dumps(record) if output.as_json else audit_text(matrix, results.run))
