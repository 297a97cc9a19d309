"""Whether images and texts are in one space."""

from __future__ import annotations

from torch import Tensor

from genpr.alignment.asked import Asked
from genpr.errors import FeatureError
from genpr.features.feature_set import FeatureSet
from genpr.features.text import TextEncoder
from genpr.images.item import short


def check_pair(features: FeatureSet, encoder: TextEncoder, vectors: Tensor, asked: Asked) -> None:
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
    for rows, name_of in ((features.features, features.name_of), (vectors, asked.texts.__getitem__)):
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
