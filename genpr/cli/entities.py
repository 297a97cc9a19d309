"""`genpr entities EXPECTED FOUND`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.options import embedding_options
from genpr.cli.thresholds import check_thresholds, exit_code_of, threshold_options
from genpr.storage import check_place

if TYPE_CHECKING:
    from genpr.conditional.recognition import EntityRequest
    from genpr.evaluation.result import Result

_ANSWERS = {".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt"}
_FOR_BOTH = {
    "expected",
    "found",
    "by",
    "vocabulary",
    "aliases",
    "exclude",
    "seed",
    "as_json",
    "html",
    "quiet",
}
_GATES = {"fail_under", "fail_over"}


@click.command(name="entities")
@click.argument("expected", type=click.Path(path_type=Path))
@click.argument("found")
@click.option(
    "--by",
    metavar="NAME",
    help="What recognises entities where FOUND is images: clip, another CLIP model, fasterrcnn_resnet50_fpn_v2, "
    "retinanet_resnet50_fpn_v2, or path/file.py:factory.",
)
@click.option(
    "--vocabulary",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="All entities that could be there (.txt, .csv, .json): finds them in prompts and images, and gives precision.",
)
@click.option(
    "--aliases",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Names that mean the same entity (.csv of entity,alias,... or .json).",
)
@click.option(
    "--exclude",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Entities that must not be in any image (.txt, .csv, .json).",
)
@click.option(
    "--calibrate-on",
    metavar="IMAGES",
    help="Labelled images, best real ones, on which --by learns from which score on an entity is there.",
)
@click.option(
    "--calibrate-expected",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The entities that are in each of them, written as EXPECTED.",
)
@embedding_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with all scores, entities and unreadable answers to FILE.",
)
@threshold_options
def command(
    expected: Path,
    found: str,
    *,
    by: str | None,
    vocabulary: Path | None,
    aliases: Path | None,
    exclude: Path | None,
    calibrate_on: str | None,
    calibrate_expected: Path | None,
    seed: int,
    as_json: bool,
    html: Path | None,
    fail_under: tuple[tuple[str, float], ...],
    fail_over: tuple[tuple[str, float], ...],
    quiet: bool,
    **options: Any,  # noqa: ANN401 - passed to Embedder, whose fields they are
) -> int:
    """Which of the entities in EXPECTED were found, by answers or in images.

    EXPECTED (.csv, .jsonl, .json) has an id and the expected entities of each image, or its prompt, in which the
    vocabulary is looked for. FOUND has the answer of a language model, or a list of found entities, by the same ids.
    Answers are read however they wrap their list; those that cannot be read are counted, listed, and never a zero.

    Or FOUND is images (a folder, an archive, .npz), whose names are the ids, and --by says what looks at them.

    \b
    genpr entities expected.csv answers.jsonl
    genpr entities prompts.csv answers.jsonl --vocabulary objects.txt
    genpr entities prompts.csv images/ --vocabulary objects.txt --by clip
    genpr entities expected.csv answers.csv --json > a.json    for compare, rank
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    check_thresholds(_computed(in_images=by is not None), fail_under, fail_over)
    if html is not None:
        check_place(html)
    from genpr.images.paths import check_there

    for file in (expected, found):
        check_there(str(file))
    if by is None:
        _check_no_image_options()
        from genpr.conditional.entity_scores import score_entities

        result = score_entities(
            expected, found, vocabulary=vocabulary, aliases=aliases, exclude=exclude, seed=seed
        )
    else:
        _check_images(found)
        from genpr.conditional.recognition import EntityRequest

        request = EntityRequest(expected, vocabulary, aliases, exclude, calibrate_on, calibrate_expected)
        result = _recognised(request, found, by, quiet=quiet, seed=seed, **options)
    _show(result, html, as_json=as_json, quiet=quiet)
    return exit_code_of([result], fail_under, fail_over)


def _computed(*, in_images: bool) -> list[str]:
    """Names of the metrics that there will be, if they have a value."""
    from genpr.metrics.registry import CONDITIONAL

    names = [name for name, info in CONDITIONAL.items() if info.family == "entity"]
    return [name for name in names if not in_images or name != "entity.failure_rate"]


def _check_no_image_options() -> None:
    """An option that changes nothing misleads whoever gave it."""
    context = click.get_current_context()
    for name in context.params:
        if name in _FOR_BOTH | _GATES:
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for images, and needs --by, which says what recognises entities in them"
            )


def _check_images(found: str) -> None:
    """Refuse answers where a recogniser is to look at images."""
    if Path(found).suffix.lower() in _ANSWERS and not Path(found).is_dir():
        from genpr.images.item import printable

        raise click.UsageError(
            f"--by recognises entities in images, and {printable(found)} is a file of answers; give images, or leave --by out"
        )


def _recognised(
    request: EntityRequest,
    images: str,
    by: str,
    *,
    quiet: bool,
    device: str,
    max_memory: str | None,
    **options: Any,  # noqa: ANN401 - passed to Embedder, whose fields they are
) -> Result:
    from genpr.conditional.recognition import score_images
    from genpr.features.embedder import Embedder
    from genpr.features.options import EmbedOptions
    from genpr.memory import memory_limit

    # What a custom recogniser prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, memory_limit(max_memory), progress_bars(quiet=quiet) as progress:
        embedder = Embedder(EmbedOptions(device=device, progress=progress, **options))
        return score_images(request, images, by, embedder)


def _show(result: Result, html: Path | None, *, as_json: bool, quiet: bool) -> None:
    from genpr.report.text.entity_table import entity_table

    if not quiet:
        show_notices(result.notices)
    emit(result.to_json() if as_json else entity_table(result))
    if html is None:
        return
    from genpr.report.pages.page_file import write_page
    from genpr.report.pages.score_page import html_report

    write_page(html, html_report(result))
    if not quiet:
        complain(f"wrote {html}")
