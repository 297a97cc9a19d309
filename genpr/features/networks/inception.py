"""The Inception network of FID: the 2015 classifier whose pool3 features published FIDs use.

Inception-v3 (Szegedy et al. 2015, arXiv:1512.00567) as trained for the `inception-2015-12-05` graph. It differs from
torchvision's: 1008 classes, no auxiliary head, average pools without padding, and a max pool instead of an average pool in the
last block. Module names are those of the published state dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.resize import find_rule
from genpr.features.weights import Weights

SIZE = 299

_Kernel = tuple[int, int]
_1x1, _3x3, _5x5, _1x3, _3x1, _1x7, _7x1 = (1, 1), (3, 3), (5, 5), (1, 3), (3, 1), (1, 7), (7, 1)

_Step = tuple[int, *tuple[_Kernel, ...]]
"""Output channels and kernel of a convolution; with a second kernel, both are applied and concatenated."""


class _Branch(NamedTuple):
    """One path through a block: an optional pool, then a sequence of convolutions."""

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
    """Convolution, batch normalization, ReLU."""

    def __init__(
        self, inputs: int, outputs: int, kernel: _Kernel, *, stride: int = 1, pad: bool = True
    ) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2) if pad else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn: nn.BatchNorm2d | nn.Identity = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.bn(self.conv(x)))

    def fold(self) -> None:
        """Fold batch normalization into the kernels, which saves one pass and changes only the rounding."""
        if isinstance(self.bn, nn.BatchNorm2d):
            self.conv = fuse_conv_bn_eval(self.conv, self.bn)
            self.bn = nn.Identity()


class _Mixed(nn.Module):
    """Parallel branches, concatenated along the channels; `outputs` is the number of channels."""

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


_LAYERS: Mapping[str, str] = MappingProxyType(
    {
        "inception": "pool3",
        "inception-768": "mixed-6e",
        "inception-192": "max-pool-2",
        "inception-64": "max-pool-1",
        "inception-spatial": "spatial",
        "inception-softmax": "softmax",
    }
)
_SPATIAL_CHANNELS = 7


class InceptionNetwork(nn.Module):
    """From normalized 299 x 299 images to the concatenated named layers.

    "spatial" is the first 7 channels of 17 x 17 positions of the 1 x 1 branch of Mixed_6d, `mixed_6/conv` in the TensorFlow
    graph, channels last (sFID, Nash et al. 2021). "softmax" has no bias in its logits, as in the Inception Score.
    """

    def __init__(self, layers: Sequence[str] = ("pool3",)) -> None:
        super().__init__()
        self._layers = tuple(layers)
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
        self.fc = nn.Linear(channels, 1008)  # the bias is in the published file but not used

    def forward(self, x: Tensor) -> Tensor:
        """Turn float32 (n, 3, 299, 299) in -1..1 into float32 (n, sum of the layers)."""
        outputs = {}
        for name, value in self._walk(x):
            if name in self._layers:
                outputs[name] = value()
            if len(outputs) == len(self._layers):  # deeper layers are not needed
                break
        return _join([outputs[name] for name in self._layers])

    def _walk(self, x: Tensor) -> Iterator[tuple[str, Callable[[], Tensor]]]:
        """The layers, from shallow to deep."""
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = F.max_pool2d(x, 3, stride=2)
        yield "max-pool-1", partial(_mean, x)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x))
        x = F.max_pool2d(x, 3, stride=2)
        yield "max-pool-2", partial(_mean, x)
        for name in _BLOCKS:
            if name == "Mixed_6d":
                yield "spatial", partial(self._spatial, x)
            x = self.get_submodule(name)(x)
            if name == "Mixed_6e":
                yield "mixed-6e", partial(_mean, x)
        pooled = _mean(x)
        yield "pool3", lambda: pooled
        yield "softmax", lambda: F.linear(pooled, self.fc.weight).softmax(1)

    def _spatial(self, x: Tensor) -> Tensor:
        branch = self.get_submodule("Mixed_6d.branch1x1")
        maps: Tensor = branch(x)[:, :_SPATIAL_CHANNELS]
        return maps.permute(0, 2, 3, 1).flatten(1)


def _mean(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """One or several layers of the FID Inception, with TensorFlow 1's resize as in published numbers."""
    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        network = InceptionNetwork([_LAYERS[name.base] for name in names])
    network.load_state_dict(weights.tensors, strict=True, assign=True)
    for module in network.eval().modules():
        if isinstance(module, _Conv):
            module.fold()
    resize = names[0].resize or "tf1-bilinear"
    # pytorch-fid maps 0..255 to -1..1 exactly; all others subtract 128 and divide by 128.
    middle = 127.5 if resize == "torch-bilinear" else 128.0
    rule = InputRule(find_rule(resize), SIZE, mean=(middle,) * 3, std=(middle,) * 3, channels_last=True)
    dims = [BUILT_IN[name.base].dim for name in names]
    return NetworkExtractor(network, names, dims, rule=rule, weights=weights, device=device)
