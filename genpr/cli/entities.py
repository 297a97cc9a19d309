"""`genpr entities EXPECTED FOUND`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import complain, emit, show_notices
from genpr.cli.options import threshold
from genpr.storage import check_place

if TYPE_CHECKING:
    from genpr.result import Result

_THRESHOLD_MISSED = 5


@click.command(name="entities")
@click.argument("expected", type=click.Path(path_type=Path))
@click.argument("found", type=click.Path(path_type=Path))
@click.option(
    "--vocabulary",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="All entities that could be there (.txt, .csv, .json): finds them in prompts, and gives precision.",
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
@click.option("--seed", default=0, show_default=True, help="Chooses the halves of intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with all scores, entities and unreadable answers to FILE.",
)
@click.option(
    "--fail-under",
    type=threshold,
    metavar="METRIC=X",
    multiple=True,
    help="Exit 5 if the metric, such as entity.recall, is below x or has no value; may be repeated.",
)
@click.option(
    "--fail-over",
    type=threshold,
    metavar="METRIC=X",
    multiple=True,
    help="Exit 5 if entity.failure_rate is above x.",
)
@click.option("-q", "--quiet", is_flag=True, help="No notes.")
def command(
    expected: Path,
    found: Path,
    *,
    vocabulary: Path | None,
    aliases: Path | None,
    exclude: Path | None,
    seed: int,
    as_json: bool,
    html: Path | None,
    fail_under: tuple[tuple[str, float], ...],
    fail_over: tuple[tuple[str, float], ...],
    quiet: bool,
) -> int:
    """Which of the entities in EXPECTED were found, by the answers in FOUND.

    EXPECTED (.csv, .jsonl, .json) has an id and the expected entities of each image, or its prompt, in which the
    vocabulary is looked for. FOUND has the answer of a language model, or a list of found entities, by the same ids.
    Answers are read however they wrap their list; those that cannot be read are counted, listed, and never a zero.

    \b
    genpr entities expected.csv answers.jsonl
    genpr entities prompts.csv answers.jsonl --vocabulary objects.txt
    genpr entities expected.csv answers.csv --json > a.json    for compare, rank
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    _check_thresholds(fail_under, fail_over)
    if html is not None:
        check_place(html)
    from genpr.entity_scoring import score_entities
    from genpr.report.text.entity_table import entity_table

    result = score_entities(
        expected, found, vocabulary=vocabulary, aliases=aliases, exclude=exclude, seed=seed
    )
    if not quiet:
        show_notices(result.notices)
    emit(result.to_json() if as_json else entity_table(result))
    if html is not None:
        _write_page(html, result, quiet=quiet)
    missed = [*_missed(result, fail_under, "below"), *_missed(result, fail_over, "above")]
    for line in missed:
        complain(line)
    return _THRESHOLD_MISSED if missed else 0


def _write_page(html: Path, result: Result, *, quiet: bool) -> None:
    from genpr.report.pages.page_file import write_page
    from genpr.report.pages.score_page import html_report

    write_page(html, html_report(result))
    if not quiet:
        complain(f"wrote {html}")


def _check_thresholds(
    fail_under: Sequence[tuple[str, float]], fail_over: Sequence[tuple[str, float]]
) -> None:
    """A gate on what is not computed, or on the wrong side, would always be open."""
    from genpr.metrics.catalogue import ASKED

    names = [name for name, info in ASKED.items() if info.family == "entity"]
    for option, better, thresholds in (
        ("--fail-under", "higher", fail_under),
        ("--fail-over", "lower", fail_over),
    ):
        for metric, _ in thresholds:
            if metric not in names:
                raise click.UsageError(f"{option} {metric}=...: not among {', '.join(names)}")
            if ASKED[metric].better != better:
                other = "--fail-over" if better == "higher" else "--fail-under"
                raise click.UsageError(
                    f"{option} {metric}=...: of {metric}, {ASKED[metric].better} is better; use {other}"
                )


def _missed(result: Result, thresholds: Sequence[tuple[str, float]], side: str) -> list[str]:
    """One line per threshold on whose wrong `side` a value is, or that has none to hold."""
    lines = []
    for metric, limit in thresholds:
        if metric not in result.metrics:
            lines.append(f"missed: {metric} has no value with these answers")
            continue
        value = result[metric]
        if value < limit if side == "below" else value > limit:
            lines.append(f"missed: {metric} is {value:.4f}, {side} {limit:g}")
    return lines
