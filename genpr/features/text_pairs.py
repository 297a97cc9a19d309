"""Texts in the space of the features of images: their encoder, and whether the two belong together."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from genpr.errors import FeatureError, short
from genpr.features.catalogue import BUILT_IN
from genpr.features.embedder import Embedder, Space
from genpr.features.feature_set import FeatureSet
from genpr.features.lookup import family_loader, parse_name
from genpr.features.registry import check_weights_used, weights_of
from genpr.features.text import load_text_encoder, text_encoder_of
from genpr.features.text_encoder import TextEncoder


def is_own(name: str) -> bool:
    """Whether a name stands for an object of the user's own."""
    return parse_name(name).base not in BUILT_IN and family_loader(name) is None


def text_encoder_for(space: Space, embedder: Embedder) -> TextEncoder:
    """The text encoder of the extractor that embeds images, with the embedder's options.

    Raises:
        UsageError: It has none.
        WeightsError: Its weights are missing.
    """
    if not isinstance(space, str) or is_own(space):
        return text_encoder_of(embedder.load([space]))
    check_weights_used([space], embedder.options.weights)
    return load_text_encoder(
        space,
        weights=weights_of(space, embedder.options.weights),
        device=embedder.device,
        offline=embedder.options.offline,
    )


def check_pair(features: FeatureSet, encoder: TextEncoder, vectors: Tensor, texts: Sequence[str]) -> None:
    """Refuse images and texts that are not in one space.

    Raises:
        FeatureError: They are of other weights or widths, or a vector has no direction.
    """
    info, dim = features.extractor, features.features.shape[1]
    hashes = {encoder.info.weights_sha256, info.weights_sha256 if info else None} - {None}
    if dim != vectors.shape[1] or len(hashes) > 1:
        difference = (
            f"features of {dim} numbers against {vectors.shape[1]}"
            if dim != vectors.shape[1]
            else "other weights"
        )
        raise FeatureError(
            f"{short(features.source, 60)} and the text encoder of {encoder.name} do not belong together: {difference}; "
            "embed the images with that extractor",
            code="other-extractor",
            path=features.source,
        )
    for rows, name_of in ((features.features, features.name_of), (vectors, texts.__getitem__)):
        lost = [row for start in range(0, len(rows), 2**16) for row in _without_direction(rows, start)]
        if lost:
            raise FeatureError(
                f"{len(lost):,} of {len(rows):,} embeddings are all zeros, so that no cosine with them is defined; the first "
                f"is of {short(name_of(lost[0]))!r}",
                code="zero-features",
                path=features.source,
            )


def _without_direction(rows: Tensor, start: int) -> list[int]:
    part = rows[start : start + 2**16]
    return [start + row for row in (~part.any(dim=1)).nonzero()[:, 0].tolist()]
