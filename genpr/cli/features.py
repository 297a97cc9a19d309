"""`genpr features SOURCE OUT`: embed images, or join shards of features in one file."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import check_sources, follow_symlinks, option_group
from genpr.cli.output import OUTPUT, FileOutput, input_paths
from genpr.errors import DataError, UsageError, printable
from genpr.evaluation.options import EXTRACTOR
from genpr.features.options import EmbedOptions, option
from genpr.storage import check_feature_file, place_in, place_of


@dataclass(frozen=True, kw_only=True)
class FeatureFlags(EmbedOptions):
    """Options of embedding, with the extractor and the shard."""

    extractor: str | None = option(
        None,
        EXTRACTOR,
        unset="inception, or that of the feature files",
        metavar="NAME",
    )
    shard: str | None = option(
        None,
        "Embed only the I-th of N parts of SOURCE, counted from 1. N tasks with different I embed it together.",
        metavar="I/N",
    )


@click.command(cls=GroupedCommand, name="features")
@click.argument("source", type=SOURCE)
@click.argument("out", type=OUTPUT)
@option_group(FeatureFlags)
@follow_symlinks
@option_group(FileOutput, "output")
def command(source: str, out: Path, *, options: FeatureFlags, output: FileOutput) -> None:
    """Embed the images in SOURCE once and write their features to OUT (.safetensors).

    The file records extractor, weights hash and resize rule, and `genpr score` refuses to mix features of
    different extractors.

    \b
    genpr features real/ real_3.safetensors --shard 3/16   one task of 16
    genpr score 'real_*.safetensors' 'fake_*.safetensors'  reads all shards
    genpr features 'real_*.safetensors' real.safetensors   joins them
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    check_sources(source)
    from genpr.images.paths import expand

    shards, origin = expand(source), place_of(source)
    with suppress(DataError, KeyError):  # files to be joined, or a pattern of other files
        origin = (shards and place_in(shards[0])) or origin
    check_feature_file(out, origin, inputs=input_paths(), overwrite=output.overwrite)
    from genpr.distributed import rank_zero_only
    from genpr.evaluation.diagnostics import decoding_notices
    from genpr.evaluation.protocols import find_protocol
    from genpr.features.feature_set import FeatureSet, save_features
    from genpr.features.inputs import open_input
    from genpr.features.registry import canonical_name
    from genpr.features.source_features import Embedder, features_for_file
    from genpr.images.item import passed_over_text
    from genpr.images.shards import BLOCK, Shard
    from genpr.memory import memory_limit

    shard = None if options.shard is None else Shard.parse(options.shard)
    with memory_limit(options.max_memory), progress_bars(quiet=output.quiet) as bars:
        opened, extractor = open_input(source, "source"), options.extractor
        if isinstance(opened, FeatureSet) and shards is None:  # several files that a pattern names are joined
            raise UsageError(f"{source} already holds features", code="already-features", path=source)
        if not isinstance(opened, FeatureSet) or extractor is not None:
            extractor = canonical_name(extractor or find_protocol("genpr").extractor)
        features = features_for_file(opened, extractor, Embedder(replace(options, progress=bars)), shard)
    if not rank_zero_only():
        return
    save_features(out, features, overwrite=output.overwrite)
    n, dim = features.features.shape
    place, skipped = features.shard, len(features.skipped)
    if output.as_json:
        counts = {"n_embedded": features.n_embedded, "n_cached": features.n_cached, "skipped": skipped}
        record: dict[str, Any] = {"out": str(out), "n": n, "dim": dim, **counts}
        record["passed_over"] = dict(features.passed_over)
        text = json.dumps(record | ({} if place is None else {"shard": asdict(place)}))
    else:
        of = "" if place is None else f", shard {place.shard} of {place.total:,} images,"
        n_known = n - features.n_embedded - features.n_cached
        how = f"{n_known:,} from files" if n_known else f"{features.n_cached:,} from the cache"
        others = passed_over_text(features.passed_over)
        text = printable(f"wrote {n:,} x {dim} features{of} to {out} ({how}){others}")
    output.show([*decoding_notices("source", features), *features.notices], text)
    if place is not None and not n and not skipped:
        output.note(
            f"shard {place.shard} is empty: the {place.total:,} images are divided in blocks of {BLOCK:,}; keep the file, since all "
            "shards are needed together"
        )
