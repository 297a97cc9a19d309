"""`genpr entities EXPECTED FOUND`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.options import option_group, source_flags
from genpr.cli.thresholds import Thresholds
from genpr.conditional.options import EntityOptions
from genpr.storage import check_place

if TYPE_CHECKING:
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
@option_group(EntityOptions)
@source_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with all scores, entities and unreadable answers to FILE.",
)
@option_group(Thresholds, "thresholds")
def command(
    expected: Path,
    found: str,
    *,
    options: EntityOptions,
    as_json: bool,
    html: Path | None,
    thresholds: Thresholds,
    quiet: bool,
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
    thresholds.check(options.names)
    if html is not None:
        check_place(html)
    from genpr.images.paths import check_there

    for file in (expected, found):
        check_there(str(file))
    if options.by is None:
        _check_no_image_options()
        result = _of_answers(expected, found, options)
    else:
        _check_images(found)
        from genpr.conditional.recognition import score_entities_with

        # What a custom classifier prints must not end up in the result.
        with redirect_stdout(sys.stderr), progress_bars(quiet=quiet) as progress:
            result = score_entities_with(expected, found, replace(options, progress=progress))
    _show(result, html, as_json=as_json, quiet=quiet)
    return thresholds.exit_code([result])


def _of_answers(expected: Path, found: str, options: EntityOptions) -> Result:
    from genpr.conditional.entity_scores import score_entities

    return score_entities(
        expected,
        found,
        vocabulary=options.vocabulary,
        aliases=options.aliases,
        exclude=options.exclude,
        seed=options.seed,
    )


def _check_no_image_options() -> None:
    """An option that changes nothing misleads whoever gave it."""
    context = click.get_current_context()
    for name in context.params:
        if name in _FOR_BOTH | _GATES:
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for images, and needs --by, which says what recognizes entities in them"
            )


def _check_images(found: str) -> None:
    """Refuse answers where a classifier is to look at images."""
    if Path(found).suffix.lower() in _ANSWERS and not Path(found).is_dir():
        from genpr.images.item import printable

        raise click.UsageError(
            f"--by recognizes entities in images, and {printable(found)} is a file of answers; give images, or leave --by out"
        )


def _show(result: Result, html: Path | None, *, as_json: bool, quiet: bool) -> None:
    from genpr.report.detail_tables import entity_table

    if not quiet:
        show_notices(result.notices)
    emit(result.to_json() if as_json else entity_table(result))
    if html is None:
        return
    from genpr.report.files import write_page
    from genpr.report.score_page import html_report

    write_page(html, html_report(result))
    if not quiet:
        complain(f"wrote {html}")
