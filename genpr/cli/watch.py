"""`genpr watch REAL DIR`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.generator_options import CheckpointOptions, checkpoint_options
from genpr.cli.label_options import label_options, labels_taken
from genpr.cli.options import names_in, recipe_options
from genpr.errors import UsageError

if TYPE_CHECKING:
    from genpr.checkpoints.score_log import ScoreLog
    from genpr.checkpoints.watch import SourceOf
    from genpr.evaluation.evaluator import Evaluator
    from genpr.evaluation.label_options import LabelOptions
    from genpr.evaluation.result import Result

_seconds = click.FloatRange(min=0)


@click.command(name="watch")
@click.argument("real")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where scores go; other files lie beside it.  [default: DIR/genpr.jsonl]",
)
@click.option(
    "--by",
    default="f1",
    metavar="NAME",
    show_default=True,
    help="What best.json is chosen by: f1, f0.5, f2 or any F-score of precision and recall, or a metric.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["genpr", "stylegan"]),
    default="genpr",
    show_default=True,
    help="stylegan also writes metric-genpr.jsonl, as StyleGAN's metric files are.",
)
@click.option("--once", is_flag=True, help="Score what is there and complete, and leave.")
@click.option("--until", type=click.IntRange(min=1), metavar="N", help="Leave when N sources are recorded.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    default=10,
    show_default=True,
    metavar="S",
    help="Seconds between two looks.",
)
@click.option(
    "--settle",
    type=_seconds,
    default=10,
    show_default=True,
    metavar="S",
    help="A source is complete when nothing about it has changed for so many seconds.",
)
@click.option(
    "--done-file", metavar="NAME", help="Folders are complete when they hold this file, and not before."
)
@click.option(
    "--give-up",
    type=_seconds,
    default=600,
    show_default=True,
    metavar="S",
    help="Seconds until a source that fails and does not change is recorded as failed.",
)
@click.option(
    "--keep-results",
    is_flag=True,
    help="Keep each whole result in genpr-results/NAME.json, for `genpr compare`.",
)
@checkpoint_options
@click.option(
    "--pattern",
    metavar="GLOB",
    help="Names of checkpoints, such as '*ema.pt'.  [default: *.pt, .pth, .ckpt, .pkl, .safetensors, .bin]",
)
@click.option("--cache-fakes", is_flag=True, help="Keep features of the samples in the cache, too.")
@click.option(
    "--protocol", default="genpr", metavar="NAME", show_default=True, help="See `genpr list protocols`."
)
@recipe_options
@label_options
@click.option(
    "--json", "as_json", is_flag=True, help="In the end print one JSON object instead of the table."
)
def command(
    real: str,
    folder: Path,
    *,
    out: Path | None,
    by: str,
    file_format: str,
    once: bool,
    until: int | None,
    interval: float,
    settle: float,
    done_file: str | None,
    give_up: float,
    pattern: str | None,
    cache_fakes: bool,
    keep_results: bool,
    protocol: str,
    metrics: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.Evaluator, which checks them
) -> None:
    """Score new samples or checkpoints in DIR against REAL as a training run writes them.

    Samples are folders of images, .zip or .tar archives, .npz, .parquet or feature files directly in DIR. With
    --generator, DIR holds checkpoint files instead: the factory is called with each, and what it returns draws --n
    images, of the same latents each time. Each is scored once it is complete, in natural order of the names, and
    never again, after a restart neither.
    Scores are appended to DIR/genpr.jsonl; best.json beside it holds the best.

    \b
    genpr watch real/ runs/7/samples
    genpr watch real/ runs/7 --generator gan.py:load --n 2000 --psi 0.7
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    chosen = names_in(metrics)
    drawn = CheckpointOptions.taken(options)
    labels = options["labels"] = labels_taken(options)
    _check(real, folder, protocol, chosen, by, labels)
    _check_drawn(drawn, pattern, done_file, cache_fakes=cache_fakes)
    from genpr.checkpoints.score_log import ScoreLog

    with ScoreLog(out or folder / "genpr.jsonl", by=by, stylegan=file_format == "stylegan") as log:
        if log.dropped:
            complain("note: the last line was cut short when an earlier watch was killed; it is scored again")
        with _summary(log, as_json=as_json), redirect_stdout(sys.stderr), progress_bars(quiet=quiet) as bars:
            from genpr.checkpoints.watch import Watcher
            from genpr.evaluation.evaluator import Evaluator

            evaluator = Evaluator(real, protocol=protocol, metrics=chosen, progress=bars, **options)
            watcher = Watcher(
                evaluator,
                folder,
                log,
                source_of=_source_of(drawn, evaluator, pattern, options),
                settle=settle,
                give_up=give_up,
                done_file=done_file,
                cache_fakes=cache_fakes,
                keep_results=keep_results,
                ignored=[Path(real)],
                on_message=complain,
                on_record=_teller(log, quiet=quiet),
                on_result=_noticer(quiet=quiet),
            )
            watcher.run(once=once, until=until, interval=interval)


def _check(
    real: str,
    folder: Path,
    protocol: str,
    metrics: list[str] | None,
    by: str,
    labels: LabelOptions | None,
) -> None:
    """What can be wrong at once is said at once: importing torch alone takes seconds."""
    from genpr.checkpoints.criterion import check_computed, number_of
    from genpr.evaluation.protocols import find_protocol

    number_of(by)
    computed = (*find_protocol(protocol).choose_metrics(metrics), *(() if labels is None else labels.names))
    check_computed(by, computed, "this watch does not compute")
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {folder} to watch; make it before the training run does",
            code="path-not-found",
            path=str(folder),
        )
    if Path(real).exists() and folder.samefile(real):
        raise UsageError(
            f"{real} cannot be both the reals and the folder to watch; samples are expected as folders or files in it",
            code="same-folder",
            path=real,
        )


def _check_drawn(
    drawn: CheckpointOptions, pattern: str | None, done_file: str | None, *, cache_fakes: bool
) -> None:
    drawn.check(pattern=pattern)
    if drawn.generator is None:
        return
    for option, is_given in (("--done-file", done_file is not None), ("--cache-fakes", cache_fakes)):
        if is_given:
            what = "is for folders of samples" if option == "--done-file" else "keeps features of files"
            raise click.UsageError(
                f"{option} {what}, and --generator scores what it draws from checkpoint files"
            )


def _source_of(
    drawn: CheckpointOptions, evaluator: Evaluator, pattern: str | None, options: dict[str, Any]
) -> SourceOf:
    """What in the folder is scored: samples, or what a generator draws from checkpoints."""
    if drawn.generator is None:
        from genpr.checkpoints.watch import samples_at

        return samples_at
    from genpr.checkpoints.sampler import checkpoints_at

    own = {name: options[name] for name in ("seed", "batch_size", "device")}
    return checkpoints_at(drawn.images_of(evaluator, **own), pattern=pattern)


@contextmanager
def _summary(log: ScoreLog, *, as_json: bool) -> Iterator[None]:
    """Show all scores in the end, also after Ctrl-C, which is how most watches end."""
    try:
        yield
    except KeyboardInterrupt:
        if not as_json:  # else stdout says that it was interrupted, and nothing else
            _show(log, as_json=False)
        raise
    _show(log, as_json=as_json)


def _show(log: ScoreLog, *, as_json: bool) -> None:
    from genpr.report.text.watched import watched_table

    if as_json:
        emit(json.dumps({"by": log.by, "best": log.best, "records": log.records}, allow_nan=False))
    elif log.records:
        emit(watched_table(log.records, log.best, log.by))
    else:
        complain("no samples were scored: there was none that is complete")


def _teller(log: ScoreLog, *, quiet: bool) -> Callable[[Any], None]:
    """One line per record on stderr; if `quiet`, only of what has no score."""
    from genpr.report.text.watched import score_line

    def tell(record: dict[str, Any]) -> None:
        if record["status"] == "failed":
            complain(f"{record['name']} is given up ({record['error']['code']})")
        elif not quiet:
            is_best = log.best is not None and log.best["name"] == record["name"]
            complain(score_line(record, log.by, is_best=is_best))

    return tell


def _noticer(*, quiet: bool) -> Callable[[Result], None]:
    """Each kind of notice once, at the first source that has it."""
    seen: set[str] = set()

    def show(result: Result) -> None:
        new = [item for item in result.notices if item.code not in seen]
        seen.update(item.code for item in new)
        if not quiet:
            show_notices(new)

    return show
