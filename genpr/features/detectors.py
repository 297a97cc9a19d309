"""Object detectors of the user: the highest score of each class in an image."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from genpr.errors import FeatureError, UsageError
from genpr.features.custom import identity_of
from genpr.features.extractor import ExtractorInfo
from genpr.runtime import user_errors


class Detector(Protocol):
    """A detector of objects; `names` are its classes."""

    names: tuple[str, ...]

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """The highest score of each class in each image, (n, classes) float from 0 to 1, of uint8 (3, h, w) of any sizes."""
        ...


class DetectingExtractor:
    """A detector as an extractor, with a column for each class.

    Use batches of one image: detectors pad the images of a batch to one size, which changes scores.
    """

    def __init__(self, detector: Detector, *, name: str) -> None:
        self.name = name
        self.names = _checked_names(detector, name)
        self.dim = len(self.names)
        self.detector = detector

    @property
    def info(self) -> ExtractorInfo:
        """The current identity; there are no comparable published numbers."""
        weights, key, reason = identity_of(self.detector)
        if key is not None:
            key = hashlib.sha256("\n".join(["detector", key, *self.names]).encode()).hexdigest()
        return ExtractorInfo(
            name=self.name,
            dim=self.dim,
            resize="the detector's own",
            weights_sha256=getattr(self.detector, "weights_sha256", weights),
            comparable=False,
            cache_key=key,
            uncached_reason=reason,
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of uint8 (n, 3, h, w) images, float32 (n, classes)."""
        scores = torch.as_tensor(self.detector(list(images)))
        if tuple(scores.shape) != (len(images), self.dim) or not scores.is_floating_point():
            came = f"{scores.dtype} {tuple(scores.shape)} for {len(images)} images"
            text = f"detector {self.name} must return {self.dim} floats per image, one for each of its names, not {came}"
            raise FeatureError(text, code="feature-shape")
        return scores.float()


@user_errors("the classifier", "custom-detector")
def _checked_names(detector: object, name: str) -> tuple[str, ...]:
    declared = getattr(detector, "names", None)
    names = tuple(declared) if isinstance(declared, Sequence) and not isinstance(declared, str) else ()
    is_of_texts = all(isinstance(each, str) and each.strip() for each in names)
    if not callable(detector) or not names or not is_of_texts or len(set(names)) < len(names):
        text = f"{name!r} must be a detector (callable, with distinct `names` of classes) or encoders of images and texts"
        raise UsageError(text, code="custom-detector")
    return names
