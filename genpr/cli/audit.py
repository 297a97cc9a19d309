"""`genpr audit`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from genpr.cli.console import complain, progress_bars
from genpr.cli.options import option_group
from genpr.cli.output import TextOutput
from genpr.errors import UsageError
from genpr.storage import unwritable

if TYPE_CHECKING:
    from genpr.audit.matrix import Matrix
    from genpr.audit.metrics import Family
    from genpr.audit.runner import Results

RESULTS, MARKDOWN, PAGE = "results.jsonl", "matrix.md", "matrix.html"


@click.command(name="audit")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="A metric; repeat for more.  [default: all]"
)
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="FILE.PY:NAME",
    help="A function of your own, from reals (n, d) and fakes (m, d) to a number; alone unless --metric is given.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(["fidelity", "diversity"]),
    help="What --function claims to measure; once for all, or once for each.",
)
@click.option(
    "--check", "checks", multiple=True, metavar="NAME", help="A check; repeat for more.  [default: all]"
)
@click.option(
    "--quick/--full",
    default=True,
    help="Coarse grids (minutes), or the published ones (hours).  [default: quick]",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Chooses all data.")
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Repeat with so many seeds, from --seed on, and mark cells whose outcome changes; each takes as long.",
)
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Processes.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help=f"Where to write {MARKDOWN}, {PAGE} and {RESULTS}.",
)
@click.option("--resume", is_flag=True, help="Go on from the results in --out; metrics can be added to them.")
@option_group(TextOutput, "output")
def command(
    *,
    metrics: tuple[str, ...],
    functions: tuple[str, ...],
    kinds: tuple[Literal["fidelity", "diversity"], ...],
    checks: tuple[str, ...],
    quick: bool,
    seed: int,
    seeds: int,
    jobs: int,
    out: Path | None,
    resume: bool,
    output: TextOutput,
) -> None:
    """Hold metrics against fifteen sanity checks, on data whose fidelity and diversity are known.

    \b
    genpr audit --metric precision --metric recall
    genpr audit --function mine.py:score --kind fidelity --out audit-of-mine
    genpr audit --metric recall --seeds 5

    Prints which of the thirty demands of Räisä et al. 2025 each metric meets.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.audit.matrix import judge
    from genpr.audit.runner import run_audit

    os.environ["PYTHONSAFEPATH"] = (
        "1"  # its processes import nothing from the working directory while they start
    )

    if resume and out is None:
        raise UsageError("--resume needs --out, the folder to go on from", code="bad-option")
    families = _families(metrics, functions, kinds)
    folder = None if out is None else _folder(out)
    with progress_bars(quiet=output.quiet) as progress:
        results, *more = [
            run_audit(
                families,
                grid="quick" if quick else "full",
                checks=checks or None,
                seed=seed + index,
                jobs=jobs,
                path=None if folder is None else folder / _results_name(index, seed),
                resume=resume,
                progress=progress,
            )
            for index in range(seeds)
        ]
    matrix = judge(results, _known_kinds(families, results), *more)
    if folder is not None:
        _write(folder, matrix, results)
    output.show((), _as_json(matrix, results) if output.as_json else _report(matrix, results))


def _families(
    metrics: tuple[str, ...],
    functions: tuple[str, ...],
    kinds: tuple[Literal["fidelity", "diversity"], ...],
) -> tuple[Family, ...]:
    from genpr.audit.metrics import families_of, shipped_kinds, user_family

    if len(kinds) != len(functions) and not (functions and len(kinds) == 1):
        raise UsageError(
            f"give --kind once for all functions, or once for each: {len(functions)} --function, {len(kinds)} --kind",
            code="bad-option",
        )
    names = metrics or (() if functions else tuple(shipped_kinds()))
    all_kinds = kinds if len(kinds) == len(functions) else kinds * len(functions)
    own = (user_family(spec, kind) for spec, kind in zip(functions, all_kinds, strict=True))
    return (*families_of(names), *own)


def _known_kinds(
    families: tuple[Family, ...], results: Results
) -> dict[str, Literal["fidelity", "diversity"]]:
    """What was asked for, and beside it the shipped metrics that the results hold from earlier runs."""
    from genpr.audit.metrics import shipped_kinds

    measured = {name for spreads in results.values.values() for name in spreads}
    earlier = {name: kind for name, kind in shipped_kinds().items() if name in measured}
    return earlier | {name: kind for family in families for name, kind in family.kinds.items()}


def _results_name(index: int, first_seed: int) -> str:
    """File of one seed; that of the first one has the same name with any number of seeds."""
    return RESULTS if index == 0 else RESULTS.replace(".", f"-seed-{first_seed + index}.")


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def _write(folder: Path, matrix: Matrix, results: Results) -> None:
    from genpr.report.audit_report import audit_page, markdown
    from genpr.report.files import write_page

    write_page(folder / MARKDOWN, markdown(matrix, results.run))
    write_page(folder / PAGE, audit_page(matrix, results))
    complain(f"wrote {MARKDOWN}, {PAGE} and {RESULTS} to {folder}")


def _report(matrix: Matrix, results: Results) -> str:
    from genpr.report.audit_report import audit_table, legend, run_text
    from genpr.report.text import wrapped

    lines = [wrapped(line, others="   ") for line in legend(matrix)]
    return "\n".join([audit_table(matrix), "", *lines, run_text(results.run, matrix.seeds)])


def _as_json(matrix: Matrix, results: Results) -> str:
    cells = [
        {
            "check": cell.demand.check,
            "demand": cell.demand.desideratum,
            "metric": metric,
            "mark": cell.mark,
            "published": cell.published,
            "reason": cell.reason,
            "marks": cell.marks,
            "changes": cell.changes,
        }
        for metric in matrix.metrics
        for cell in matrix.of(metric)
    ]
    run = results.run
    return json.dumps(
        {"grid": run.grid, "repeats": run.repeats, "seed": run.seed, "seeds": matrix.seeds, "cells": cells}
    )
