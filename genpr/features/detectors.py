"""Object detectors: the highest score of each class in an image.

References:
    S. Ren et al., Faster R-CNN, 2015. T.-Y. Lin et al., Focal Loss for Dense Object Detection, 2017. Y. Li et al.,
    Benchmarking Detection Transfer Learning with Vision Transformers, 2021 (the training of the _v2 weights).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from genpr.errors import FeatureError, UsageError, similar
from genpr.features.custom import identity_of
from genpr.features.extractor import ExtractorInfo
from genpr.features.weights import Progress, Weights, WeightsFile, find_or_fetch, load_weights
from genpr.runtime import resolve_device, user_errors
from genpr.validation import entry_point

# The older models freeze their batch norms when they load weights, and need another eps.
DETECTORS = ("fasterrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn_v2")
"""The available detectors."""

_NO_CLASS = {"__background__", "N/A"}


class Detector(Protocol):
    """A detector of objects; `names` are its classes."""

    names: tuple[str, ...]

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """The highest score of each class in each image, (n, classes) float from 0 to 1, of uint8 (3, h, w) of any sizes."""
        ...


class TorchvisionDetector:
    """A network that returns "labels" and "scores" for each float image (3, h, w) in 0..1; `categories` name the labels."""

    def __init__(
        self,
        network: nn.Module,
        categories: Sequence[str],
        device: torch.device,
        *,
        name: str = "detector",
        weights_sha256: str | None = None,
    ) -> None:
        self.name = name
        self.weights_sha256 = weights_sha256
        self.cache_key = weights_sha256 and f"{name} {weights_sha256} torchvision {version('torchvision')}"
        self._network = network.eval().to(device)
        self._device = device
        self.names = tuple(dict.fromkeys(name for name in categories if name not in _NO_CLASS))
        column_of = {name: column for column, name in enumerate(self.names)}
        self._column = torch.tensor([column_of.get(name, -1) for name in categories])

    @torch.inference_mode()
    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """See `Detector`."""
        highest = torch.zeros(len(images), len(self.names))
        seen = self._network([image.to(self._device).float() / 255 for image in images])
        for row, each in zip(highest, seen, strict=True):
            columns = self._column[each["labels"].cpu()]
            known = columns >= 0
            row.scatter_reduce_(0, columns[known], each["scores"].cpu().float()[known], "amax")
        return highest


@entry_point
def load_detector(
    name: str = DETECTORS[0],
    *,
    weights: str | os.PathLike[str] | None = None,
    device: str | torch.device = "auto",
    offline: bool = False,
    progress: Progress | None = None,
) -> TorchvisionDetector:
    """Load one of `DETECTORS` with its published weights, trained on COCO; arguments are those of `genpr.load_extractor`."""
    if name not in DETECTORS:
        known = ", ".join(DETECTORS)
        text = f"unknown detector {name!r}{similar(name, DETECTORS)}; known are {known}, or any callable object with `names`"
        raise UsageError(text, code="unknown-detector")
    from torchvision.models import get_model_weights

    published: Any = get_model_weights(name).DEFAULT
    file = PurePosixPath(published.url).name
    prefix = file.removesuffix(".pth").rpartition("-")[2]
    entry = WeightsFile(file, published.url, None, prefix, "BSD-3-Clause", used_by=(name,))
    given = None if weights is None else Path(weights)
    if given is not None and given.is_dir():
        given = given / entry.name if (given / entry.name).is_file() else None
    path = find_or_fetch(entry, weights=given, offline=offline, progress=progress)
    return build_detector(
        name, load_weights(entry, path), published.meta["categories"], resolve_device(device)
    )


def build_detector(
    name: str, weights: Weights, categories: Sequence[str], device: torch.device
) -> TorchvisionDetector:
    """A detector with the given weights."""
    from torchvision.models import get_model

    network: nn.Module = get_model(name, weights=None, weights_backbone=None, num_classes=len(categories))
    network.load_state_dict(weights.tensors, strict=True)
    return TorchvisionDetector(network, categories, device, name=name, weights_sha256=weights.sha256)


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
