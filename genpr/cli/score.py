"""`genpr score REAL FAKE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.class_options import ClassOptions, class_options
from genpr.cli.console import complain, emit, inner_workings, progress_bars, show_notices
from genpr.cli.options import follow_option, followed, names_in, recipe_options, threshold
from genpr.cli.page_options import check_page_options, page_options, write_score_page
from genpr.cli.score_run import score_run
from genpr.cli.table_options import check_table_options, table_options, write_table
from genpr.errors import GenprError
from genpr.images.policy import DecodePolicy

if TYPE_CHECKING:
    from genpr.result import Result

_THRESHOLD_MISSED = 5


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
@follow_option
@class_options
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@page_options
@click.option(
    "-v", "--verbose", is_flag=True, help="Say how the neighbours are searched, and how uneven they are."
)
@click.option(
    "--fail-under",
    type=threshold,
    metavar="METRIC=X",
    multiple=True,
    help="Exit 5 if the metric is below x; may be repeated.",
)
@click.option(
    "--fail-over",
    type=threshold,
    metavar="METRIC=X",
    multiple=True,
    help="Exit 5 if the metric is above x, for those of which less is better, such as fid.",
)
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
    follow_symlinks: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.score, which checks them
) -> int:
    """Score the images in FAKE against those in REAL.

    REAL and FAKE are folders of images (searched to any depth), .zip or .tar archives of images, .npz files
    with uint8 images in arr_0, or feature files (.npy, or .safetensors as `genpr features` writes them).
    """
    chosen, by_class = names_in(metrics), ClassOptions.taken_from(options, protocols)
    options |= {"extractor": extractor, "weights": weights, "offline": offline, "metrics": chosen, "k": k}
    # What can be wrong at once is said at once: importing torch alone takes seconds.
    spaces = _spaces(
        protocols,
        extractor,
        chosen,
        k,
        held_out=options["held_out"] is not None,
        equal_sizes=options["equal_sizes"],
    )
    if follow_symlinks and by_class is not None:
        raise click.UsageError(
            "--per-class finds labels by path and follows no links; leave --follow-symlinks out"
        )
    _check_thresholds(list(spaces), fail_under, fail_over)
    check_table_options(table, protocols)
    others = check_page_options(html, earlier, protocols)
    needed = [space for each in spaces.values() for space in each]
    _check_weights(real, fake, needed, weights, offline=offline, follow_symlinks=follow_symlinks)

    from genpr.report.text.class_table import class_table
    from genpr.report.text.terminal import score_table

    # What a custom extractor prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, inner_workings(shown=verbose), progress_bars(quiet=quiet) as progress:
        options["progress"] = progress
        by_image, must_tell = bool(html or table), table is not None
        reals, fakes = (followed(side, follow_symlinks=follow_symlinks) for side in (real, fake))
        if options["held_out"] is not None:
            options["held_out"] = followed(options["held_out"], follow_symlinks=follow_symlinks)
        run = score_run(reals, fakes, protocols, by_class, by_image=by_image, must_tell=must_tell, **options)
    found = run.results
    if not quiet:
        show_notices(tuple(dict.fromkeys(item for result in found for item in result.notices)))
    if not as_json:
        tables = [score_table(result, details=verbose) for result in found]
        emit("\n\n".join([*tables, *([] if run.classes is None else [class_table(run.classes)])]))
    elif len(found) == 1:
        emit((run.classes or found[0]).to_json())
    else:
        emit(json.dumps({"results": [result.to_dict() for result in found]}, allow_nan=False))
    write_table(table, run.evidence, quiet=quiet)
    policy = DecodePolicy(**{name: options[name] for name in ("max_pixels", "alpha", "exif")})
    write_score_page(html, run, (reals, fakes), others, policy=policy, quiet=quiet)
    missed = [*_missed(found, fail_under, "below"), *_missed(found, fail_over, "above")]
    for line in missed:
        complain(line)
    return _THRESHOLD_MISSED if missed else 0


def _missed(results: Sequence[Result], thresholds: Sequence[tuple[str, float]], side: str) -> list[str]:
    """One line per threshold on whose wrong `side` a value is."""
    lines = []
    for result in results:
        for metric, limit in thresholds:
            if metric in result.undefined:
                lines.append(f"missed: {metric} has no value with these images")
            value = result[metric] if metric in result.metrics else limit
            if value < limit if side == "below" else value > limit:
                under = f" under {result.protocol}" if len(results) > 1 else ""
                lines.append(f"missed: {metric} is {value:.4f}{under}, {side} {limit:g}")
    return lines


def _check_thresholds(
    computed: Sequence[str],
    fail_under: Sequence[tuple[str, float]],
    fail_over: Sequence[tuple[str, float]],
) -> None:
    """A gate on what is not computed, or on the wrong side, would always be open."""
    from genpr.metrics.catalogue import METRICS

    for option, better, thresholds in (
        ("--fail-under", "higher", fail_under),
        ("--fail-over", "lower", fail_over),
    ):
        for metric, _ in thresholds:
            if metric not in computed:
                names = ", ".join(computed)
                raise click.UsageError(f"{option} {metric}=...: not among the computed metrics {names}")
            # What is best in the middle has two wrong sides.
            if METRICS[metric].better not in (better, "at null"):
                other = "--fail-over" if better == "higher" else "--fail-under"
                raise click.UsageError(
                    f"{option} {metric}=...: of {metric}, {METRICS[metric].better} is better; use {other}"
                )


def _may_hold_images(path: Path) -> bool:
    """By suffix, and for array files by their header: images are 4-D. What is missing or damaged is said later."""
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
    from genpr.features.lookup import canonical_name, with_variants_of
    from genpr.metrics.catalogue import METRICS
    from genpr.protocols import find_protocol

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


def _check_weights(
    real: str, fake: str, spaces: list[str], weights: str | None, *, offline: bool, follow_symlinks: bool
) -> None:
    """Refuse missing weights, if a side holds images."""
    from genpr.errors import WeightsError
    from genpr.features.lookup import group_by_network
    from genpr.features.registry import require_weights, weights_of
    from genpr.images.source import open_source

    images = [side for side in (real, fake) if _may_hold_images(Path(side))]
    try:
        for name, *_ in group_by_network(spaces) if images else ():
            require_weights(name, weights=weights_of(name, weights), offline=offline)
    except WeightsError:
        for side in images:  # a missing or empty folder is the likelier mistake, and is named first
            open_source(side, follow_symlinks=follow_symlinks)
        if len(images) == 1:
            from genpr.sides import check_same_kind, open_side

            check_same_kind(open_side(real, "real"), open_side(fake, "fake"))
        raise
