"""`genpr features SOURCE OUT` and `genpr stats SOURCE OUT`: write features of images, or their mean and covariance."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from genpr.cli.output import FileOutput, input_paths, source_command
from genpr.distributed import rank_zero_only
from genpr.errors import DataError, UsageError, printable
from genpr.evaluation.options import EXTRACTOR, StatisticsOptions
from genpr.evaluation.protocols import find_protocol
from genpr.features.options import EmbedOptions, option
from genpr.features.registry import canonical_name
from genpr.features.statistics import check_statistics_file
from genpr.images.item import passed_over_text
from genpr.images.paths import expand
from genpr.memory import memory_limit
from genpr.storage import check_feature_file, place_in, place_of


@dataclass(frozen=True, kw_only=True)
class FeatureFlags(EmbedOptions):
    """Options of embedding, with the extractor and the shard."""

    extractor: str | None = option(None, EXTRACTOR, unset="inception, or that of the feature files")
    shard: str | None = option(
        None,
        "Embed only the I-th of N parts of SOURCE, counted from 1. N tasks with different I embed it together.",
        metavar="I/N",
    )


@source_command("source", "out", options=FeatureFlags, output=FileOutput)
def features(source: str, out: Path, *, options: FeatureFlags, output: FileOutput) -> None:
    """Embed the images in SOURCE once and write their features to OUT (.safetensors).

    The file records extractor, weights hash and resize rule, and `genpr score` refuses to mix features of
    different extractors.

    \b
    genpr features real/ real_3.safetensors --shard 3/16   one task of 16
    genpr score 'real_*.safetensors' 'fake_*.safetensors'  reads all shards
    genpr features 'real_*.safetensors' real.safetensors   joins them
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    shards, origin = expand(source), place_of(source)
    with suppress(DataError, KeyError):  # files to be joined, or a pattern of other files
        origin = (shards and place_in(shards[0])) or origin
    check_feature_file(out, origin, inputs=input_paths(), overwrite=output.overwrite)
    from genpr.evaluation.notices_of_score import decoding_notices
    from genpr.features.feature_set import FeatureSet, save_features
    from genpr.features.source_features import Embedder, features_for_file, open_input
    from genpr.images.shards import Shard

    def embedded(options: FeatureFlags) -> FeatureSet:
        shard = None if options.shard is None else Shard.parse(options.shard)
        with memory_limit(options.max_memory):
            opened, extractor = open_input(source, "source", options.decoding), options.extractor
            # Several files that a pattern names are joined.
            if isinstance(opened, FeatureSet) and shards is None:
                raise UsageError(f"{source} already holds features", code="already-features", path=source)
            if not isinstance(opened, FeatureSet) or extractor is not None:
                extractor = canonical_name(extractor or find_protocol("genpr").extractor)
            return features_for_file(opened, extractor, Embedder(options), shard)

    features = output.run(embedded, options=options)
    if not rank_zero_only():
        return
    save_features(out, features, overwrite=output.overwrite)
    n, dim = features.features.shape
    place, skipped = features.shard, len(features.skipped)
    counts = {"n_embedded": features.n_embedded, "n_cached": features.n_cached, "skipped": skipped}
    record = {"out": str(out), "n": n, "dim": dim, **counts, "passed_over": dict(features.passed_over)}
    of = ""
    if place is not None:
        record["shard"] = asdict(place)
        of = f", shard {place.shard} of {place.total:,} images,"
    n_known = n - features.n_embedded - features.n_cached
    how = f"{n_known:,} from files" if n_known else f"{features.n_cached:,} from the cache"
    others = passed_over_text(features.passed_over)
    text = printable(f"wrote {n:,} x {dim} features{of} to {out} ({how}){others}")
    output.show_record(record, text, [*decoding_notices("source", features), *features.notices])


@source_command("source", "out", options=StatisticsOptions, output=FileOutput)
def stats(source: str, out: Path, *, options: StatisticsOptions, output: FileOutput) -> None:
    """Write mean and covariance of the features of the images in SOURCE to OUT (.npz), for Fréchet distances.

    SOURCE contains images or features, as for `genpr features`. pytorch-fid reads OUT, and `genpr score` accepts it as REAL
    or with --reference-statistics. Its key `genpr` records extractor, weights, resize rule and number of images.

    \b
    genpr stats train/ train256.npz --prepare center-crop:256 --spatial
    genpr score train256.npz samples/ --metrics fid,sfid,is
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    check_statistics_file(out, source, inputs=input_paths(), overwrite=output.overwrite)
    from genpr.evaluation.write_statistics import compute_statistics, save_statistics

    found, notices = output.run(compute_statistics, source, options=options)
    save_statistics(out, found, overwrite=output.overwrite)
    moments = [
        {"key": each.key, "extractor": each.extractor, "dim": len(each.mean)} for each in found.moments
    ]
    names = ", ".join(f"{each['extractor'] or 'unknown features'} ({each['dim']:,})" for each in moments)
    of = "" if found.count is None else f" of {found.count:,} images"
    others = passed_over_text(found.passed_over)
    record = {"out": str(out), "n": found.count, "passed_over": dict(found.passed_over), "moments": moments}
    text = printable(f"wrote mean and covariance of {names}{of} to {out}{others}")
    output.show_record(record, text, notices)
