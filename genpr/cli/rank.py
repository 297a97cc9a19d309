"""`genpr rank REAL CKPT...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import (
    SHARED_WITH_SCORE,
    CheckpointFlags,
    check_sources,
    force,
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

_OF_RESULTS = {"sources", "by", "from_results", "force", "html", "as_json", "quiet"}


@dataclass(frozen=True, kw_only=True)
class RankFlags(CheckpointFlags):
    """Options of a ranking and of the generator."""

    by: str = option(
        "f1",
        "Criterion: f1, f0.5, f2 or any other F-score of precision and recall, a metric, or pareto.",
        metavar="NAME",
    )
    from_results: bool = option(
        False,
        "Rank results that `genpr score --json` wrote, given as files without REAL.",
        flag="--results",
    )


@click.command(cls=GroupedCommand, name="rank")
@click.argument("sources", nargs=-1, required=True, metavar="REAL CHECKPOINT...", type=SOURCE)
@option_group(RankFlags, "flags", without=SHARED_WITH_SCORE)
@force
@score_options
@option_group(PageOutput, "output")
def command(
    sources: tuple[str, ...], *, force: bool, flags: RankFlags, options: ScoreOptions, output: PageOutput
) -> None:
    """Rank checkpoints by their generated images: the best one, and those statistically tied with it.

    REAL is the set of real images. Each CHECKPOINT is the set of images that one checkpoint generated; all must have the
    same number of images. Both are sources as for `genpr score`. With --generator, each CHECKPOINT is a file that is
    passed to the factory, and all checkpoints draw from the same latents.

    \b
    genpr rank real/ samples/step-*              by F1 of precision and recall
    genpr rank real/ samples/step-* --by f0.5    precision counts twice as much
    genpr rank real/ samples/step-* --by pareto  the Pareto front of both
    genpr rank --results scores/*.json           results of genpr score --json
    genpr rank real/ step-*.pt --generator gan.py:load --n 5000 --psi 0.7

    Contenders are marked with *: with 95 % confidence, the true best checkpoint is among them.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.checkpoints.rank import PARETO

    if flags.from_results:
        given = {each.name or "" for each in click.get_current_context().command.params} - _OF_RESULTS
        refuse_given(given, "has no effect with --results, which ranks finished scores")
        output.check_several(2, "results")
        ranking = _rank_files([Path(source) for source in sources], flags.by, force=force)
    else:
        if len(sources) < 2:
            raise click.UsageError(
                "expected REAL and at least one CHECKPOINT, or --results, but found one path"
            )
        options = _add_needed_metrics(options, flags.by)
        flags.check()
        output.check_several(len(sources) - 1, "checkpoints")
        if flags.generator is None:  # a missing checkpoint is reported at once, not after hours
            check_sources(*sources)
        elif missing := [path for path in sources[1:] if not Path(path).exists()]:
            raise UsageError(
                f"there is no checkpoint {missing[0]}; check the path", code="no-checkpoint", path=missing[0]
            )
        from genpr.checkpoints.rank import by_name, rank_checkpoints
        from genpr.evaluation.evaluator import Evaluator

        checkpoints: Mapping[str, object] = by_name(sources[1:])
        with progress_bars(quiet=output.quiet) as progress:
            evaluator = Evaluator.from_options(sources[0], replace(options, progress=progress))
            if flags.generator is not None:
                images_of = flags.images_of(evaluator, options)
                checkpoints = {name: images_of(Path(str(path))) for name, path in checkpoints.items()}
            ranking = rank_checkpoints(evaluator, checkpoints, by=flags.by, force=force)
    from genpr.evaluation.compare import named_notices
    from genpr.report.compare_tables import ranking_table

    by = "f1" if flags.by == PARETO else flags.by
    output.write_and_show(
        named_notices(ranking.results),
        ranking.to_json() if output.as_json else ranking_table(ranking),
        partial(output.write_comparison, ranking.results, by=by),
    )


def _add_needed_metrics(options: ScoreOptions, by: str) -> ScoreOptions:
    """Add the metrics that the criterion needs; refuse a criterion that is unknown, or that this run does not compute."""
    from genpr.checkpoints.rank import check_computed, criterion_of
    from genpr.metrics.f_beta import F_SCORE_METRICS
    from genpr.metrics.registry import CONDITIONAL

    needs = [need for each in criterion_of(by) for need in each.needs]
    if any(need in CONDITIONAL for need in needs):
        computed = (*F_SCORE_METRICS, *(() if options.labels is None else options.labels.names))
        check_computed(by, computed, "this ranking does not compute; --labels adds label.*")
    chosen = ScorePlan.from_options(None, options).extractors
    more = [need for need in needs if need not in chosen and need not in CONDITIONAL]
    return replace(options, metrics=[*chosen, *more]) if more else options


def _rank_files(paths: Sequence[Path], by: str, *, force: bool) -> Ranking:
    from genpr.checkpoints.rank import rank_results
    from genpr.evaluation.compare import load_results, short_labels

    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is given twice; give each result once", code="bad-checkpoints")
    results: dict[str, Result] = {}
    for path, label in zip(paths, short_labels(paths), strict=True):
        results |= load_results(path, label=label.removesuffix(".json"))
    return rank_results(results, by=by, force=force)
