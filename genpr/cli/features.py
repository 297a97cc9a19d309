"""`genpr features SOURCE OUT`: images become features, or the shards of features one file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import printable, progress_bars
from genpr.cli.options import follow_symlinks, option_group
from genpr.cli.output import TextOutput
from genpr.features.options import EmbedOptions, option
from genpr.storage import check_feature_file

if TYPE_CHECKING:
    from genpr.features.feature_set import FeatureSet
    from genpr.features.inputs import OpenedInput


@dataclass(frozen=True, kw_only=True)
class FeatureFlags(EmbedOptions):
    """What is embedded by which network, and how."""

    extractor: str | None = option(
        None,
        "See `genpr list extractors`; or package.module:factory or path/file.py:factory.",
        unset="inception, or that of the feature files",
        metavar="NAME",
    )
    shard: str | None = option(
        None,
        "Embed only the I-th of N shares, counted from 1, for a task of N that embed SOURCE together.",
        metavar="I/N",
    )


@click.command(name="features")
@click.argument("source")
@click.argument("out", type=click.Path(path_type=Path))
@option_group(FeatureFlags)
@follow_symlinks
@option_group(TextOutput, "output")
def command(source: str, out: Path, *, options: FeatureFlags, output: TextOutput) -> None:
    """Embed the images in SOURCE once and write their features to OUT (.safetensors).

    The file carries extractor, weights hash and resize rule, and `genpr score` refuses to mix features of
    different extractors.

    \b
    genpr features real/ real_3.safetensors --shard 3/16     one task of 16
    genpr score 'real_*.safetensors' 'fake_*.safetensors'    takes all of them
    genpr features 'real_*.safetensors' real.safetensors     makes them one file
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    from genpr.images.paths import check_there

    check_feature_file(out)
    check_there(source)
    from genpr.distributed import rank_zero_only
    from genpr.features.feature_set import FeatureSet, save_features
    from genpr.features.inputs import open_input
    from genpr.features.source_features import Embedder, features_for_file
    from genpr.images.shards import Share
    from genpr.memory import memory_limit

    share = None if options.shard is None else Share.parse(options.shard)
    with memory_limit(options.max_memory), progress_bars(quiet=output.quiet) as bars:
        side = open_input(source, "source")
        _refuse_one_file(source, side)
        embedder = Embedder(replace(options, progress=bars))
        space = _space(options.extractor, are_images=not isinstance(side, FeatureSet))
        features = features_for_file(side, space, embedder, share)
    if not rank_zero_only():
        return
    save_features(out, features)
    text = json.dumps(_record(features, out)) if output.as_json else printable(_sentence(features, out))
    output.show(features.notices, text)


def _refuse_one_file(source: str, side: OpenedInput) -> None:
    """One feature file is what it would become; several, named by a pattern, are joined."""
    from genpr.errors import UsageError
    from genpr.features.feature_set import FeatureSet
    from genpr.images.paths import expand

    if isinstance(side, FeatureSet) and expand(source) is None:
        raise UsageError(f"{source} already holds features", code="already-features", path=source)


def _space(extractor: str | None, *, are_images: bool) -> str | None:
    from genpr.evaluation.protocols import find_protocol
    from genpr.features.registry import canonical_name

    if extractor is None and not are_images:
        return None
    return canonical_name(extractor or find_protocol("genpr").extractor)


def _record(features: FeatureSet, out: Path) -> dict[str, Any]:
    n, dim = features.features.shape
    record = {
        "out": str(out),
        "n": n,
        "dim": dim,
        "n_embedded": features.n_embedded,
        "n_cached": features.n_cached,
        "skipped": len(features.skipped),
    }
    return record if features.shard is None else record | {"shard": asdict(features.shard)}


def _sentence(features: FeatureSet, out: Path) -> str:
    n, dim = features.features.shape
    place = features.shard
    of = "" if place is None else f", shard {place.share} of {place.total:,} images,"
    n_known = n - features.n_embedded - features.n_cached
    how = f"{n_known:,} from files" if n_known else f"{features.n_cached:,} from the cache"
    return f"wrote {n:,} x {dim} features{of} to {out} ({how})"
