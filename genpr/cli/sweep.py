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
from genpr.cli.generator_options import check_needs_generator, generator_options, number_list
from genpr.cli.label_options import label_options, labels_taken
from genpr.cli.options import names_in, recipe_options, threshold
from genpr.cli.page_options import check_several_page, html_option, write_several_page

if TYPE_CHECKING:
    from genpr.checkpoints.criterion import Objective
    from genpr.checkpoints.generator import LoadedGenerator
    from genpr.checkpoints.sampler import Sampler
    from genpr.checkpoints.sweep import PointProgress, Sweep
    from genpr.checkpoints.sweep_folder import SweepFolder
    from genpr.evaluation.result import Result
    from genpr.images.datasets import CountedBatches

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
@generator_options
@click.option("--checkpoint", metavar="PATH", help="What the factory is called with.")
@click.option(
    "--psi",
    "--settings",
    "settings",
    type=number_list,
    metavar="LIST",
    help="Settings for --generator: 0.5,0.7,1 or first:last:step, such as 0.2:1:0.1.",
)
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
@label_options
@html_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(
    real: str,
    points: tuple[tuple[float, str], ...],
    *,
    generator: str | None,
    checkpoint: str | None,
    settings: list[float] | None,
    n: int | None,
    rule: str | None,
    latent_dim: int | None,
    image_range: list[float] | None,
    axis: str,
    maximize: str,
    at_least: tuple[tuple[str, float], ...],
    recall_at_least: float | None,
    out: Path | None,
    restart: bool,
    metrics: str | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.Evaluator, which checks them
) -> int:
    """Score a generator at several settings of one axis against REAL: what does truncation or guidance trade?

    \b
    genpr sweep real/ 0.5=psi05/ 0.7=psi07/ 1=psi10/ --out sweep
    genpr sweep real/ 1=cfg1.npz 3=cfg3.npz 7.5=cfg75.npz --axis guidance
    genpr sweep real/ --generator gan.py:load --checkpoint G.pt --psi 0.2:1:0.1

    Each FAKES is a folder, archive, .npz or feature file, as for `genpr score`. Of a generator, every setting gets the
    same latents, drawn with --seed. Exits 5 if no setting reaches --at-least.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    of_generator = {"rule": rule, "latent_dim": latent_dim, "image_range": image_range}
    options["labels"] = labels_taken(options)
    _check_sources(points, generator, {"checkpoint": checkpoint, "psi": settings, "n": n, **of_generator})
    check_several_page(html, len(set(settings or dict(points))), "settings")
    from genpr.images.paths import check_there

    check_there(real)
    from genpr.checkpoints.criterion import Objective
    from genpr.checkpoints.sweep import sweep, sweep_sampler
    from genpr.checkpoints.sweep_folder import SweepFolder
    from genpr.evaluation.evaluator import Evaluator

    floors = dict(at_least) | ({} if recall_at_least is None else {"recall": recall_at_least})
    objective = Objective(maximize, floors)
    folder = None if out is None else SweepFolder(out, restart=restart)
    told = None if quiet else _teller(axis)
    drawn: Mapping[float, CountedBatches] = {}
    with redirect_stdout(sys.stderr), progress_bars(quiet=quiet) as progress:
        loaded = None if generator is None else _loaded(generator, checkpoint, options["device"])
        evaluator = Evaluator(real, metrics=names_in(metrics), progress=progress, **options)
        objective.check(evaluator.metrics)
        if loaded is None:
            found = sweep(evaluator, dict(points), axis=axis, folder=folder, progress=told)
        else:
            own = {"n": n or evaluator.n_real, "seed": options["seed"], "batch_size": options["batch_size"]}
            sampler = _sampler(loaded, axis, options["device"], own | of_generator)
            found = sweep_sampler(sampler, evaluator, settings or [], folder=folder, progress=told)
            drawn = {place: sampler.images(place) for place in dict.fromkeys(settings or [])}
    status = _shown(found, objective, folder, as_json=as_json, quiet=quiet)
    _write_page(html, found, drawn, quiet=quiet)
    return status


def _write_page(
    html: Path | None, found: Sweep, drawn: Mapping[float, CountedBatches], *, quiet: bool
) -> None:
    names = {each.setting: f"{found.axis}={each.setting:.12g}" for each in found.points}
    write_several_page(
        html,
        {names[each.setting]: each.result for each in found.points},
        {names[setting]: images for setting, images in drawn.items()},
        axis=found.axis,
        settings=[each.setting for each in found.points],
        quiet=quiet,
    )


def _loaded(spec: str, checkpoint: str | None, device: str) -> LoadedGenerator:
    """Before the reals are embedded: what is wrong with it is said at once."""
    from genpr.checkpoints.generator import load_generator

    return load_generator(spec, checkpoint, device=device)


def _sampler(loaded: LoadedGenerator, axis: str, device: str, options: Mapping[str, Any]) -> Sampler:
    from genpr.checkpoints.sampler import Sampler

    return Sampler.of(loaded, axis=axis, device=device, **options)


def _check_sources(
    points: tuple[tuple[float, str], ...], generator: str | None, of_generator: Mapping[str, object]
) -> None:
    """Fakes for each setting, or a generator with its settings."""
    if generator is None:
        check_needs_generator(generator, of_generator)
        if not points:
            raise click.UsageError(
                "needed SETTING=FAKES, such as 0.7=samples/psi0.7, or --generator with --psi"
            )
        if len(dict(points)) < len(points):
            raise click.UsageError("each setting may be given once")
    elif points:
        raise click.UsageError("needed either SETTING=FAKES or --generator, found both")
    elif of_generator["psi"] is None:
        raise click.UsageError("--generator needs its settings, such as --psi 0.2:1:0.1")


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


def _shown(
    found: Sweep, objective: Objective, folder: SweepFolder | None, *, as_json: bool, quiet: bool
) -> int:
    from genpr.report.sweep_files import write_sweep
    from genpr.report.text.sweep_table import sweep_table

    if not quiet:
        notes = (item for each in found.points for item in each.result.notices if item.level == "note")
        show_notices(tuple(dict.fromkeys(notes)))
    if folder is not None:
        write_sweep(found, objective, folder)
        if not quiet:
            complain(f"wrote sweep.json, sweep.csv, sweep.png and sweep.svg to {folder.path}")
    emit(found.to_json(objective=objective) if as_json else sweep_table(found, objective))
    if found.best(objective) is None:
        complain(f"missed: no setting has {objective}")
        return _MISSED
    return 0
