"""`genpr sweep REAL [SETTING=FAKES]...`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.checkpoints.options import parse_numbers
from genpr.cli.console import print_stderr, progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand, SourceType
from genpr.cli.options import (
    AXIS,
    SHARED_WITH_SCORE,
    GeneratorFlags,
    check_sources,
    option_group,
    score_options,
)
from genpr.cli.output import LIMITS, THRESHOLD_MISSED, PageOutput, import_matplotlib, input_paths
from genpr.evaluation.options import ScoreOptions
from genpr.features.options import option
from genpr.report.files import check_sweep

if TYPE_CHECKING:
    from genpr.checkpoints.sweep import Objective, Sweep, SweepFolder
    from genpr.evaluation.result import Result


Points = tuple[tuple[float, str], ...]


class _PointType(SourceType):
    """Parses `setting=source`."""

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> Any:  # noqa: ANN401
        setting, _, source = value.partition("=")
        try:
            number = float(setting)
        except ValueError:
            source = ""
        if not source:
            raise click.BadParameter(f"{value!r}: expected SETTING=FAKES, such as 0.7=samples/psi0.7")
        return number, source


@dataclass(frozen=True, kw_only=True)
class SweepFlags(GeneratorFlags):
    """Options of a sweep and of the generator."""

    checkpoint: str | None = option(
        None, "File or folder that is passed to the factory.", group="generator", metavar="PATH", type=SOURCE
    )
    settings: Sequence[float] | None = option(
        None,
        "Settings of the generator: 0.5,0.7,1, or first:last:step, such as 0.2:1:0.1.",
        group="generator",
        parse=parse_numbers,
        flag=("--psi", "--settings"),
        metavar="LIST",
    )
    varied: str = option("psi", AXIS, group="generator", flag="--axis", metavar="NAME")
    maximize: str = option(
        "f1", "Metric or F-score of which the best setting has the highest value.", metavar="NAME"
    )
    at_least: Sequence[tuple[str, float]] = option(
        (), "Lower limit that the best setting must reach, such as recall=0.5.", **LIMITS
    )
    out: Path | None = option(
        None,
        "Folder for sweep.json and sweep.png. A sweep that was interrupted resumes from it.",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
    )


@click.command(cls=GroupedCommand, name="sweep")
@click.argument("real", type=SOURCE)
@click.argument("points", metavar="[SETTING=FAKES]...", nargs=-1, type=_PointType())
@option_group(SweepFlags, "flags", without=SHARED_WITH_SCORE)
@score_options
@option_group(PageOutput, "output")
def command(
    real: str, points: Points, *, flags: SweepFlags, options: ScoreOptions, output: PageOutput
) -> int:
    """Score a generator against REAL at several settings of truncation, guidance or another parameter.

    \b
    genpr sweep real/ 0.5=psi05/ 0.7=psi07/ 1=psi10/ --out sweep
    genpr sweep real/ 1=cfg1.npz 3=cfg3.npz 7.5=cfg75.npz --axis guidance
    genpr sweep real/ --generator gan.py:load --checkpoint G.pt --psi 0.2:1:0.1

    Each FAKES is a source as for `genpr score`. A generator gets the same latents at every setting. The exit code is 5
    if no setting reaches --at-least.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    settings = flags.settings or []
    flags.check()
    problem = ""
    if flags.generator is None and not points:
        problem = "expected SETTING=FAKES, such as 0.7=samples/psi0.7, or --generator with --psi"
    elif flags.generator is not None and points:
        problem = "expected either SETTING=FAKES or --generator, but found both"
    elif flags.generator is not None and flags.settings is None:
        problem = "--generator needs settings, such as --psi 0.2:1:0.1"
    elif len(dict(points)) < len(points):
        problem = "a setting is given twice; give each setting once"
    if problem:
        raise click.UsageError(problem)
    output.check_several(len({*settings, *dict(points)}), "settings")
    check_sources(real)
    if flags.out is not None:
        check_sweep(flags.out, input_paths(), overwrite=output.overwrite)
    from genpr.checkpoints.generator import Sampler, load_generator
    from genpr.checkpoints.sweep import Objective, SweepFolder, sweep
    from genpr.evaluation.evaluator import Evaluator

    objective = Objective(flags.maximize, dict(flags.at_least))
    folder = None if flags.out is None else SweepFolder(flags.out)
    report = None if output.quiet else partial(_print_setting, flags.varied)
    axis, sampler = flags.varied, None
    sources: Mapping[float, object] = dict(points)
    with progress_bars(quiet=output.quiet) as progress:
        if flags.generator is not None:  # its errors are reported before the reals are embedded
            loaded = load_generator(flags.generator, flags.checkpoint, device=options.device)
            sampler = partial(Sampler.of, loaded, **flags.sampling(options, axis))
        evaluator = Evaluator.from_options(real, replace(options, progress=progress))
        objective.check(evaluator.metrics)
        if sampler is not None:
            images_of = sampler(n=flags.n or evaluator.n_real).images
            sources = {setting: images_of(setting) for setting in settings}
        found = sweep(evaluator, sources, axis=axis, folder=folder, progress=report)
    names = {each.setting: f"{axis}={each.setting:.12g}" for each in found.points}
    results = {names[each.setting]: each.result for each in found.points}
    write_page = partial(output.write_comparison, results)
    return _show(found, objective, folder, output, write_page)


def _print_setting(axis: str, done: int, total: int, setting: float, result: Result) -> None:
    """Print one line per finished setting."""
    values = f"precision {result['precision']:.4f}, recall {result['recall']:.4f}"
    print_stderr(f"{axis} = {setting:g}: {values} ({done} of {total})")


def _show(
    found: Sweep,
    objective: Objective,
    folder: SweepFolder | None,
    output: PageOutput,
    write_page: Callable[[], None],
) -> int:
    """Write the folder and the page, print the table, and return the exit code."""
    from genpr.report.compare_tables import sweep_table
    from genpr.report.files import write_sweep

    def write_folder() -> None:
        if folder is not None:
            import_matplotlib()
            write_sweep(found, objective, folder, overwrite=output.overwrite)
            output.note(f"wrote sweep.json and sweep.png to {folder.path}")

    notes = [item for each in found.points for item in each.result.notices if item.level == "note"]
    text = found.to_json(objective=objective) if output.as_json else sweep_table(found, objective)
    output.write_and_show(notes, text, write_folder, write_page)
    if found.best(objective) is None:
        print_stderr(f"missed: no setting reaches --at-least ({objective})")
        return THRESHOLD_MISSED
    return 0
