"""`genpr score REAL FAKE`."""

from __future__ import annotations

import math
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from genpr.cli.console import complain, emit, inner_workings, progress_bars, show_notices
from genpr.cli.options import image_options
from genpr.errors import GenprError

_THRESHOLD_MISSED = 5


def threshold(text: str) -> tuple[str, float]:
    """`metric=number`."""
    metric, separator, number = text.partition("=")
    try:
        least = float(number)
    except ValueError:
        least = math.nan
    if math.isnan(least):  # no value is ever below NaN: the gate would always be open
        needed = "a number" if separator else "metric=x, such as precision=0.7"
        raise click.BadParameter(f"{text!r}: needed {needed}")
    return metric, least


@click.command(name="score")
@click.argument("real")
@click.argument("fake")
@click.option("--protocol", default="genpr", show_default=True, help="Named recipe of extractor, k and ties.")
@click.option("--metrics", metavar="A,B", help="Only these, of precision, recall, density, coverage.")
@click.option("--k", type=int, help="Neighbours for every metric.  [default: 3, density and coverage 5]")
@click.option("--ties", type=click.Choice(["closed", "strict"]), help="Balls with or without their surface.")
@image_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option("-v", "--verbose", is_flag=True, help="Say how the neighbours are searched.")
@click.option(
    "--fail-under",
    type=threshold,
    metavar="METRIC=X",
    multiple=True,
    help="Exit 5 if the metric is below x; may be repeated.",
)
def command(
    real: str,
    fake: str,
    *,
    extractor: str | None,
    protocol: str,
    weights: str | None,
    offline: bool,
    metrics: str | None,
    k: int | None,
    as_json: bool,
    fail_under: tuple[tuple[str, float], ...],
    quiet: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.score, which checks them
) -> int:
    """Score the images in FAKE against those in REAL.

    REAL and FAKE are folders of images (searched to any depth), .zip or .tar archives of images, .npz files
    with uint8 images in arr_0, or feature files (.npy, or .safetensors as `genpr features` writes them).
    """
    chosen = None if metrics is None else [name.strip() for name in metrics.split(",")]
    _check_before_torch(real, fake, extractor, protocol, weights, offline, chosen, k, fail_under)

    from genpr.evaluate import score
    from genpr.report.terminal import score_table

    # What a custom extractor prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, inner_workings(shown=verbose), progress_bars(quiet=quiet) as progress:
        result = score(
            real,
            fake,
            extractor=extractor,
            protocol=protocol,
            weights=weights,
            offline=offline,
            metrics=chosen,
            k=k,
            progress=progress,
            **options,
        )
    if not quiet:
        show_notices(result.notices)
    emit(result.to_json() if as_json else score_table(result))
    missed = [(metric, least) for metric, least in fail_under if result[metric] < least]
    for metric, least in missed:
        complain(f"missed: {metric} is {result[metric]:.4f}, below {least:g}")
    return _THRESHOLD_MISSED if missed else 0


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


def _check_before_torch(
    real: str,
    fake: str,
    extractor: str | None,
    protocol: str,
    weights: str | None,
    offline: bool,
    metrics: list[str] | None,
    k: int | None,
    thresholds: tuple[tuple[str, float], ...],
) -> None:
    """What can be wrong at once is said at once: importing torch alone takes seconds."""
    from genpr.errors import WeightsError
    from genpr.features.registry import require_weights
    from genpr.images.source import open_source
    from genpr.protocols import find_protocol

    recipe = find_protocol(protocol)
    known = recipe.choose_ks(metrics, k)
    for metric, _ in thresholds:
        if metric not in known:
            raise click.UsageError(
                f"--fail-under {metric}=...: not among the computed metrics {', '.join(known)}"
            )
    images = [side for side in (real, fake) if _may_hold_images(Path(side))]
    try:
        if images:
            require_weights(
                recipe.extractor if extractor is None else extractor, weights=weights, offline=offline
            )
    except WeightsError:
        for side in images:
            open_source(side)  # a missing or empty folder is the likelier mistake, and is named first
        if len(images) == 1:
            from genpr.sides import check_same_kind, open_side

            check_same_kind(open_side(real, "real"), open_side(fake, "fake"))
        raise
