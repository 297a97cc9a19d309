"""`--html FILE` and what goes with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.console import complain, progress_bars
from genpr.cli.options import Command, with_options
from genpr.errors import DataError, UsageError
from genpr.features.options import StageProgress, option

if TYPE_CHECKING:
    from genpr.cli.score_run import ScoreRun
    from genpr.evaluation.result import Result
    from genpr.images.datasets import CountedBatches
    from genpr.images.policy import DecodePolicy


@dataclass(frozen=True, kw_only=True)
class PageFlags:
    """The page of one score."""

    html: Path | None = option(
        None,
        "Also write the score as one page for a browser, which needs no other file.",
        type=click.Path(path_type=Path),
        metavar="FILE",
    )
    earlier: Sequence[Path] = option(
        (),
        "A result of `genpr score --json` to show in that page's plane; may be repeated.",
        type=click.Path(path_type=Path),
        metavar="FILE",
        multiple=True,
    )

    def check(self, protocols: Sequence[str]) -> dict[str, Result]:
        """Refuse what cannot be written, and read the earlier results, before anything is computed.

        Returns:
            Earlier results by name.

        Raises:
            UsageError: The page has no place, there are several results for it, or an earlier file does not exist.
            DataError: An earlier file holds no result.
        """
        if self.html is None:
            if self.earlier:
                raise click.UsageError("--earlier puts results on the page of --html FILE, which is missing")
            return {}
        if len(protocols) > 1:
            raise click.UsageError("--html shows one score: give one --protocol, or run once for each")
        from genpr.storage import check_place

        check_place(self.html)
        from genpr.evaluation.compare import load_all

        return load_all(self.earlier) if self.earlier else {}


def write_score_page(
    html: Path | None,
    run: ScoreRun,
    sources: tuple[object, object],
    earlier: dict[str, Result],
    *,
    policy: DecodePolicy,
    quiet: bool,
) -> None:
    """Write the page of the one result, and say so.

    Args:
        html: Where; None for nowhere.
        run: What was scored.
        sources: The reals and the fakes, whose pictures are shown.
        earlier: Other results.
        policy: How they were decoded for the score.
        quiet: Say nothing.

    Raises:
        ResourceError: It cannot be written.
    """
    if html is None:
        return
    from genpr.report.files import write_page

    with progress_bars(quiet=quiet) as progress:
        write_page(html, _score_page(run, sources, earlier, policy, progress))
    if not quiet:
        complain(f"wrote {html}")


def _score_page(
    run: ScoreRun,
    sources: tuple[object, object],
    earlier: dict[str, Result],
    policy: DecodePolicy,
    progress: StageProgress | None,
) -> str:
    from genpr.report.score_page import class_figures, evidence_report

    if run.evidence is None:
        from genpr.report.score_page import html_report

        return html_report(run.results[0], figures=class_figures(run.classes), earlier=earlier)
    page = partial(
        evidence_report,
        run.evidence,
        earlier=earlier,
        policy=policy,
        device=run.results[0].device,
        progress=progress,
    )
    try:
        return page(*sources, real_labels=run.labels[0], fake_labels=run.labels[1])
    except (DataError, UsageError) as error:
        # Moved or damaged since they were scored: that score must not go without a page.
        complain(f"warning: the page has no pictures: {error}")
        return page()


def html_option(command: Command) -> Command:
    """`--html` of commands with several results."""
    return with_options(command, (_SEVERAL_HTML,))


def check_several_page(html: Path | None, count: int, what: str) -> None:
    """Refuse what cannot be written, and what is no comparison, before anything is computed.

    Raises:
        UsageError: The page has no place, or there is one result for it.
    """
    if html is None:
        return
    if count < 2:
        raise click.UsageError(f"--html shows several {what} beside each other, and there is one")
    from genpr.storage import check_place

    check_place(html)


def write_several_page(
    html: Path | None,
    results: Mapping[str, Result],
    drawn: Mapping[str, CountedBatches],
    *,
    by: str = "f1",
    axis: str | None = None,
    settings: Sequence[float] | None = None,
    quiet: bool,
) -> None:
    """Write the page of some results, and say so; with what was drawn for each of them, if genpr drew it.

    Raises:
        ResourceError: It cannot be written.
    """
    if html is None:
        return
    from genpr.evaluation.compare import compare
    from genpr.report.compare_page import compare_report
    from genpr.report.files import write_page
    from genpr.report.side_by_side import side_by_side

    if len(results) < 2:
        complain(f"no page {html}: there is one result, and nothing to compare it with")
        return
    comparison = compare(results, force=True)
    with redirect_stdout(sys.stderr):  # of what draws
        galleries = [side_by_side({name: drawn[name] for name in results})] if drawn else []
    write_page(html, compare_report(comparison, galleries, by=by, axis=axis, settings=settings))
    if not quiet:
        complain(f"wrote {html}")


_SEVERAL_HTML = click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the comparison as one page for a browser, which needs no other file.",
)
