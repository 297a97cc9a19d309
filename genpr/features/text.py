"""Text encoders: prompts as vectors in the same space as the features of images.

The text tower of a CLIP model is known by the name of the extractor that is its image tower, and is read from the same
weights file. An extractor of the user's own that also has `encode_text` embeds both: a list of n strings in, float
(n, dim) out.

Importing this module does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from genpr.errors import FeatureError, UsageError, short
from genpr.features.extractor import TextEncoder
from genpr.features.registry import (
    canonical_name,
    check_weights_used,
    network_module,
    parse_name,
    read_weights,
    require_weights,
    weights_of,
)
from genpr.features.weights.known import Progress
from genpr.runtime import resolve_device

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from genpr.features.extractor import FeatureExtractor
    from genpr.features.feature_set import FeatureSet
    from genpr.features.source_features import Embedder, ExtractorKey

_NEEDED = (
    "clip-vit-b-32, clip-vit-l-14, clip-vit-l-14-336, open_clip:MODEL:PRETRAINED, or path/to/file.py:factory whose object "
    "also has encode_text"
)


def load_text_encoder(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | torch.device = "auto",
    offline: bool = False,
    progress: Progress | None = None,
) -> TextEncoder:
    """Load the text encoder that belongs to an extractor.

    Args:
        name: Of the extractor: a CLIP model ("clip-vit-b-32", "open_clip:MODEL:PRETRAINED"), or a custom one whose object
            has `encode_text` (see `genpr.load_extractor`).
        weights: File that holds the published weights, both towers in one.
        device: "auto", "cpu", "cuda", "cuda:1" or a `torch.device`.
        offline: Never download; GENPR_OFFLINE=1 says the same.
        progress: Called with (bytes received, bytes in all) while weights are downloaded.

    Raises:
        UsageError: No such extractor, or it has no text encoder ("no-text-encoder").
        WeightsError: The weights are missing or are not the published ones.
    """
    check_has_text(name)
    name = canonical_name(name)
    if is_custom(name):
        from genpr.features.custom import load_custom

        return text_encoder_of(load_custom(name, device=resolve_device(device)))
    path = require_weights(name, weights=weights, offline=offline, progress=progress)
    from genpr.features.networks import clip_text

    clip_text.check_tokenizer(parse_name(name).base)
    found = read_weights(name, path, weights=weights, offline=offline, progress=progress)
    assert found is not None
    return clip_text.build(found, name=parse_name(name), device=resolve_device(device))


def check_has_text(name: str) -> None:
    """Refuse the name of an extractor that has no text encoder; whether a custom one has is known once it is loaded.

    Raises:
        UsageError: "no-text-encoder", or there is no such extractor.
    """
    name = canonical_name(name)
    if network_module(name) not in {"clip", None}:
        raise _no_text(name)


def text_encoder_of(extractor: FeatureExtractor) -> TextEncoder:
    """The text encoder that a custom extractor itself is.

    Raises:
        UsageError: It has no `encode_text` ("no-text-encoder").
    """
    from genpr.features.custom import CustomTextEncoder

    owner = getattr(extractor, "wrapped", extractor)
    if not callable(getattr(owner, "encode_text", None)):
        raise _no_text(extractor.name)
    return CustomTextEncoder(extractor, owner)


def _no_text(name: str) -> UsageError:
    return UsageError(
        f"extractor {name!r} embeds images only, but prompts are to be embedded too; choose {_NEEDED}",
        code="no-text-encoder",
    )


def is_custom(name: str) -> bool:
    """Whether a name stands for an object of the user's own."""
    return network_module(name) is None


def text_encoder_for(space: ExtractorKey, embedder: Embedder) -> TextEncoder:
    """The text encoder of the extractor that embeds images, with the embedder's options.

    Raises:
        UsageError: It has none.
        WeightsError: Its weights are missing.
    """
    if not isinstance(space, str) or is_custom(space):
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
