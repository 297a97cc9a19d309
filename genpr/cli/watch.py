"""`genpr watch REAL DIR`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.checkpoints.options import WatchOptions
from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.options import DRAWN_BY_SCORE, CheckpointFlags, option_group, refuse_given, score_options
from genpr.cli.output import FILE, TextOutput
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.features.options import option

if TYPE_CHECKING:
    from genpr.checkpoints.score_log import ScoreLog
    from genpr.evaluation.result import Result


_SECONDS = click.FloatRange(min=0, min_open=True)


@dataclass(frozen=True, kw_only=True)
class WatchFlags(WatchOptions, CheckpointFlags):
    """Where scores go, how long is watched, and what is complete; with the generator, if there is one."""

    out: Path | None = option(
        None,
        "The log of scores; best.json and the results are written into the same folder.",
        unset="DIR/genpr.jsonl",
        **FILE,
    )
    by: str = option(
        "f1", "What best.json is chosen by: f1, f0.5, f2 or another F-score, or a metric.", metavar="NAME"
    )
    once: bool = option(False, "Score what is there and complete, and leave.")
    until: int | None = option(
        None, "Leave when N sources have a score or cannot be scored.", least=1, metavar="N"
    )
    interval: float = option(10.0, "Seconds between two looks.", type=_SECONDS, metavar="S")
    pattern: str | None = option(
        None,
        "Names of checkpoints, such as '*ema.pt'.",
        unset="*.pt, .pth, .ckpt, .pkl, .safetensors, .bin",
        metavar="GLOB",
    )


@click.command(name="watch")
@click.argument("real")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option_group(WatchFlags, "flags", without=DRAWN_BY_SCORE)
@score_options
@option_group(TextOutput, "output")
def command(real: str, folder: Path, *, flags: WatchFlags, options: ScoreOptions, output: TextOutput) -> None:
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
    from genpr.checkpoints.criterion import check_computed, number_of
    from genpr.checkpoints.watch import SourceOf, Watcher, check_folder, samples_at

    # What can be wrong is reported before anything is computed: importing torch alone takes seconds.
    number_of(flags.by)
    plan = ScorePlan.of(None, options)
    computed = (*plan.spaces, *(() if options.labels is None else options.labels.names))
    check_computed(flags.by, computed, "this watch does not compute")
    check_folder(folder)
    flags.check()
    if flags.generator is not None:
        refuse_given({"done_file"}, "is for samples, and --generator draws from checkpoint files")
    from genpr.checkpoints.score_log import ScoreLog

    with ScoreLog(flags.out or folder / "genpr.jsonl", by=flags.by) as log:
        try:
            with progress_bars(quiet=output.quiet) as bars:
                from genpr.checkpoints.sampler import checkpoints_at
                from genpr.evaluation.evaluator import Evaluator

                evaluator = Evaluator.from_options(real, replace(options, progress=bars))
                source_of: SourceOf = samples_at
                if flags.generator is not None:
                    source_of = checkpoints_at(flags.images_of(evaluator, options), pattern=flags.pattern)
                watched = replace(flags, ignored=[Path(real)])
                watcher = Watcher(
                    evaluator,
                    folder,
                    log,
                    watched,
                    source_of=source_of,
                    on_message=complain,
                    on_record=partial(_tell, log, set(), quiet=output.quiet),
                )
                watcher.run(once=flags.once, until=flags.until, interval=flags.interval)
        except KeyboardInterrupt:  # as most watches end
            if not output.as_json:  # else stdout says that it was interrupted, and nothing else
                _show(log, as_json=False)
            raise
        _show(log, as_json=output.as_json)


def _show(log: ScoreLog, *, as_json: bool) -> None:
    """All scores in the end."""
    from genpr.report.checkpoint_tables import watched_table

    if as_json:
        emit(json.dumps({"by": log.by, "best": log.best, "records": log.records}, allow_nan=False))
    elif log.records:
        emit(watched_table(log.records, log.best, log.by))
    else:
        complain("no samples were scored: there was none that is complete")


def _tell(log: ScoreLog, seen: set[str], record: Mapping[str, Any], result: Result, *, quiet: bool) -> None:
    """One line per record on stderr, and each kind of notice once."""
    from genpr.report.checkpoint_tables import score_line

    if not quiet:
        show_notices([item for item in result.notices if item.code not in seen])
        seen.update(item.code for item in result.notices)
        is_best = log.best is not None and log.best["name"] == record["name"]
        complain(score_line(record, log.by, is_best=is_best))
