"""`genpr features SOURCE OUT`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from genpr.cli.console import emit, printable, progress_bars, show_notices
from genpr.cli.options import follow_option, followed, image_options


@click.command(name="features")
@click.argument("source")
@click.argument("out", type=click.Path(path_type=Path))
@image_options
@follow_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a sentence.")
def command(
    source: str,
    out: Path,
    *,
    extractor: str | None,
    device: str,
    as_json: bool,
    follow_symlinks: bool,
    quiet: bool,
    max_memory: str | None,
    **options: Any,  # noqa: ANN401 - passed to Embedder, whose fields they are
) -> None:
    """Embed the images in SOURCE once and write their features to OUT (.safetensors).

    The file carries extractor, weights hash and resize rule, and `genpr score` refuses to mix features of
    different extractors.
    """
    from genpr.errors import UsageError
    from genpr.features.feature_set import FeatureSet, check_output, save_features
    from genpr.features.lookup import canonical_name
    from genpr.memory import limited_memory
    from genpr.protocols import find_protocol
    from genpr.runtime import resolve_device
    from genpr.side_features import Embedder, SideFeatures
    from genpr.sides import open_side

    check_output(out)
    images = open_side(followed(source, follow_symlinks=follow_symlinks), "source")
    if isinstance(images, FeatureSet):
        raise UsageError(f"{source} already holds features", code="already-features", path=source)
    stderr = redirect_stdout(sys.stderr)
    with stderr, limited_memory(max_memory), progress_bars(quiet=quiet) as progress:
        space = canonical_name(extractor or find_protocol("genpr").extractor)
        embedder = Embedder(device=resolve_device(device), progress=progress, **options)
        side = SideFeatures(images, "images", embedder)
        side.require([space], minimum=1)
        features = side[space]
    save_features(out, features)
    if not quiet:
        show_notices(features.notices)
    n, dim = features.features.shape
    if as_json:
        record = {
            "out": str(out),
            "n": n,
            "dim": dim,
            "n_cached": features.n_cached,
            "skipped": len(features.skipped),
        }
        emit(json.dumps(record))
    else:
        emit(printable(f"wrote {n:,} x {dim} features to {out} ({features.n_cached:,} from the cache)"))
