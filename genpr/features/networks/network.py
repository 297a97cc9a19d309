"""A network of fixed input size as an extractor, with its resize rule, precision and layers.

One pass may return several concatenated layers: FID, sFID and IS need three layers of one network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from genpr.errors import UsageError, WeightsError, similar
from genpr.features.extractor import ExtractorInfo, prepare_batch
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import ResizeRule, find_rule
from genpr.features.weights import Weights
from genpr.runtime import state_guard
from genpr.validation import entry_point

_VERSION = 1  # increment it whenever the features of networks change

Color = tuple[float, float, float]

IMAGENET_MEAN: Color = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_STD: Color = (0.229 * 255, 0.224 * 255, 0.225 * 255)


@dataclass(frozen=True, slots=True)
class InputRule:
    """The input of a network: a square of `side` pixels, normalized by `mean` and `std` in gray levels 0..255."""

    resize: ResizeRule
    side: int
    mean: Color = IMAGENET_MEAN
    std: Color = IMAGENET_STD

    def prepare(self, image: Tensor) -> Tensor:
        """Resize a uint8 (3, h, w) image to float32 (3, side, side) in 0..255 on its device."""
        return self.resize.resize(image, self.side)


def gray_levels(color: Sequence[float]) -> Color:
    """Convert red, green and blue from 0..1 to 0..255."""
    red, green, blue = color
    return red * 255, green * 255, blue * 255


class NetworkExtractor:
    """A network from normalized float32 (n, 3, side, side) to (n, dim), its concatenated `parts`, with its resize rule.

    `names` and `dims` are those of its layers. The network is moved, converted to their precision and frozen. A layer is
    comparable if numbers were published with its precision and resize rule.
    """

    thread_safe = True

    def __init__(
        self,
        network: nn.Module,
        names: Sequence[ExtractorName],
        dims: Sequence[int],
        *,
        rule: InputRule,
        weights: Weights | None,
        device: torch.device,
    ) -> None:
        resize, sha256 = f"{rule.resize.name}-{rule.side}", None if weights is None else weights.sha256
        parts = list[ExtractorInfo]()
        for name, dim in zip(names, dims, strict=True):
            known = BUILT_IN.get(name.base)
            # FD-loss and DiffusionBench name the pooling of models of timm, and resize images by this rule.
            others = known.published if known else ("torch-bicubic-antialias",) if name.pooling else ()
            # No published scores are known for some networks.
            is_published = known is None or known.comparable
            is_published &= name.precision == "float32" and name.resize in (None, *others)
            identity = f"network {_VERSION} {name} {resize} {rule.mean} {rule.std} {sha256}"
            part = ExtractorInfo(
                name=str(name),
                dim=dim,
                resize=resize,
                weights_sha256=sha256,
                comparable=weights is not None and weights.is_published and is_published,
                cache_key=hashlib.sha256(identity.encode()).hexdigest(),
            )
            parts.append(part)
        self.parts, self.info = tuple(parts), parts[0]
        if len(parts) > 1:
            keys = " ".join(str(part.cache_key) for part in parts)
            self.info = replace(
                parts[0],
                name="+".join(part.name for part in parts),
                dim=sum(dims),
                comparable=all(part.comparable for part in parts),
                cache_key=hashlib.sha256(keys.encode()).hexdigest(),
            )
        self.has_unpinned_weights = weights is not None and not weights.is_pinned
        self.name = self.info.name
        self.dim = self.info.dim
        self.device = device
        self.prepares_on_device = self.prepares_stacks = device.type == "cuda" and rule.resize.exact_on_device
        self.rule = rule
        self._precision: torch.dtype = getattr(torch, names[0].precision)
        # Convolutions are faster in it on CPUs, and in 16 bits on tensor cores; other layouts would be copied at each of them.
        convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
        channels_last = bool(convolutions) and (device.type == "cpu" or self._precision != torch.float32)
        # The time of grouped convolutions is that of their memory, of which fewer images fit a cache. torch computes others of 1 x 1
        # pixels faster from 16 images on.
        self.most_on_cpu = 8 if any(each.groups > 1 for each in convolutions) else 16
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        colors = torch.tensor([rule.mean, rule.std], dtype=torch.float32).view(2, 1, 3, 1, 1)
        self._mean, self._std = colors.to(device)
        network.to(self._precision).requires_grad_(False).eval()
        self._network = network.to(device).to(memory_format=self._layout)

    @entry_point
    def __call__(self, images: Tensor) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, dim), on the extractor's device."""
        with state_guard():  # TensorFloat-32 would change the features by 1e-3
            return self.forward(prepare_batch(self, images).to(self.device))

    def prepare(self, image: Tensor) -> Tensor:
        """Resize a uint8 (3, h, w) image to float32 (3, side, side) in 0..255 on its device; or several if `prepares_stacks`."""
        return self.rule.prepare(image)

    def forward(self, batch: Tensor) -> Tensor:
        """Embed prepared images, float32 (n, 3, side, side) on the extractor's device, as float32 (n, dim)."""
        normalized = ((batch - self._mean) / self._std).to(self._precision)
        features: Tensor = self._network(normalized.contiguous(memory_format=self._layout))
        return features.float()


def built_in(
    network: nn.Module,
    names: Sequence[ExtractorName],
    *,
    weights: Weights | None,
    device: torch.device,
    mean: Color = IMAGENET_MEAN,
    std: Color = IMAGENET_STD,
) -> NetworkExtractor:
    """A built-in extractor of one or several layers, with its published resize rule unless the names have another."""
    known = BUILT_IN[names[0].base]
    rule = InputRule(find_rule(names[0].resize or known.resize), known.side, mean, std)
    dims = [BUILT_IN[name.base].dim for name in names]
    return NetworkExtractor(network, names, dims, rule=rule, weights=weights, device=device)


def misfit(name: str, error: Exception) -> WeightsError:
    """The error for weights that do not match the model `name`."""
    reason = " ".join(str(error).split())
    return WeightsError(f"the weights do not match {name}: {reason[:500]}", code="weights-mismatch")


def unknown_model(library: str, model: str, known: Iterable[str], where: str) -> UsageError:
    """The error for an unknown model of `library`."""
    return UsageError(
        f"{library} has no model {model!r}{similar(model, known)}; see {where}", code="unknown-model"
    )
