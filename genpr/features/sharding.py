"""Features of a source for a file: of all its images, of one share of them, or joined from the files of others."""

from __future__ import annotations

from dataclasses import replace

from genpr.errors import UsageError
from genpr.features.embedded_source import OWN, SideFeatures
from genpr.features.embedder import Embedder, Space
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, OpenedSide
from genpr.images.item import printable
from genpr.images.shards import Share, shard_of
from genpr.images.source import subset


def features_for_file(
    side: OpenedSide, space: Space | None, embedder: Embedder, share: Share | None = None
) -> FeatureSet:
    """The features of `side` in `space`.

    Args:
        side: Images, or feature files that were joined.
        space: Which; None takes what feature files are.
        embedder: How images become features, and of how many. That many are chosen first, and then divided.
        share: Embed this share only; the limit of unusable images is one of all images all the same.

    Raises:
        UsageError: `share` is asked of features ("already-features"), or of images that cannot be counted before they are
            read ("unknown-length").
        DataError: There are no or unusable images, or the features are of another extractor.
        ResourceError: Weights, device or memory are missing.
    """
    if share is None:
        whole = SideFeatures(side, "images", embedder)
        whole.require([space or OWN], minimum=1)
        return whole[space or OWN]
    if isinstance(side, FeatureSet):
        raise UsageError(
            f"{printable(side.source)} already holds features; --shard divides images",
            code="already-features",
            path=side.source,
        )
    most = embedder.max_images
    source = shard_of(side.source if most is None else subset(side.source, most, embedder.seed), share)
    part = SideFeatures(OpenedImages(source, side.on_disk), "images", embedder.with_options(max_images=None))
    part.require([space or OWN], minimum=0)  # a share of few images may be empty
    max_bad = embedder.options.max_bad if embedder.options.on_bad == "skip" else 0.0
    return replace(part[space or OWN], shard=source.place(max_bad=max_bad))
