"""`genpr score REAL FAKE`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.class_options import ClassOptions, class_options
from genpr.cli.console import emit, inner_workings, progress_bars, show_notices
from genpr.cli.label_options import labels_taken, recogniser_options
from genpr.cli.options import names_in, recipe_options
from genpr.cli.page_options import check_page_options, page_options, write_score_page
from genpr.cli.score_run import ScoreRun, score_run
from genpr.cli.table_options import check_table_options, table_options, write_table
from genpr.cli.thresholds import check_thresholds, exit_code_of, threshold_options
from genpr.errors import GenprError
from genpr.images.policy import DecodePolicy

if TYPE_CHECKING:
    from genpr.evaluation.result import Result


@click.command(name="score")
@click.argument("real")
@click.argument("fake")
@click.option(
    "--protocol",
    "protocols",
    metavar="NAME",
    multiple=True,
    default=["genpr"],
    show_default=True,
    help="Named recipe (see `genpr list protocols`); may be repeated.",
)
@recipe_options
@click.option(
    "--held-out",
    metavar="SOURCE",
    help="Reals that the generator was not trained on, where REAL are those it was; adds c_t, a test for copying.",
)
@click.option(
    "--equal-sizes",
    is_flag=True,
    help="Where the sides differ in size, score coverage and its kin in blocks of the larger as large as the smaller.",
)
@class_options
@recogniser_options
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@page_options
@click.option(
    "-v", "--verbose", is_flag=True, help="Say how the neighbours are searched, and how uneven they are."
)
@threshold_options
def command(
    real: str,
    fake: str,
    *,
    extractor: str | None,
    protocols: tuple[str, ...],
    weights: str | None,
    offline: bool,
    metrics: str | None,
    k: int | None,
    table: Path | None,
    as_json: bool,
    html: Path | None,
    earlier: tuple[Path, ...],
    fail_under: tuple[tuple[str, float], ...],
    fail_over: tuple[tuple[str, float], ...],
    quiet: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.score, which checks them
) -> int:
    """Score the images in FAKE against those in REAL.

    REAL and FAKE are folders of images (searched to any depth), .zip or .tar archives of images, .npz files
    with uint8 images in arr_0, .parquet files or folders of them, lists of files (.txt, or - for standard
    input), or feature files (.npy, or .safetensors as `genpr features` writes them). A pattern in quotes, such
    as 'shards/*.tar' or 'real_{1..8}.safetensors', is one source.
    """
    chosen, labels = names_in(metrics), labels_taken(options, shared=True)
    by_class = ClassOptions.taken_from(options, protocols, has_labels=labels is not None)
    options |= {"extractor": extractor, "weights": weights, "offline": offline, "metrics": chosen, "k": k}
    options["labels"] = labels
    # What can be wrong at once is said at once: importing torch alone takes seconds.
    spaces = _spaces(
        protocols,
        extractor,
        chosen,
        k,
        held_out=options["held_out"] is not None,
        equal_sizes=options["equal_sizes"],
    )
    computed = [*spaces, *(() if labels is None else labels.names)]
    check_thresholds(computed, fail_under, fail_over)
    check_table_options(table, protocols)
    others = check_page_options(html, earlier, protocols)
    from genpr.images.paths import check_there

    for source in (real, fake):
        check_there(source)
    needed = [space for each in spaces.values() for space in each]
    _check_weights(real, fake, needed, weights, offline=offline)

    from genpr.distributed import rank_zero_only

    # What a custom extractor prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, inner_workings(shown=verbose), progress_bars(quiet=quiet) as progress:
        options["progress"] = progress
        by_image, must_tell = bool(html or table), table is not None
        run = score_run(real, fake, protocols, by_class, by_image=by_image, must_tell=must_tell, **options)
    if not rank_zero_only():
        return 0
    found = run.results
    if not quiet:
        show_notices(tuple(dict.fromkeys(item for result in found for item in result.notices)))
    if not as_json:
        emit(_text(run, details=verbose))
    elif len(found) == 1:
        emit((run.classes or found[0]).to_json())
    else:
        emit(json.dumps({"results": [result.to_dict() for result in found]}, allow_nan=False))
    write_table(table, run.evidence, quiet=quiet)
    policy = DecodePolicy(**{name: options[name] for name in ("max_pixels", "alpha", "exif")})
    write_score_page(html, run, (real, fake), others, policy=policy, quiet=quiet)
    return exit_code_of(found, fail_under, fail_over)


def _text(run: ScoreRun, *, details: bool) -> str:
    """Every table of every protocol."""
    from genpr.report.text.class_table import class_table

    tables = [table for result in run.results for table in _tables(result, details=details)]
    return "\n\n".join([*tables, *([] if run.classes is None else [class_table(run.classes)])])


def _tables(result: Result, *, details: bool) -> list[str]:
    """The score, and the classes where labels were compared."""
    from genpr.report.text.label_table import label_table
    from genpr.report.text.terminal import score_table

    by_label = [] if result.labels is None else [label_table(result.labels)]
    return [score_table(result, details=details), *by_label]


def _may_hold_images(source: str) -> bool:
    """By suffix, and for array files by their header: images are 4-D. What is missing or damaged is said later."""
    from genpr.images.paths import expand

    try:
        paths = expand(source)
    except GenprError:
        paths = None
    return any(map(_may_be_images, paths or [Path(source)]))


def _may_be_images(path: Path) -> bool:
    from genpr.images.arrays import peek_array

    suffix = path.suffix.lower()
    if suffix not in {".npy", ".npz"}:
        return suffix != ".safetensors"
    try:
        header = peek_array(path) if path.is_file() else None
    except GenprError:
        return False
    return header is not None and len(header[0]) == 4


def _spaces(
    protocols: tuple[str, ...],
    extractor: str | None,
    metrics: list[str] | None,
    k: int | None,
    *,
    held_out: bool,
    equal_sizes: bool,
) -> dict[str, list[str]]:
    """Every metric that will be computed, and the extractors whose features it needs; what is impossible is refused."""
    from genpr.evaluation.protocols import find_protocol
    from genpr.features.lookup import canonical_name, with_variants_of
    from genpr.metrics.registry import METRICS

    spaces: dict[str, list[str]] = {}
    for protocol in protocols:
        recipe = find_protocol(protocol)
        names = recipe.with_held_out(recipe.choose_metrics(metrics), held_out=held_out)
        recipe.choose_ks(names, k)
        if equal_sizes:
            recipe.check_sizes_free(names)
        own = recipe.extractor if extractor is None else canonical_name(extractor)
        recipe.check_extractor(own)
        for name in names:
            spaces.setdefault(name, []).append(
                with_variants_of(space, own) if (space := METRICS[name].space) else own
            )
    return spaces


def _check_weights(real: str, fake: str, spaces: list[str], weights: str | None, *, offline: bool) -> None:
    """Refuse missing weights, if a side holds images."""
    from genpr.distributed import current_communicator
    from genpr.errors import WeightsError
    from genpr.features.lookup import group_by_network
    from genpr.features.registry import require_weights, weights_of
    from genpr.images.source import open_source

    images = [side for side in (real, fake) if _may_hold_images(side)]
    try:
        for name, *_ in group_by_network(spaces) if images else ():
            require_weights(name, weights=weights_of(name, weights), offline=offline)
    except WeightsError:
        for side in images:  # a missing or empty folder is the likelier mistake, and is named first
            open_source(side, communicator=current_communicator())
        if len(images) == 1:
            from genpr.features.inputs import check_same_kind, open_side

            check_same_kind(open_side(real, "real"), open_side(fake, "fake"))
        raise
