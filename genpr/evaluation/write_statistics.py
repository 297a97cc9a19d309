"""Compute reference statistics of images or features, and write them in a format that other tools can read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np

from genpr.distributed import rank_zero_only
from genpr.errors import FeatureError, UsageError, printable, some
from genpr.evaluation.notices_of_score import decoding_notices
from genpr.evaluation.options import StatisticsKeywords, StatisticsOptions
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.result import SideSummary
from genpr.features.feature_set import FeatureSet
from genpr.features.options import takes_options
from genpr.features.plain_pickle import MAX_BYTES
from genpr.features.registry import canonical_name, parse_name, with_variants_of
from genpr.features.source_features import (
    FROM_FILE,
    Embedder,
    open_input,
    source_features,
    with_cpu_fallback,
)
from genpr.features.statistics import (
    PROVENANCE,
    FeatureMoments,
    ReferenceStatistics,
    check_statistics_file,
    covariance_key,
    provenance_of,
)
from genpr.images.paths import paths_of
from genpr.memory import memory_limit
from genpr.metrics.frechet import Gaussian
from genpr.notices import Notice
from genpr.storage import atomic_path, report_write_errors
from genpr.validation import entry_point


@takes_options(StatisticsOptions)
@entry_point
def reference_statistics(
    source: object,
    out: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    **options: Unpack[StatisticsKeywords],
) -> ReferenceStatistics:
    """Mean and covariance of the features of some images, for `genpr.score(..., reference_statistics=...)`.

    Args:
        source: Images or features, as for `genpr.Evaluator`.
        out: An .npz file for the statistics: `mu` (d,) float32 and `sigma` (d, d) float64, over n - 1, which pytorch-fid
            and torch-fidelity accept, and `genpr`, a JSON text with extractors, number and decoding of images.
        overwrite: Replace any file `out`. Without it, only statistics of the same absolute path are replaced.
        **options: The fields of `StatisticsOptions`.

    Returns:
        The content of the file. Means are rounded to float32 without a file as well, so that scores with both are equal.

    Raises:
        UsageError: A path or name does not exist, `out` is in the source or has other content, or an option is impossible.
        DataError: The source cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> statistics = reference_statistics(rng.normal(size=(200, 4)))
        >>> [(each.key, each.covariance.shape) for each in statistics.moments]
        [('mu', (4, 4))]
    """
    path = None if out is None else Path(out)
    if path is not None:
        text = os.fsdecode(source) if isinstance(source, str | os.PathLike) else ""
        check_statistics_file(path, text, inputs=paths_of(text) if text else (), overwrite=overwrite)
    found, _ = compute_statistics(source, StatisticsOptions(**options))
    if path is not None and rank_zero_only():
        save_statistics(path, found, overwrite=overwrite)
    return found


def compute_statistics(
    source: object, options: StatisticsOptions
) -> tuple[ReferenceStatistics, tuple[Notice, ...]]:
    """The statistics of a source, with notices."""
    given = options.extractor
    requested = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    keys = list(dict.fromkeys(canonical_name(each) if isinstance(each, str) else each for each in requested))
    moments, notices = list[FeatureMoments](), list[Notice]()
    with memory_limit(options.max_memory):
        opened = open_input(source, "source", options.decoding)
        if not keys:
            keys = [FROM_FILE if isinstance(opened, FeatureSet) else find_protocol("genpr").extractor]
        spatial = None
        if options.spatial:
            of_maps = [
                each for each in keys if isinstance(each, str) and parse_name(each).base == "inception"
            ]
            if not of_maps:
                raise UsageError(
                    "mu_s and sigma_s need Inception; add --extractor inception", code="bad-option"
                )
            spatial = with_variants_of("inception-spatial", of_maps[0])
        extractors = [*(key for key in keys if key != spatial), *([] if spatial is None else [spatial])]
        embedder = Embedder(options)
        features = source_features(opened, "source", embedder, extractors, minimum=2, declared=extractors)
        for extractor in extractors:
            found = features[extractor]
            work = partial(_gaussian_of, found)
            gaussian, more = with_cpu_fallback(embedder, work, "for mean and covariance")
            # With the precision of a file.
            mean = gaussian.mean.cpu().numpy().astype(np.float32).astype(np.float64)
            name = None if found.extractor is None else found.extractor.name
            key = "mu_s" if extractor == spatial else f"{printable(str(name))}/mu" if moments else "mu"
            moments.append(FeatureMoments(key, mean, gaussian.covariance.cpu().numpy(), found.extractor))
            notices += [*decoding_notices("source", found), *found.notices, *more]
    names = [str(each.extractor) for each in moments]
    if len(set(names)) < len(names):
        raise UsageError(f"extractors must have different names, found {some(names, 6)}", code="bad-option")
    main = features[extractors[0]]
    statistics = ReferenceStatistics(
        main.source,
        tuple(moments),
        count=len(main),
        decoder=main.decoder,
        passed_over=dict(main.passed_over),
        images_sha256=None if main.identities is None else SideSummary.from_features(main).content,
    )
    return statistics, tuple(dict.fromkeys(notices))


def save_statistics(
    path: str | os.PathLike[str], statistics: ReferenceStatistics, *, overwrite: bool = False
) -> None:
    """Write statistics to an .npz file, atomically and without pickles; only those of the same source are replaced."""
    path = Path(path)
    check_statistics_file(path, statistics.source, overwrite=overwrite)
    if sum(each.covariance.nbytes for each in statistics.moments) > MAX_BYTES:
        sizes = some([f"{len(each.mean):,}" for each in statistics.moments], 6)
        text = f"covariances of {sizes} features exceed the limit of {MAX_BYTES:,} bytes; write fewer to one file"
        raise FeatureError(text, code="statistics-shape", path=statistics.source)
    arrays: dict[str, np.ndarray] = {}
    for each in statistics.moments:
        arrays[each.key] = each.mean.astype(np.float32)
        arrays[covariance_key(each.key)] = each.covariance
    arrays[PROVENANCE] = np.array(json.dumps(provenance_of(statistics)))
    with report_write_errors(path), atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _gaussian_of(features: FeatureSet, embedder: Embedder) -> Gaussian:
    return Gaussian.from_features(features.features, name=features.source, device=embedder.device)
