"""`genpr sweep REAL [SETTING=FAKES]...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.checkpoints.options import parse_numbers
from genpr.cli.console import print_stderr, progress_bars
from genpr.cli.options import (
    INPUT,
    SHARED_WITH_SCORE,
    SOURCE,
    GeneratorFlags,
    GroupedCommand,
    option_group,
    score_options,
)
from genpr.cli.output import LIMITS, THRESHOLD_MISSED, PageOutput, import_matplotlib, input_paths
from genpr.evaluation.options import ScoreOptions
from genpr.features.options import keywords_of, option
from genpr.report.files import check_sweep, write_sweep

if TYPE_CHECKING:
    from genpr.evaluation.result import Result


def _point(text: str) -> tuple[float, str]:
    """Parse `setting=source`."""
    setting, _, source = text.partition("=")
    with suppress(ValueError):
        if source:
            return float(setting), source
    raise click.BadParameter(f"{text!r}: expected SETTING=FAKES, such as 0.7=samples/psi0.7")


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
    maximize: str = option("f1", "Metric or F-score of which the best setting has the highest value.")
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
@click.argument("real", type=INPUT)
@click.argument("points", metavar="[SETTING=FAKES]...", nargs=-1, type=_point)
@option_group(SweepFlags, "flags", without=SHARED_WITH_SCORE)
@score_options
@option_group(PageOutput, "output")
def command(
    real: str,
    points: tuple[tuple[float, str], ...],
    *,
    flags: SweepFlags,
    options: ScoreOptions,
    output: PageOutput,
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
    if bool(points) == bool(flags.generator and settings):
        raise click.UsageError(
            "expected SETTING=FAKES, such as 0.7=samples/psi0.7, or --generator and its settings (--psi 0.2:1:0.1)"
        )
    if len(dict(points)) < len(points):
        raise click.UsageError("a setting is given twice; give each setting once")
    output.check_several(len({*settings, *dict(points)}))
    if flags.out is not None:
        check_sweep(flags.out, input_paths(), overwrite=output.overwrite)
    from genpr.checkpoints.generator import Sampler, load_generator
    from genpr.checkpoints.sweep import Objective, SweepFolder, sweep
    from genpr.evaluation.evaluator import Evaluator
    from genpr.report.compare_tables import sweep_table

    objective, axis = Objective(flags.maximize, dict(flags.at_least)), flags.axis
    folder = None if flags.out is None else SweepFolder(flags.out)

    def print_setting(done: int, total: int, setting: float, result: Result) -> None:
        values = f"precision {result['precision']:.4f}, recall {result['recall']:.4f}"
        output.note(f"{axis} = {setting:g}: {values} ({done} of {total})")

    with progress_bars(quiet=output.quiet) as progress:
        if flags.generator is not None:  # its errors are reported before the reals are embedded
            loaded = load_generator(flags.generator, flags.checkpoint, device=options.device)
        evaluator = Evaluator(real, **keywords_of(replace(options, progress=progress)))
        objective.check(evaluator.metrics)
        sources: Mapping[float, object] = dict(points)
        if flags.generator is not None:
            sampler = Sampler.of(loaded, n=flags.n or evaluator.n_real, **flags.sampling(options))
            sources = {setting: sampler.images(setting) for setting in settings}
        found = sweep(evaluator, sources, axis=axis, folder=folder, progress=print_setting)
    results = {f"{axis}={each.setting:.12g}": each.result for each in found.points}

    def write_folder() -> None:
        if folder is not None:
            import_matplotlib()
            write_sweep(found, objective, folder, overwrite=output.overwrite)
            output.note(f"wrote sweep.json and sweep.png to {folder.path}")

    notes = [item for each in found.points for item in each.result.notices if item.level == "note"]
    text = found.to_json(objective=objective) if output.as_json else sweep_table(found, objective)
    output.show(notes, text, write_folder, partial(output.write_comparison, results))
    if found.best(objective) is None:
        print_stderr(f"missed: no setting reaches --at-least ({objective})")
        return THRESHOLD_MISSED
    return 0
