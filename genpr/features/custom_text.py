"""Text encoders of the user's own: an extractor's object that also has `encode_text`.

`encode_text` takes a list of n strings and gives float (n, dim), a tensor or an array, in the space of the object's
features of images. Optional are `truncated`, from a list of strings to as many booleans, and the attributes `tokenizer`
(a string), `context` (an integer) and `logit_scale` (a number): see `TextEncoderInfo`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError
from genpr.features.extractor import FeatureExtractor
from genpr.features.registry import describe
from genpr.features.text_encoder import TextEncoderInfo, TextProgress
from genpr.features.user_objects import evaluation_mode
from genpr.runtime import state_guard

_BATCH = 64  # texts in one call: a user's own need not split them


class CustomTextEncoder:
    """The `encode_text` of a user's object.

    Args:
        extractor: The object as an extractor.
        owner: The object itself.
    """

    def __init__(self, extractor: FeatureExtractor, owner: object) -> None:
        self.name = extractor.name
        self.dim = extractor.dim
        self._extractor = extractor
        self._owner = owner

    @property
    def info(self) -> TextEncoderInfo:
        """What the object says of itself; a network is hashed at each look."""
        images = describe(self._extractor)
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
        """Embed n texts as float32 (n, dim) on the CPU.

        Raises:
            FeatureError: The object gives something else ("feature-shape", "non-finite").
        """
        rows = [torch.empty(0, self.dim)]
        with evaluation_mode(self._owner), state_guard():
            for start in range(0, len(texts), _BATCH):
                rows.append(self._checked(list(texts[start : start + _BATCH])))
                if progress is not None:
                    progress(min(start + _BATCH, len(texts)), len(texts))
        return torch.cat(rows)

    def truncated(self, texts: Sequence[str], /) -> list[bool] | None:
        """What the object's own `truncated` says; None if it has none."""
        function = getattr(self._owner, "truncated", None)
        if not callable(function):
            return None
        told = [bool(each) for each in function(list(texts))]
        if len(told) != len(texts):
            raise FeatureError(
                f"truncated of {self.name} must say yes or no for each of {len(texts)} texts, but said {len(told)} times",
                code="feature-shape",
            )
        return told

    def _checked(self, texts: list[str]) -> Tensor:
        try:
            given = self._owner.encode_text(texts)  # type: ignore[attr-defined]
        except Exception as error:
            error.add_note(f"encode_text of {self.name} failed")
            raise
        vectors = torch.as_tensor(given) if isinstance(given, Tensor | np.ndarray) else None
        expected = (len(texts), self.dim)
        if vectors is None or vectors.shape != expected or not vectors.is_floating_point():
            came = type(given).__name__ if vectors is None else f"{vectors.dtype} {tuple(vectors.shape)}"
            raise FeatureError(
                f"encode_text of {self.name} must return one row of {self.dim} floats per text, {expected} for these "
                f"texts, but returned {came}",
                code="feature-shape",
            )
        if not vectors.isfinite().all():
            row = int((~vectors.isfinite().all(dim=1)).nonzero()[0])
            raise FeatureError(
                f"encode_text of {self.name} gives NaN or infinity for {texts[row][:60]!r}", code="non-finite"
            )
        return vectors.detach().float().cpu()
