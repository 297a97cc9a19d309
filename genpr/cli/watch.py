"""`genpr watch REAL DIR`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import print_stderr, print_stdout
from genpr.cli.options import (
    INPUT,
    SHARED_WITH_SCORE,
    CheckpointFlags,
    GroupedCommand,
    computed_metrics,
    option_group,
    score_options,
)
from genpr.cli.output import FILE, TextOutput, input_paths
from genpr.evaluation.options import ScoreOptions
from genpr.features.options import keywords_of, option
from genpr.storage import check_outside

if TYPE_CHECKING:
    from genpr.evaluation.result import Result


@dataclass(frozen=True, kw_only=True)
class WatchFlags(CheckpointFlags):
    """Options of watching and of the generator."""

    settle: float = option(
        10.0,
        "A source is complete once it has not changed for this many seconds.",
        group="inputs",
        metavar="SECONDS",
    )
    log: Path | None = option(
        None,
        "Log of the scores. best.json and the results are written to the same folder.",
        group="output",
        unset="DIR/genpr.jsonl",
        **FILE,
    )
    by: str = option(
        "f1",
        "Criterion of the best score: f1, f0.5, f2 or any other F-score of precision and recall, or a metric.",
    )
    once: bool = option(False, "Score the sources that are complete now, and exit.")
    until: int | None = option(None, "Exit when N sources have been scored or cannot be scored.", least=1)
    poll: float = option(10.0, "Time between two scans of DIR.", group="inputs", metavar="SECONDS")
    pattern: str | None = option(
        None,
        "Names of checkpoint files, such as '*ema.pt'.",
        group="generator",
        unset="*.pt, .pth, .ckpt, .pkl, .safetensors, .bin",
        metavar="GLOB",
    )


@click.command(cls=GroupedCommand, name="watch")
@click.argument("real", type=INPUT)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@option_group(WatchFlags, "flags", without=SHARED_WITH_SCORE)
@score_options
@option_group(TextOutput, "output")
def command(real: str, folder: Path, *, flags: WatchFlags, options: ScoreOptions, output: TextOutput) -> None:
    """Score samples or checkpoints against REAL while a training run writes them to DIR.

    Samples are folders of images, .zip or .tar archives, .npz, .parquet or feature files directly in DIR. With
    --generator, DIR contains checkpoint files: the factory is called with each, and its generator draws --n images from
    the same latents. Each source is scored once, when it is complete, in natural order of the names, also after a
    restart. Scores are appended to DIR/genpr.jsonl, and best.json in the same folder has the best one.

    \b
    genpr watch real/ runs/7/samples
    genpr watch real/ runs/7 --generator gan.py:load --n 2000 --psi 0.7
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.checkpoints.rank import check_computed, number_of
    from genpr.checkpoints.watch import SourceOf, Watcher, check_folder, samples_at

    # Wrong options are reported before torch is imported, which takes seconds.
    number_of(flags.by)
    check_computed(flags.by, computed_metrics(options), "this watch does not compute")
    check_folder(folder)
    flags.check()
    from genpr.checkpoints.score_log import ScoreLog
    from genpr.report.compare_tables import score_line, watched_table

    path, seen = flags.log or folder / "genpr.jsonl", set[str]()
    check_outside(path, input_paths())

    def print_record(record: Mapping[str, Any], result: Result) -> None:
        if not output.quiet:
            is_best = log.best is not None and log.best["name"] == record["name"]
            print_stderr(score_line(record, log.by, is_best=is_best))
            for item in result.notices:
                if item.code not in seen:
                    print_stderr(str(item))
            seen.update(item.code for item in result.notices)

    def watch(options: ScoreOptions) -> None:
        from genpr.checkpoints.generator import checkpoints_at
        from genpr.evaluation.evaluator import Evaluator

        evaluator = Evaluator(real, **keywords_of(options))
        source_of: SourceOf = samples_at
        if flags.generator is not None:
            images_of = flags.images_of(flags.n or evaluator.n_real, options)
            source_of = checkpoints_at(images_of, pattern=flags.pattern)
        Watcher(
            evaluator,
            folder,
            log,
            settle=flags.settle,
            ignored=[real],
            source_of=source_of,
            on_message=print_stderr,
            on_record=print_record,
        ).run(once=flags.once, until=flags.until, interval=flags.poll)

    with ScoreLog(path, by=flags.by) as log:
        scores: dict[str, object] = {"by": log.by}
        try:
            output.run(watch, options=options)
        finally:
            scores |= {"best": log.best, "records": log.records}
            if output.as_json:  # also after Ctrl-C, the usual end of a watch
                click.get_current_context().obj.scores = scores
            elif log.records:
                print_stdout(watched_table(log.records, log.best, log.by))
        if output.as_json:
            print_stdout(json.dumps(scores, allow_nan=False))
        elif not log.records:
            print_stderr("no samples were scored")
