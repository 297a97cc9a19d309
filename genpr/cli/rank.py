"""`genpr rank REAL CKPT...`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from genpr.cli.console import progress_bars
from genpr.cli.options import (
    INPUT,
    SHARED_WITH_SCORE,
    CheckpointFlags,
    GroupedCommand,
    computed_metrics,
    force,
    option_group,
    refuse_given,
    score_options,
)
from genpr.cli.output import PageOutput
from genpr.evaluation.options import ScoreOptions
from genpr.features.options import keywords_of, option
from genpr.metrics.registry import CONDITIONAL

_OF_RESULTS = {"sources", "by", "from_results", "force", "html", "as_json", "quiet"}


@dataclass(frozen=True, kw_only=True)
class RankFlags(CheckpointFlags):
    """Options of a ranking and of the generator."""

    by: str = option(
        "f1",
        "Criterion: f1, f0.5, f2 or any other F-score of precision and recall, a metric, or pareto.",
    )
    from_results: bool = option(
        False, "Rank results that `genpr score --json` wrote, given as files without REAL.", flag="--results"
    )


@click.command(cls=GroupedCommand, name="rank")
@click.argument("sources", nargs=-1, required=True, metavar="REAL CHECKPOINT...", type=INPUT)
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
    from genpr.checkpoints.rank import PARETO, by_name, check_computed, criterion_of, rank_results
    from genpr.evaluation.compare import load_all, named_notices

    output.check_several(len(sources) - (not flags.from_results))
    if flags.from_results:
        given = {each.name or "" for each in click.get_current_context().command.params} - _OF_RESULTS
        refuse_given(given, "has no effect with --results, which ranks finished scores")
        ranking = rank_results(load_all([Path(source) for source in sources]), by=flags.by, force=force)
    else:
        if len(sources) < 2:
            raise click.UsageError("expected REAL and at least one CHECKPOINT, or --results")
        computed = computed_metrics(options)
        needs = [need for each in criterion_of(flags.by) for need in each.needs]
        more = [need for need in needs if need not in computed and need not in CONDITIONAL]
        check_computed(flags.by, [*computed, *more], "this ranking does not compute; --labels adds label.*")
        if more:
            chosen = [name for name in computed if name not in CONDITIONAL]
            options = replace(options, metrics=[*chosen, *more])
        flags.check()
        from genpr.checkpoints.rank import rank_checkpoints
        from genpr.evaluation.evaluator import Evaluator

        checkpoints: Mapping[str, object] = by_name(sources[1:])
        with progress_bars(quiet=output.quiet) as progress:
            evaluator = Evaluator(sources[0], **keywords_of(replace(options, progress=progress)))
            if flags.generator is not None:
                images_of = flags.images_of(flags.n or evaluator.n_real, options)
                checkpoints = {name: images_of(Path(str(path))) for name, path in checkpoints.items()}
            ranking = rank_checkpoints(evaluator, checkpoints, by=flags.by, force=force)
    from genpr.report.compare_tables import ranking_table

    output.show(
        named_notices(ranking.results),
        ranking.to_json() if output.as_json else ranking_table(ranking),
        partial(output.write_comparison, ranking.results, by=flags.by.replace(PARETO, "f1")),
    )
