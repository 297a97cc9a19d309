"""`genpr score REAL FAKE`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import LabelFlags, check_sources, click_option, follow_symlinks, option_group
from genpr.cli.output import ScoreOutput
from genpr.evaluation.options import EXTRACTOR, ScoreOptions
from genpr.evaluation.panel import panel_choices, score_choices
from genpr.evaluation.plan import ScorePlan, with_pinned
from genpr.evaluation.protocols import find_protocol
from genpr.features.options import option_fields

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import ImageValues, Scored


_FIELDS = {each.name: each for each in option_fields(ScoreOptions)}


@click.command(cls=GroupedCommand, name="score", context_settings={"allow_extra_args": True})
@click.argument("real", type=SOURCE)
@click.argument("fake", type=SOURCE)
@click_option(
    _FIELDS["extractor"],
    dest="extractors",
    multiple=True,
    default=(),
    help=f"{EXTRACTOR} Several extractors form a panel: one result per extractor from one pass over the images.",
)
@click_option(
    _FIELDS["protocol"],
    dest="protocols",
    multiple=True,
    default=("genpr",),
    help="Named evaluation protocol, from `genpr list protocols`. Options that it pins cannot be changed.",
)
@option_group(ScoreOptions, without={"protocol", "extractor"})
@follow_symlinks
@option_group(LabelFlags, "labels")
@option_group(ScoreOutput, "output")
def command(
    real: str,
    fake: str,
    *,
    protocols: tuple[str, ...],
    extractors: tuple[str, ...],
    options: ScoreOptions,
    labels: LabelFlags,
    output: ScoreOutput,
) -> int:
    """Score the images in FAKE against those in REAL.

    REAL and FAKE are folders of images, .zip or .tar archives, .npz or .parquet files, lists of files (.txt), or feature
    files (.npy, .safetensors). A quoted pattern, such as 'shards/*.tar' or 'real_{1..8}.npy', is one source.
    """
    if more := click.get_current_context().args:
        raise click.UsageError(
            f"expected one set of fakes, but found {1 + len(more)}; use `genpr rank REAL FAKE...`, or `genpr score --json` for each "
            "set and then `genpr compare`"
        )
    protocols = tuple(dict.fromkeys(protocols))
    options = replace(options, protocol=protocols[0])
    is_panel = not extractors and len(protocols) == 1 and bool(find_protocol(protocols[0]).panel)
    if is_panel or len(extractors) > 1:
        if len(protocols) > 1 or labels.labels or labels.per_class or output.table:
            raise click.UsageError(
                "a panel (several --extractor, or protocol fdr6) needs a single --protocol, and no --labels, --per-class or --csv"
            )
        return _score_panel(real, fake, panel_choices(extractors or None, options), output)
    options = replace(options, extractor=extractors[0] if extractors else None, labels=labels.chosen())
    choices = [replace(options, protocol=name) for name in protocols]
    classes, of_labels = labels.classes(), () if options.labels is None else options.labels.names
    if len(protocols) > 1 and (classes is not None or output.html or output.table):
        raise click.UsageError(
            "--per-class, --html and --csv need a single --protocol; run the command once for each"
        )
    options = with_pinned(choices)
    _check(real, fake, choices, output, of_labels)

    from genpr.distributed import rank_zero_only
    from genpr.evaluation.evaluator import score_with

    # A table needs values of single images; a page is written without them if there are none.
    images: ImageValues = (
        "required" if output.table is not None else "none" if output.html is None else "if possible"
    )
    with progress_bars(quiet=output.quiet) as progress:
        choices = [replace(each, progress=progress) for each in choices]
        scored = score_with(real, fake, choices, images=images, classes=classes)
    if not rank_zero_only():
        return 0
    from genpr.report.score_tables import result_text

    results, by_class = [each.result for each in scored], scored[0].classes
    if not output.as_json:
        text = "\n\n".join(result_text(each, by_class) for each in results)
    elif len(results) == 1:
        text = (by_class or results[0]).to_json()
    else:
        text = json.dumps({"results": [result.to_dict() for result in results]}, allow_nan=False)
    notices = [item for result in results for item in result.notices]
    output.write_and_show(notices, text, *_writes(scored[0], (real, fake), labels, options, output))
    return output.exit_code({each.protocol: each for each in results})


def _check(
    real: str, fake: str, choices: Sequence[ScoreOptions], output: ScoreOutput, more: Sequence[str] = ()
) -> None:
    """Refuse impossible options before any image is listed; `more` are metrics that are in no plan."""
    plans = [ScorePlan.from_options(None, each) for each in choices]
    output.check([*dict.fromkeys(name for plan in plans for name in plan.extractors), *more])
    check_sources(real, fake)


def _score_panel(
    real: str, fake: str, choices: Mapping[str | None, ScoreOptions], output: ScoreOutput
) -> int:
    """Score by several extractors."""
    _check(real, fake, list(choices.values()), output)

    from genpr.distributed import rank_zero_only

    with progress_bars(quiet=output.quiet) as progress:
        choices = {name: replace(each, progress=progress) for name, each in choices.items()}
        panel = score_choices(real, fake, choices)
    if not rank_zero_only():
        return 0
    from genpr.evaluation.compare import named_notices
    from genpr.report.compare_page import panel_report
    from genpr.report.compare_tables import panel_text

    text = panel.to_json() if output.as_json else panel_text(panel)
    write = partial(output.write_page, panel_report, panel)
    output.write_and_show(named_notices(panel.every), text, write)
    return output.exit_code(panel.every)


def _writes(
    scored: Scored, sources: tuple[str, str], labels: LabelFlags, options: ScoreOptions, output: ScoreOutput
) -> Sequence[Callable[[], None]]:
    """What writes the table and the page, if they are requested."""
    if output.html is None and output.table is None:
        return ()
    from genpr.report.files import write_samples
    from genpr.report.score_page import evidence_report, html_report

    result, evidence = scored.result, scored.images
    if evidence is None:
        return [partial(output.write_page, partial(html_report, result, classes=scored.classes))]

    def write_page() -> None:
        with progress_bars(quiet=output.quiet) as progress:
            how: dict[str, Any] = {"policy": options.decoding, "device": result.device, "progress": progress}
            names = ("real_labels", "fake_labels") if labels.per_class else ()
            classes = {name: getattr(labels, name) for name in names}
            output.write_page(partial(evidence_report, evidence, **how), *sources, **classes)

    return [partial(output.write_table, partial(write_samples, scores=evidence)), write_page]
