"""The Inception network of FID: the 2015 classifier whose pool3 features the published numbers are built on.

Architecture: Inception-v3 (Szegedy et al. 2015, arXiv:1512.00567) as trained for the `inception-2015-12-05`
graph. It differs from the Inception-v3 of torchvision in four ways: 1008 classes, no auxiliary head, average
pools that leave the padding out of their mean, and a max pool in the last block where the paper averages.
Module names are those of the published state dict.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from genpr.features.extractor import ExtractorInfo, prepare_batch
from genpr.features.resize import tf1_bilinear
from genpr.features.weights import WeightsFile, load_state_dict
from genpr.runtime import state_guard

SIZE = 299

_Kernel = tuple[int, int]
_1x1, _3x3, _5x5, _1x3, _3x1, _1x7, _7x1 = (1, 1), (3, 3), (5, 5), (1, 3), (3, 1), (1, 7), (7, 1)

_Step = tuple[int, *tuple[_Kernel, ...]]
"""Output channels and kernel of a convolution; a second kernel is a fork: both are applied and joined."""


class _Branch(NamedTuple):
    """One path through a block: an optional pool, then convolutions one after the other."""

    name: str
    steps: tuple[_Step, ...] = ()
    pool: Literal["mean", "max"] | None = None


def _block_35(pooled: int) -> tuple[_Branch, ...]:
    return (
        _Branch("branch1x1", ((64, _1x1),)),
        _Branch("branch5x5", ((48, _1x1), (64, _5x5))),
        _Branch("branch3x3dbl", ((64, _1x1), (96, _3x3), (96, _3x3))),
        _Branch("branch_pool", ((pooled, _1x1),), pool="mean"),
    )


def _block_17(width: int) -> tuple[_Branch, ...]:
    there_and_back = ((width, _1x1), (width, _7x1), (width, _1x7), (width, _7x1), (192, _1x7))
    return (
        _Branch("branch1x1", ((192, _1x1),)),
        _Branch("branch7x7", ((width, _1x1), (width, _1x7), (192, _7x1))),
        _Branch("branch7x7dbl", there_and_back),
        _Branch("branch_pool", ((192, _1x1),), pool="mean"),
    )


def _block_8(pool: Literal["mean", "max"]) -> tuple[_Branch, ...]:
    return (
        _Branch("branch1x1", ((320, _1x1),)),
        _Branch("branch3x3", ((384, _1x1), (384, _1x3, _3x1))),
        _Branch("branch3x3dbl", ((448, _1x1), (384, _3x3), (384, _1x3, _3x1))),
        _Branch("branch_pool", ((192, _1x1),), pool=pool),
    )


_BLOCKS = {
    "Mixed_5b": _block_35(32),
    "Mixed_5c": _block_35(64),
    "Mixed_5d": _block_35(64),
    "Mixed_6a": (
        _Branch("branch3x3", ((384, _3x3),)),
        _Branch("branch3x3dbl", ((64, _1x1), (96, _3x3), (96, _3x3))),
        _Branch("branch_pool", pool="max"),
    ),
    "Mixed_6b": _block_17(128),
    "Mixed_6c": _block_17(160),
    "Mixed_6d": _block_17(160),
    "Mixed_6e": _block_17(192),
    "Mixed_7a": (
        _Branch("branch3x3", ((192, _1x1), (320, _3x3))),
        _Branch("branch7x7x3", ((192, _1x1), (192, _1x7), (192, _7x1), (192, _3x3))),
        _Branch("branch_pool", pool="max"),
    ),
    "Mixed_7b": _block_8("mean"),
    "Mixed_7c": _block_8("max"),
}
_HALVING = {"Mixed_6a", "Mixed_7a"}  # their branches end with stride 2 and no padding


class _Conv(nn.Module):
    """Convolution without bias, batch normalisation, ReLU."""

    def __init__(
        self, inputs: int, outputs: int, kernel: _Kernel, *, stride: int = 1, pad: bool = True
    ) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2) if pad else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.bn(self.conv(x)))


class _Mixed(nn.Module):
    """Branches side by side, joined along the channels; `outputs` is how many those are."""

    def __init__(self, inputs: int, branches: tuple[_Branch, ...], *, halving: bool) -> None:
        super().__init__()
        self._halving = halving
        self._branches: list[tuple[str | None, list[list[str]]]] = []
        self.outputs = sum(self._add(branch, inputs) for branch in branches)

    def forward(self, x: Tensor) -> Tensor:
        joined = []
        for pool, steps in self._branches:
            path = self._pool(pool, x)
            for names in steps:
                path = _join([self.get_submodule(name)(path) for name in names])
            joined.append(path)
        return _join(joined)

    def _add(self, branch: _Branch, inputs: int) -> int:
        """Register the convolutions of `branch` under their published names; return its channels."""
        steps = []
        for number, (channels, *kernels) in enumerate(branch.steps, 1):
            stem = branch.name if len(branch.steps) == 1 else f"{branch.name}_{number}"
            names = [stem] if len(kernels) == 1 else [f"{stem}{letter}" for letter in "ab"]
            shrinks = self._halving and number == len(branch.steps)
            for name, kernel in zip(names, kernels, strict=True):
                conv = _Conv(inputs, channels, kernel, stride=2 if shrinks else 1, pad=not shrinks)
                self.add_module(name, conv)
            steps.append(names)
            inputs = channels * len(kernels)
        self._branches.append((branch.pool, steps))
        return inputs

    def _pool(self, kind: str | None, x: Tensor) -> Tensor:
        if kind == "mean":
            return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        if kind == "max":
            return F.max_pool2d(x, 3, stride=2) if self._halving else F.max_pool2d(x, 3, stride=1, padding=1)
        return x


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class InceptionNetwork(nn.Module):
    """From resized images to pool3 features."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = _Conv(3, 32, _3x3, stride=2, pad=False)
        self.Conv2d_2a_3x3 = _Conv(32, 32, _3x3, pad=False)
        self.Conv2d_2b_3x3 = _Conv(32, 64, _3x3)
        self.Conv2d_3b_1x1 = _Conv(64, 80, _1x1)
        self.Conv2d_4a_3x3 = _Conv(80, 192, _3x3, pad=False)
        channels = 192
        for name, branches in _BLOCKS.items():
            block = _Mixed(channels, branches, halving=name in _HALVING)
            self.add_module(name, block)
            channels = block.outputs
        self.fc = nn.Linear(channels, 1008)  # not used for features, but part of the published file

    def forward(self, images: Tensor) -> Tensor:
        """Turn float32 (n, 3, 299, 299) in 0..255 into float32 (n, 2048)."""
        x = (images - 128) / 128
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = F.max_pool2d(x, 3, stride=2)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x))
        x = F.max_pool2d(x, 3, stride=2)
        for name in _BLOCKS:
            x = self.get_submodule(name)(x)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


class InceptionExtractor:
    """pool3 features of the FID Inception, with TensorFlow 1's resize, as the published numbers use them.

    Args:
        entry: The published weights.
        path: Where they lie; they are verified again while they are read.
        device: Where to compute.

    Raises:
        WeightsError: The file is not `entry`.
    """

    name = "inception"
    dim = 2048
    thread_safe = True

    def __init__(self, entry: WeightsFile, path: Path, *, device: torch.device) -> None:
        weights = load_state_dict(entry, path)
        with torch.device("meta"):  # the published tensors become the parameters: nothing to initialise
            network = InceptionNetwork()
        network.load_state_dict(weights, strict=True, assign=True)
        # Channels-last convolutions are 1.4 times as fast on CPU; features differ by 3e-7 of their range.
        self._layout = torch.channels_last if device.type == "cpu" else torch.contiguous_format
        network.float().requires_grad_(False).eval()
        self._network = network.to(device).to(memory_format=self._layout)
        self.device = device
        self.info = ExtractorInfo(
            name=self.name,
            dim=self.dim,
            resize=f"tf1-bilinear-{SIZE}",
            weights_sha256=entry.sha256,
            comparable=True,
            cache_key=hashlib.sha256(f"inception pool3 {entry.sha256}".encode()).hexdigest(),
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, 2048), on the extractor's device."""
        with state_guard():  # TensorFloat-32 would move the features by 1e-3
            return self.forward(prepare_batch(self, images).to(self.device))

    def prepare(self, image: Tensor) -> Tensor:
        """Resize one uint8 (3, h, w) image to float32 (3, 299, 299) in 0..255, on the CPU."""
        return tf1_bilinear(image, SIZE)

    def forward(self, batch: Tensor) -> Tensor:
        """Embed prepared images, float32 (n, 3, 299, 299) on the extractor's device, as float32 (n, 2048)."""
        features: Tensor = self._network(batch.contiguous(memory_format=self._layout))
        return features
