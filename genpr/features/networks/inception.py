"""The Inception network of FID: the 2015 classifier whose pool3 features published FIDs use.

Inception-v3 (Szegedy et al. 2015, arXiv:1512.00567) as trained for the `inception-2015-12-05` graph. It differs from that of
torchvision, whose blocks are used: 1008 classes, no auxiliary head, average pools without padding, and a max pool instead of an
average pool in the last block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models.inception import (
    BasicConv2d,
    Inception3,
    InceptionA,
    InceptionAux,
    InceptionB,
    InceptionC,
    InceptionD,
    InceptionE,
)

from genpr.features.networks.network import NetworkExtractor, built_in
from genpr.features.registry import ExtractorName
from genpr.features.weights import Weights


def _mean_pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class _BlockA(InceptionA):  # type: ignore[misc] # untyped
    def _forward(self, x: Tensor) -> list[Tensor]:
        small = self.branch5x5_2(self.branch5x5_1(x))
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return [self.branch1x1(x), small, double, self.branch_pool(_mean_pool(x))]


class _BlockC(InceptionC):  # type: ignore[misc] # untyped
    def _forward(self, x: Tensor) -> list[Tensor]:
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return [self.branch1x1(x), single, double, self.branch_pool(_mean_pool(x))]


class _BlockE(InceptionE):  # type: ignore[misc] # untyped
    has_max_pool = False

    def _forward(self, x: Tensor) -> list[Tensor]:
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = F.max_pool2d(x, 3, stride=1, padding=1) if self.has_max_pool else _mean_pool(x)
        return [
            *(self.branch1x1(x), self.branch3x3_2a(single), self.branch3x3_2b(single)),
            *(self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double), self.branch_pool(pooled)),
        ]


_LAYERS: Mapping[str, str] = {
    "inception": "pool3",
    "inception-768": "mixed-6e",
    "inception-192": "max-pool-2",
    "inception-64": "max-pool-1",
    "inception-spatial": "spatial",
    "inception-softmax": "softmax",
}
_SPATIAL_CHANNELS = 7


class InceptionNetwork(Inception3):  # type: ignore[misc] # untyped
    """From normalized 299 x 299 images to the concatenated named layers.

    "spatial" is the first 7 channels of 17 x 17 positions of the 1 x 1 branch of Mixed_6d, `mixed_6/conv` in the TensorFlow
    graph, channels last (sFID, Nash et al. 2021). "softmax" has no bias in its logits, as in the Inception Score.
    """

    def __init__(self, layers: Sequence[str] = ("pool3",)) -> None:
        blocks = [BasicConv2d, _BlockA, InceptionB, _BlockC, InceptionD, _BlockE, InceptionAux]
        super().__init__(num_classes=1008, aux_logits=False, inception_blocks=blocks, init_weights=False)
        self.Mixed_7c.has_max_pool = True
        self._layers = tuple(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Turn float32 (n, 3, 299, 299) in -1..1 into float32 (n, sum of the layers)."""
        outputs = {}
        for name, value in self._walk(x):
            if name in self._layers:
                outputs[name] = value()
            if len(outputs) == len(self._layers):  # deeper layers are not needed
                break
        rows = [outputs[name] for name in self._layers]
        return rows[0] if len(rows) == 1 else torch.cat(rows, 1)

    def _walk(self, x: Tensor) -> Iterator[tuple[str, Callable[[], Tensor]]]:
        """The layers, from shallow to deep."""
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.maxpool1(x)
        yield "max-pool-1", partial(_mean, x)
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        yield "max-pool-2", partial(_mean, x)
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6c(self.Mixed_6b(x))
        yield "spatial", partial(self._spatial, x)
        x = self.Mixed_6e(self.Mixed_6d(x))
        yield "mixed-6e", partial(_mean, x)
        pooled = _mean(self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))))
        yield "pool3", lambda: pooled
        yield "softmax", lambda: F.linear(pooled, self.fc.weight).softmax(1)

    def _spatial(self, x: Tensor) -> Tensor:
        maps: Tensor = self.Mixed_6d.branch1x1(x)[:, :_SPATIAL_CHANNELS]
        return maps.permute(0, 2, 3, 1).flatten(1)


def _mean(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def build(weights: Weights, *, names: Sequence[ExtractorName], device: torch.device) -> NetworkExtractor:
    """One or several layers of the FID Inception, with TensorFlow 1's resize as in published numbers."""
    with torch.device("meta"):  # the published tensors become the parameters: nothing to initialize
        network = InceptionNetwork([_LAYERS[name.base] for name in names])
    network.load_state_dict(weights.tensors, strict=True, assign=True)
    for module in network.eval().modules():
        if isinstance(module, BasicConv2d):  # saves one pass over its output, and changes only the rounding
            module.conv, module.bn = fuse_conv_bn_eval(module.conv, module.bn), nn.Identity()
    # pytorch-fid maps 0..255 to -1..1 exactly; all others subtract 128 and divide by 128.
    middle = (127.5 if names[0].resize == "torch-bilinear" else 128.0,) * 3
    return built_in(network, names, weights=weights, device=device, mean=middle, std=middle)
