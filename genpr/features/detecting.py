"""Detectors as extractors: the features of an image are the scores of the classes, so that all that embeds images runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version

import torch
from torch import Tensor

from genpr.errors import FeatureError, UsageError
from genpr.features.custom import identity_of
from genpr.features.detectors import Detector, TorchvisionDetector
from genpr.features.extractor import ExtractorInfo
from genpr.features.run_file import LoadedCode

_CODE = "custom-detector"


class DetectingExtractor:
    """A detector as an extractor.

    Give it one image at a time: detectors pad the images of a batch to one size, which would move scores.

    Attributes:
        name: Of the detector.
        dim: Number of its classes.
        names: Of the classes, by column.
        detector: The detector itself.
    """

    def __init__(self, detector: Detector, *, name: str, code: LoadedCode | None = None) -> None:
        self.name = name
        self.names = _checked_names(detector, name)
        self.dim = len(self.names)
        self.detector = detector
        self._code = code or LoadedCode()

    @property
    def info(self) -> ExtractorInfo:
        """What the detector is now; no published number is made this way, so it is comparable with none."""
        if isinstance(self.detector, TorchvisionDetector):
            weights = self.detector.weights_sha256
            key = None if weights is None else f"{self.name} {weights} torchvision {version('torchvision')}"
            reason = "it is of no published file" if weights is None else None
        else:
            weights, key, reason = identity_of(self.detector, self._code)
        if key is not None:
            key = hashlib.sha256("\n".join(["detector", key, *self.names]).encode()).hexdigest()
        return ExtractorInfo(
            name=self.name,
            dim=self.dim,
            resize="the detector's own",
            weights_sha256=weights,
            comparable=False,
            cache_key=key,
            uncached_reason=reason,
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of uint8 (n, 3, h, w) images, float32 (n, classes).

        Raises:
            FeatureError: The detector gives something else, or no scores from 0 to 1 ("feature-shape").
        """
        scores = torch.as_tensor(self.detector(list(images)))
        if tuple(scores.shape) != (len(images), self.dim) or not scores.is_floating_point():
            raise FeatureError(
                f"detector {self.name} must return a row of {self.dim} floats per image, one for each of its names, but "
                f"returned {scores.dtype} {tuple(scores.shape)} for {len(images)} images",
                code="feature-shape",
            )
        return scores.float()


def _checked_names(detector: object, name: str) -> tuple[str, ...]:
    names = getattr(detector, "names", None)
    if not callable(detector) or not isinstance(names, Sequence) or isinstance(names, str) or not names:
        raise UsageError(
            f"{name!r} recognises nothing: needed is a detector, callable and with the names of its classes in `names`, or a "
            f"pair of encoders, callable and with `dim` and `encode_text`; this is a {type(detector).__name__}",
            code=_CODE,
        )
    if not all(isinstance(each, str) and each.strip() for each in names) or len(set(names)) < len(names):
        raise UsageError(
            f"the `names` of detector {name!r} must be different texts, one for each column of its scores",
            code=_CODE,
        )
    return tuple(names)
