"""`genpr align IMAGES --prompts FILE`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import complain, emit, progress_bars, show_notices
from genpr.cli.options import image_options
from genpr.cli.thresholds import check_thresholds, exit_code_of, threshold_options
from genpr.errors import DataError, UsageError, WeightsError

if TYPE_CHECKING:
    from genpr.conditional.align import Aligned
    from genpr.images.policy import DecodePolicy


@click.command(name="align")
@click.argument("images")
@click.option(
    "--prompts",
    required=True,
    metavar="FILE",
    help="What each image was asked for: .csv, .tsv, .jsonl, .json, .txt, a folder of .txt files, or the word beside.",
)
@click.option(
    "--distractors",
    default=99,
    show_default=True,
    type=click.IntRange(min=1),
    help="Prompts of other images that each image ranks beside its own.",
)
@click.option(
    "--text-to-image/--no-text-to-image",
    default=True,
    show_default=True,
    help="Let each prompt rank images, too.",
)
@click.option(
    "--prefix",
    default="",
    metavar="TEXT",
    help='Put in front of every prompt, such as "A photo depicts " for the CLIPScore of its authors.',
)
@click.option(
    "--copies-of",
    metavar="TRAIN",
    help="Training images: adds the share of images that are too similar to one of them.",
)
@click.option(
    "--threshold",
    default=0.5,
    show_default=True,
    type=click.FloatRange(-1, 1),
    help="Cosine above which an image counts as a copy.",
)
@click.option(
    "--pairs",
    metavar="FILE",
    help="Known copies, a .csv of image,training image: adds how well they are told from all other pairs.",
)
@image_options
@click.option(
    "--csv",
    "table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write rank, score and the prompt ranked first of each image to FILE (.csv).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write one page for a browser, with the images that fit another prompt better.",
)
@threshold_options
def command(
    images: str,
    prompts: str,
    *,
    extractor: str | None,
    distractors: int,
    text_to_image: bool,
    prefix: str,
    copies_of: str | None,
    threshold: float,
    pairs: str | None,
    device: str,
    weights: str | None,
    offline: bool,
    max_memory: str | None,
    table: Path | None,
    as_json: bool,
    html: Path | None,
    fail_under: tuple[tuple[str, float], ...],
    fail_over: tuple[tuple[str, float], ...],
    quiet: bool,
    **options: Any,  # noqa: ANN401 - passed to Embedder, whose fields they are
) -> int:
    """Judge IMAGES by the prompts that they were made from.

    A CLIP model (--extractor clip-vit-b-32 by default) embeds images and prompts. Each image ranks its own prompt among
    those of other images, and each prompt its image; R-precision is the share that rank their own first.

    IMAGES is a folder, an archive, an .npz file, or features of that extractor.
    """
    from genpr.conditional.prompts import open_prompts
    from genpr.features.text import check_has_text

    extractor = extractor or "clip-vit-b-32"
    check_has_text(extractor)
    if pairs is not None and copies_of is None:
        raise click.UsageError("--pairs names copies of the training images that --copies-of must give")
    computed = _computed(text_to_image=text_to_image, copies=copies_of is not None, pairs=pairs is not None)
    check_thresholds(computed, fail_under, fail_over)
    _check_places(html, table)
    open_prompts(prompts, images)  # what is wrong with them is told before anything is downloaded
    _check_weights(images, extractor, weights, offline)

    from genpr.conditional.align import AlignmentConfig, aligned
    from genpr.conditional.copies import copy_config
    from genpr.features.embedder import Embedder
    from genpr.features.options import EmbedOptions
    from genpr.memory import memory_limit
    from genpr.report.text.alignment_table import failures_list
    from genpr.report.text.terminal import score_table

    config = AlignmentConfig(
        distractors=distractors,
        text_to_image=text_to_image,
        prefix=prefix,
        seed=options["seed"],
        copies=copy_config(copies_of, threshold, pairs),
    )
    # What a custom encoder prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, memory_limit(max_memory), progress_bars(quiet=quiet) as progress:
        embedder = Embedder(
            EmbedOptions(device=device, weights=weights, offline=offline, progress=progress, **options)
        )
        found = aligned(images, prompts, extractor, config, embedder)
    result = found.result
    if not quiet:
        show_notices(result.notices)
    if as_json:
        emit(result.to_json())
    else:
        assert result.alignment is not None
        tables = [score_table(result), failures_list(result.alignment)]
        emit("\n\n".join(each for each in tables if each))
    _write(found, (images, copies_of), html, table, policy=embedder.decoding, quiet=quiet)
    return exit_code_of([result], fail_under, fail_over)


def _computed(*, text_to_image: bool, copies: bool, pairs: bool) -> list[str]:
    """Names of the metrics that there will be."""
    from genpr.metrics.registry import CONDITIONAL

    is_left_out = {"retrieval.copy_rate": not copies, "retrieval.copy_ap": not pairs}
    names = [name for name in CONDITIONAL if name.startswith(("retrieval.", "alignment."))]
    return [
        name
        for name in names
        if not is_left_out.get(name, name.startswith("retrieval.t2i_") and not text_to_image)
    ]


def _check_places(html: Path | None, table: Path | None) -> None:
    """Refuse what cannot be written before minutes of work."""
    from genpr.storage import check_place

    if html is not None:
        check_place(html)
    if table is not None:
        from genpr.report.text.sample_table import check_table

        check_table(table)


def _check_weights(images: str, extractor: str, weights: str | None, offline: bool) -> None:
    """Refuse missing weights before torch is imported; a missing or empty folder is the likelier mistake, and named first."""
    from genpr.features.registry import require_weights, weights_of

    try:
        require_weights(extractor, weights=weights_of(extractor, weights), offline=offline)
    except WeightsError:
        if Path(images).suffix.lower() not in {".safetensors", ".npy", ".npz"}:
            from genpr.images.source import open_source

            open_source(images)
        raise


def _write(
    found: Aligned,
    sources: tuple[str, str | None],
    html: Path | None,
    table: Path | None,
    *,
    policy: DecodePolicy,
    quiet: bool,
) -> None:
    """The page and the table, and say so."""
    if table is not None:
        from genpr.report.text.alignment_table import write_ranks

        rows = write_ranks(table, found.ranks, found.copies)
        if not quiet:
            complain(f"wrote {rows:,} rows to {table}")
    if html is None:
        return
    from genpr.report.pages.align_page import align_report
    from genpr.report.pages.page_file import write_page

    try:
        page = align_report(found, *sources, policy=policy)
    except (DataError, UsageError) as error:
        # Moved or damaged since they were scored: that score must not go without a page.
        complain(f"warning: the page has no pictures: {error}")
        page = align_report(found)
    write_page(html, page)
    if not quiet:
        complain(f"wrote {html}")
