"""Shared by alignment and entities: embed images and match them with a table, and describe texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from genpr.evaluation.result import SideSummary
from genpr.evaluation.tables import ImageValues
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import check_distinct, image_names, source_rows
from genpr.features.source_features import Embedder, ExtractorLike, OpenedInput, source_features
from genpr.images.item import known_length

T = TypeVar("T")


def embed_matched(
    opened: OpenedInput,
    role: str,
    table: ImageValues[T],
    extractor: ExtractorLike,
    embedder: Embedder,
    check: Callable[[list[T]], object] = lambda _: None,
) -> tuple[FeatureSet, list[T]]:
    """Embed images and find the value of each in a table; errors in names or from `check` are raised before embedding."""
    listed = image_names(opened)
    if listed is not None:
        table.check_used(listed)
        check(table.match_all(listed, range(len(listed)), len(listed)))
    source = source_features(opened, role, embedder, [extractor], minimum=1, declared=(extractor,))
    features = source[extractor]
    total = len(opened) if isinstance(opened, FeatureSet) else known_length(opened.source)
    names = [features.name_of(row) for row in range(len(features))]
    is_whole = total is None and not features.skipped
    rows = range(len(features)) if is_whole else source_rows(opened, features, total)
    if table.by_name is not None:
        check_distinct(features, f"{table.noun}s by name")
    features = replace(features, notices=(*features.notices, *table.order_notices(listed or names)))
    return features, table.match_all(names, rows, total)


def text_side(source: str, what: str, *, n: int, content: str, order: str) -> SideSummary:
    """The summary of a source of texts, identified by hashes of its contents."""
    of_images: dict[str, Any] = {"skipped": (), "flags": {}, "decoder": {}, "seconds": 0.0}
    of_images |= {"n_embedded": 0, "n_cached": 0, "n_duplicates": 0}
    return SideSummary(source=source, n=n, content=content, order=order, what=what, **of_images)
