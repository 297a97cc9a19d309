"""`genpr sweep REAL [SETTING=FAKES]...`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.options import names_in, recipe_options, threshold

if TYPE_CHECKING:
    from genpr.result import Result
    from genpr.sweep import PointProgress, Sweep
    from genpr.sweep_folder import SweepFolder
    from genpr.tradeoff import Goal

_MISSED = 5


def point(text: str) -> tuple[float, str]:
    """`setting=source`."""
    setting, _, source = text.partition("=")
    try:
        number = float(setting)
    except ValueError:
        source = ""
    if not source:
        raise click.BadParameter(f"{text!r}: needed SETTING=FAKES, such as 0.7=samples/psi0.7")
    return number, source


@click.command(name="sweep")
@click.argument("real")
@click.argument("points", metavar="[SETTING=FAKES]...", nargs=-1, type=point)
@click.option("--axis", default="psi", show_default=True, help="Name of what is varied.")
@click.option(
    "--maximize", default="f1", show_default=True, metavar="METRIC", help="What the best setting has most of."
)
@click.option(
    "--at-least",
    multiple=True,
    type=threshold,
    metavar="METRIC=X",
    help="The best setting must have as much, such as recall=0.5; may be repeated.",
)
@click.option("--recall-at-least", type=float, metavar="X", help="The same as --at-least recall=X.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for sweep.json, sweep.csv, sweep.png and sweep.svg; run again, it is gone on with.",
)
@click.option("--restart", is_flag=True, help="Score again what --out holds of another sweep.")
@click.option("--protocol", default="genpr", show_default=True, metavar="NAME", help="Named recipe.")
@recipe_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(
    real: str,
    points: tuple[tuple[float, str], ...],
    *,
    axis: str,
    maximize: str,
    at_least: tuple[tuple[str, float], ...],
    recall_at_least: float | None,
    out: Path | None,
    restart: bool,
    metrics: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.Evaluator, which checks them
) -> int:
    r"""Score a generator at several settings of one axis against REAL: what does truncation or guidance trade?

    \b
    genpr sweep real/ 0.5=psi05/ 0.7=psi07/ 1=psi10/ --out sweep
    genpr sweep real/ 1=cfg1.npz 3=cfg3.npz 7.5=cfg75.npz --axis guidance

    Each FAKES is a folder, archive, .npz or feature file, as for `genpr score`. Exits 5 if no setting reaches --at-least.
    """
    from genpr.evaluator import Evaluator
    from genpr.sweep import sweep
    from genpr.sweep_folder import SweepFolder
    from genpr.tradeoff import Goal

    sources = _distinct(points)
    floors = dict(at_least) | ({} if recall_at_least is None else {"recall": recall_at_least})
    goal = Goal(maximize, floors)
    folder = None if out is None else SweepFolder(out, restart=restart)
    with redirect_stdout(sys.stderr), progress_bars(quiet=quiet) as progress:
        evaluator = Evaluator(real, metrics=names_in(metrics), progress=progress, **options)
        goal.check(evaluator.metrics)
        told = None if quiet else _teller(axis)
        found = sweep(evaluator, sources, axis=axis, folder=folder, progress=told)
    return _shown(found, goal, folder, as_json=as_json, quiet=quiet)


def _distinct(points: tuple[tuple[float, str], ...]) -> Mapping[float, str]:
    if not points:
        raise click.UsageError("needed at least one SETTING=FAKES, such as 0.7=samples/psi0.7")
    sources = dict(points)
    if len(sources) < len(points):
        raise click.UsageError("each setting may be given once")
    return sources


def _teller(axis: str) -> PointProgress:
    """One line per finished setting, with the time that is left."""
    started = time.monotonic()

    def tell(done: int, total: int, setting: float, result: Result) -> None:
        left = (time.monotonic() - started) * (total - done) / done
        when = f", about {left / 60:.0f} min left" if left > 90 else ""
        complain(
            f"{axis} = {setting:g}: precision {result['precision']:.4f}, recall {result['recall']:.4f} "
            f"({done} of {total}{when})"
        )

    return tell


def _shown(found: Sweep, goal: Goal, folder: SweepFolder | None, *, as_json: bool, quiet: bool) -> int:
    from genpr.report.sweep_files import write_sweep
    from genpr.report.sweep_table import sweep_table

    if not quiet:
        notes = (item for each in found.points for item in each.result.notices if item.level == "note")
        show_notices(tuple(dict.fromkeys(notes)))
    if folder is not None:
        write_sweep(found, goal, folder)
        if not quiet:
            complain(f"wrote sweep.json, sweep.csv, sweep.png and sweep.svg to {folder.path}")
    emit(found.to_json(goal=goal) if as_json else sweep_table(found, goal))
    if found.best(goal) is None:
        complain(f"missed: no setting has {goal}")
        return _MISSED
    return 0
