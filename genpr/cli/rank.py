"""`genpr rank REAL CKPT...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import progress_bars
from genpr.cli.options import (
    DRAWN_BY_SCORE,
    CheckpointFlags,
    check_sources,
    option_group,
    refuse_given,
    score_options,
)
from genpr.cli.output import PageOutput
from genpr.errors import UsageError
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.features.options import option

if TYPE_CHECKING:
    from genpr.checkpoints.rank import Ranking
    from genpr.evaluation.result import Result
    from genpr.images.datasets import CountedBatches

_OF_RESULTS = {"sources", "by", "from_results", "force", "html", "as_json", "quiet"}


@dataclass(frozen=True, kw_only=True)
class RankFlags(CheckpointFlags):
    """What is ranked by which number; with the generator, if there is one."""

    by: str = option(
        "f1",
        "f1, f0.5, f2 or any F-score of precision and recall; a metric (see `genpr list metrics`); or pareto.",
        metavar="NAME",
    )
    from_results: bool = option(
        False,
        "Rank files that `genpr score --json` wrote: no REAL, and nothing is computed.",
        flag="--results",
    )
    force: bool = option(False, "Rank even what was not made alike, or has other numbers of images.")


@click.command(name="rank")
@click.argument("sources", nargs=-1, required=True, metavar="REAL CHECKPOINT...")
@option_group(RankFlags, "flags", without=DRAWN_BY_SCORE)
@score_options
@option_group(PageOutput, "output")
def command(sources: tuple[str, ...], *, flags: RankFlags, options: ScoreOptions, output: PageOutput) -> None:
    """Rank checkpoints by their generated images: which is best, and which are statistically tied with it.

    REAL holds the real images, and each CHECKPOINT what one checkpoint generated, equally many images each: folders,
    archives, or feature files, as for `genpr score`. All are scored on the same reals, each once. With --generator, each
    CHECKPOINT is a file that the factory is called with, and all draw from the same latents, by --seed.

    \b
    genpr rank real/ samples/step-*              by F1 of precision and recall
    genpr rank real/ samples/step-* --by f0.5    precision counts twice as much
    genpr rank real/ samples/step-* --by pareto  who is beaten in both, by whom
    genpr rank --results scores/*.json           scores that are there already
    genpr rank real/ step-*.pt --generator gan.py:load --n 5000 --psi 0.7

    A * marks those that may be the best: with 95 % confidence, the true best is among them, however many there are.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.checkpoints.criterion import PARETO

    images: Mapping[str, CountedBatches] = {}
    if flags.from_results:
        given = {each.name or "" for each in click.get_current_context().command.params} - _OF_RESULTS
        refuse_given(given, "changes nothing with --results: these are ranked as they were scored")
        output.check_several(2, "results")
        ranking = _of_files([Path(source) for source in sources], flags)
    else:
        if len(sources) < 2:
            raise click.UsageError("needed REAL and at least one CHECKPOINT, found one path (or --results)")
        options = _with_needed(options, flags.by)
        flags.check()
        output.check_several(len(sources) - 1, "checkpoints")
        if flags.generator is None:  # else the last of many checkpoints would be missed after hours
            check_sources(*sources)
        elif gone := [path for path in sources[1:] if not Path(path).exists()]:
            raise UsageError(f"there is no checkpoint {gone[0]}", code="no-checkpoint", path=gone[0])
        from genpr.checkpoints.rank import by_name, rank_checkpoints
        from genpr.evaluation.evaluator import Evaluator

        checkpoints = by_name(sources[1:])
        with progress_bars(quiet=output.quiet) as progress:
            evaluator = Evaluator.from_options(sources[0], replace(options, progress=progress))
            if flags.generator is not None:
                images_of = flags.images_of(evaluator, options)
                images = {name: images_of(Path(path)) for name, path in checkpoints.items()}
            ranking = rank_checkpoints(evaluator, images or checkpoints, by=flags.by, force=flags.force)
    from genpr.evaluation.compare import named_notices
    from genpr.report.checkpoint_tables import ranking_table

    output.write_comparison(ranking.results, images, by="f1" if flags.by == PARETO else flags.by)
    output.show(
        named_notices(ranking.results), ranking.to_json() if output.as_json else ranking_table(ranking)
    )


def _with_needed(options: ScoreOptions, by: str) -> ScoreOptions:
    """With the metrics that the ranking needs; refuses an order that does not exist, or that this run cannot tell."""
    from genpr.checkpoints.criterion import check_computed, criterion_of
    from genpr.metrics.f_beta import F_SCORE_METRICS
    from genpr.metrics.registry import CONDITIONAL

    needs = [need for each in criterion_of(by) for need in each.needs]
    if any(need in CONDITIONAL for need in needs):
        computed = (*F_SCORE_METRICS, *(() if options.labels is None else options.labels.names))
        check_computed(by, computed, "this ranking does not compute; label.* come with --labels")
    chosen = ScorePlan.of(None, options).spaces
    more = [need for need in needs if need not in chosen and need not in CONDITIONAL]
    return replace(options, metrics=[*chosen, *more]) if more else options


def _of_files(paths: Sequence[Path], flags: RankFlags) -> Ranking:
    from genpr.checkpoints.rank import rank_results
    from genpr.evaluation.compare import load_results, short_labels

    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is given twice: each result is ranked once", code="bad-checkpoints")
    results: dict[str, Result] = {}
    for path, label in zip(paths, short_labels(paths), strict=True):
        results |= load_results(path, label=label.removesuffix(".json"))
    return rank_results(results, by=flags.by, force=flags.force)
