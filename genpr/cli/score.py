"""`genpr score REAL FAKE`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import progress_bars
from genpr.cli.options import (
    INPUT,
    GroupedCommand,
    LabelFlags,
    click_option,
    computed_metrics,
    follow_symlinks,
    option_group,
)
from genpr.cli.output import ScoreOutput
from genpr.distributed import rank_zero_only
from genpr.evaluation.compare import named_notices
from genpr.evaluation.options import EXTRACTOR, ScoreOptions
from genpr.evaluation.panel import panel_choices, score_choices
from genpr.evaluation.plan import with_pinned
from genpr.evaluation.protocols import find_protocol
from genpr.features.options import option_fields
from genpr.report.files import write_samples

if TYPE_CHECKING:
    from genpr.evaluation.evaluator import ImageValues

_FIELDS = {each.name: each for each in option_fields(ScoreOptions)}


@click.command(cls=GroupedCommand, name="score", context_settings={"allow_extra_args": True})
@click.argument("real", type=INPUT)
@click.argument("fake", type=INPUT)
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
                "a panel (several --extractor, or protocol fdr6 or mind6) needs a single --protocol, and no --labels, --per-class or --csv"
            )
        return _score_panel(real, fake, panel_choices(extractors or None, options), output)
    options = replace(options, extractor=extractors[0] if extractors else None, labels=labels.chosen())
    choices, classes = [replace(options, protocol=name) for name in protocols], labels.classes()
    if len(protocols) > 1 and (classes is not None or output.html or output.table):
        raise click.UsageError("--per-class, --html and --csv need a single --protocol")
    options = with_pinned(choices)
    output.check(computed_metrics(*choices))

    from genpr.evaluation.evaluator import score_with
    from genpr.report.score_page import evidence_report, html_report
    from genpr.report.score_tables import result_text

    # A table needs values of single images; a page is written without them if there are none.
    images: ImageValues = "required" if output.table else "if possible" if output.html else "none"
    with progress_bars(quiet=output.quiet) as progress:
        watched = [replace(each, progress=progress) for each in choices]
        scored = score_with(real, fake, watched, images=images, classes=classes)
    if not rank_zero_only():
        return 0
    results, by_class, evidence = [each.result for each in scored], scored[0].classes, scored[0].images

    def page() -> str:
        if evidence is None:
            return html_report(results[0], classes=by_class)
        names = ("real_labels", "fake_labels") if labels.per_class else ()
        how: dict[str, Any] = {name: getattr(labels, name) for name in names}
        how |= {"policy": options.decoding, "device": results[0].device}
        with progress_bars(quiet=output.quiet) as progress:
            return evidence_report(evidence, real, fake, progress=progress, **how)

    if not output.as_json:
        text = "\n\n".join(result_text(each, by_class) for each in results)
    elif len(results) == 1:
        text = (by_class or results[0]).to_json()
    else:
        text = json.dumps({"results": [result.to_dict() for result in results]}, allow_nan=False)
    notices = [item for result in results for item in result.notices]
    table = None if evidence is None else partial(write_samples, scores=evidence)
    output.show(notices, text, partial(output.write_table, table), partial(output.write_page, page))
    return output.exit_code({each.protocol: each for each in results})


def _score_panel(
    real: str, fake: str, choices: Mapping[str | None, ScoreOptions], output: ScoreOutput
) -> int:
    """Score by several extractors."""
    output.check(computed_metrics(*choices.values()))

    from genpr.report.compare_page import panel_report
    from genpr.report.compare_tables import panel_text

    with progress_bars(quiet=output.quiet) as progress:
        watched = {name: replace(each, progress=progress) for name, each in choices.items()}
        panel = score_choices(real, fake, watched)
    if not rank_zero_only():
        return 0
    text = panel.to_json() if output.as_json else panel_text(panel)
    page = partial(panel_report, panel)
    output.show(named_notices(panel.every), text, partial(output.write_page, page))
    return output.exit_code(panel.every)
