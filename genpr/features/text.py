"""Text encoders: prompts as vectors in the same space as the features of images.

The text tower of a CLIP model has the name of its image tower and is read from the same file. A custom extractor with a
method `encode_text`, from a list of n strings to float (n, dim), embeds both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError, short
from genpr.features.custom import evaluation_mode, extractor_info, load_custom
from genpr.features.extractor import FeatureExtractor, TextEncoder, TextEncoderInfo, TextProgress
from genpr.features.registry import (
    canonical_name,
    check_has_text,
    check_weights_used,
    network_module,
    no_text_encoder,
    open_family,
    parse_name,
    read_weights,
    weights_of,
)
from genpr.features.weights import Progress
from genpr.runtime import resolve_device, state_guard, user_default_device, user_errors
from genpr.validation import entry_point, is_plain, kind_of

if TYPE_CHECKING:
    from genpr.features.feature_set import FeatureSet
    from genpr.features.source_features import Embedder, ExtractorLike

_BATCH = 64  # texts per call of a custom `encode_text`
_ROWS = 2**16


@entry_point
def load_text_encoder(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | torch.device = "auto",
    offline: bool = False,
    progress: Progress | None = None,
) -> TextEncoder:
    """Load the text encoder of an extractor; arguments are those of `genpr.load_extractor`."""
    check_has_text(name)
    name = canonical_name(name)
    if network_module(name) is None:  # a custom one
        return text_encoder_of(load_custom(name, device=resolve_device(device)))
    from genpr.features.networks import clip

    if open_family(name):
        clip.check_tokenizer(parse_name(name).base)
    loaded = read_weights(name, weights=weights, offline=offline, progress=progress)
    assert loaded is not None
    return clip.build_text(loaded, name=parse_name(name), device=resolve_device(device))


def text_encoder_for(extractor: ExtractorLike, embedder: Embedder) -> TextEncoder:
    """The text encoder of an extractor of images, with the embedder's options."""
    if not isinstance(extractor, str) or network_module(extractor) is None:
        return text_encoder_of(embedder.load([extractor]))
    check_weights_used([extractor], embedder.options.weights)
    return load_text_encoder(
        extractor,
        weights=weights_of(extractor, embedder.options.weights),
        device=embedder.device,
        offline=embedder.options.offline,
    )


def text_encoder_of(extractor: FeatureExtractor) -> TextEncoder:
    """The text encoder of a custom extractor; UsageError "no-text-encoder" without `encode_text`."""
    owner = getattr(extractor, "wrapped", extractor)
    if not callable(getattr(owner, "encode_text", None)):
        raise no_text_encoder(extractor.name)
    return CustomTextEncoder(extractor, owner)


class CustomTextEncoder:
    """A text encoder from `encode_text` of a user's object `owner`, whose extractor is `extractor`."""

    def __init__(self, extractor: FeatureExtractor, owner: object) -> None:
        self.name = extractor.name
        self.dim = extractor.dim
        self._extractor = extractor
        self._owner = owner

    @property
    def info(self) -> TextEncoderInfo:
        """The declared identity; a network is hashed at each access."""
        images = extractor_info(self._extractor)
        own = {key: getattr(self._owner, key, None) for key in ("tokenizer", "context", "logit_scale")}
        return TextEncoderInfo(
            name=self.name,
            dim=self.dim,
            tokenizer=own["tokenizer"] if isinstance(own["tokenizer"], str) else "unknown",
            context=own["context"] if isinstance(own["context"], int) else None,
            weights_sha256=images.weights_sha256,
            comparable=False,
            logit_scale=float(own["logit_scale"]) if isinstance(own["logit_scale"], int | float) else None,
        )

    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts as float32 (n, dim) on the CPU; FeatureError if the object returns something else."""
        rows = [torch.empty(0, self.dim, device="cpu")]
        with evaluation_mode(self._owner), state_guard(), user_default_device():
            for start in range(0, len(texts), _BATCH):
                rows.append(self._checked(list(texts[start : start + _BATCH])))
                if progress is not None:
                    progress(min(start + _BATCH, len(texts)), len(texts))
        return torch.cat(rows)

    def truncated(self, texts: Sequence[str], /) -> list[bool] | None:
        """The result of the object's method `truncated`; None without one."""
        function = getattr(self._owner, "truncated", None)
        if not callable(function):
            return None
        with user_errors(f"truncated of {self.name}", "extractor-failed"):
            is_cut = [bool(each) for each in function(list(texts))]
        if len(is_cut) != len(texts):
            text = f"truncated of {self.name} must return {len(texts)} booleans, one per text, found {len(is_cut)}"
            raise FeatureError(text, code="feature-shape")
        return is_cut

    def _checked(self, texts: list[str]) -> Tensor:
        with user_errors(f"encode_text of {self.name}", "extractor-failed"):
            given = self._owner.encode_text(texts)  # type: ignore[attr-defined]
            vectors = torch.as_tensor(given) if isinstance(given, np.ndarray) else given
        expected = (len(texts), self.dim)
        if not is_plain(vectors) or vectors.shape != expected or not vectors.is_floating_point():
            text = f"encode_text of {self.name} must return floats {expected} for these texts, but returned {kind_of(vectors)}"
            raise FeatureError(text, code="feature-shape")
        return vectors.detach().float().cpu()


def check_pair(features: FeatureSet, encoder: TextEncoder, vectors: Tensor, texts: Sequence[str]) -> None:
    """Raise an error if images and texts are not in one space (other weights or dimensions), or a vector is zero or NaN."""
    info, dim = features.extractor, features.features.shape[1]
    hashes = {encoder.info.weights_sha256, info.weights_sha256 if info else None} - {None}
    if dim != vectors.shape[1] or len(hashes) > 1:
        difference = "different weights"
        if dim != vectors.shape[1]:
            difference = f"{dim} and {vectors.shape[1]} dimensions"
        text = (
            f"{short(features.source, 60)} and the text encoder of {encoder.name} do not match: {difference}"
        )
        raise FeatureError(text, code="other-extractor", path=features.source)
    is_finite = vectors.isfinite().all(dim=1)
    if not is_finite.all():
        text = short(texts[int(is_finite.int().argmin())])
        raise FeatureError(f"{encoder.name} returned NaN or infinity for {text!r}", code="non-finite")
    for rows, name_of in ((features.features, features.name_of), (vectors, texts.__getitem__)):
        is_zero = torch.cat([~block.any(dim=1) for block in torch.split(rows, _ROWS)])
        if is_zero.any():
            first = short(name_of(int(is_zero.int().argmax())))
            count = f"{int(is_zero.sum()):,} of {len(rows):,}"
            text = f"{count} embeddings are zero vectors; the first is that of {first!r}"
            raise FeatureError(text, code="zero-features", path=features.source)
