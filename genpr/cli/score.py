"""`genpr score REAL FAKE`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import complain, emit, inner_workings, progress_bars, show_notices
from genpr.cli.options import image_options
from genpr.errors import GenprError

if TYPE_CHECKING:
    from genpr.result import Result

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
@click.option(
    "--protocol",
    "protocols",
    metavar="NAME",
    multiple=True,
    default=["genpr"],
    show_default=True,
    help="Named recipe (see `genpr list protocols`); may be repeated.",
)
@click.option(
    "--metrics", metavar="A,B", help="Only these (see `genpr list metrics`).  [default: the protocol's]"
)
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
    protocols: tuple[str, ...],
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
    _check_before_torch(real, fake, extractor, protocols, weights, offline, chosen, k, fail_under)

    from genpr.evaluate import score_protocols
    from genpr.report.terminal import score_table

    # What a custom extractor prints must not end up in the result.
    stderr = redirect_stdout(sys.stderr)
    with stderr, inner_workings(shown=verbose), progress_bars(quiet=quiet) as progress:
        results = score_protocols(
            real,
            fake,
            extractor=extractor,
            protocols=protocols,
            weights=weights,
            offline=offline,
            metrics=chosen,
            k=k,
            progress=progress,
            **options,
        )
    found = list(results.values())
    if not quiet:
        show_notices(tuple(dict.fromkeys(item for result in found for item in result.notices)))
    if not as_json:
        emit("\n\n".join(score_table(result) for result in found))
    elif len(found) == 1:
        emit(found[0].to_json())
    else:
        emit(json.dumps({"results": [result.to_dict() for result in found]}, allow_nan=False))
    return _report_missed(found, fail_under)


def _report_missed(results: Sequence[Result], thresholds: Sequence[tuple[str, float]]) -> int:
    """Say which thresholds are missed; the exit code."""
    missed = [
        (result, metric, limit)
        for result in results
        for metric, limit in thresholds
        if metric in result.metrics and result[metric] < limit
    ]
    for result, metric, limit in missed:
        under = f" under {result.protocol}" if len(results) > 1 else ""
        complain(f"missed: {metric} is {result[metric]:.4f}{under}, below {limit:g}")
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
    protocols: tuple[str, ...],
    weights: str | None,
    offline: bool,
    metrics: list[str] | None,
    k: int | None,
    thresholds: tuple[tuple[str, float], ...],
) -> None:
    """What can be wrong at once is said at once: importing torch alone takes seconds."""
    from genpr.features.registry import canonical_name, group_by_network
    from genpr.metrics.catalogue import METRICS
    from genpr.protocols import find_protocol

    known: list[str] = []
    spaces: list[str] = []
    for protocol in protocols:
        recipe = find_protocol(protocol)
        names = recipe.choose_metrics(metrics)
        recipe.choose_ks(names, k)
        own = recipe.extractor if extractor is None else canonical_name(extractor)
        recipe.check_extractor(own)
        known += names
        spaces += [METRICS[name].space or own for name in names]
    for metric, _ in thresholds:
        if metric not in known:
            computed = ", ".join(dict.fromkeys(known))
            raise click.UsageError(f"--fail-under {metric}=...: not among the computed metrics {computed}")
    images = [side for side in (real, fake) if _may_hold_images(Path(side))]
    if images:
        _check_weights(real, fake, images, [group[0] for group in group_by_network(spaces)], weights, offline)


def _check_weights(
    real: str, fake: str, images: list[str], extractors: list[str], weights: str | None, offline: bool
) -> None:
    from genpr.errors import WeightsError
    from genpr.features.registry import require_weights, weights_of
    from genpr.images.source import open_source

    try:
        for name in extractors:
            require_weights(name, weights=weights_of(name, weights), offline=offline)
    except WeightsError:
        for side in images:
            open_source(side)  # a missing or empty folder is the likelier mistake, and is named first
        if len(images) == 1:
            from genpr.sides import check_same_kind, open_side

            check_same_kind(open_side(real, "real"), open_side(fake, "fake"))
        raise
