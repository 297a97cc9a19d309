"""The resize rules of published protocols by name.

The rule is part of an extractor: scores of one network with two rules are not comparable. Every rule takes one uint8 image of
any size and returns a float32 square on the same device; the result is bit-identical on all devices. Rules round to 8 bits
only if the protocol does so. They are thread-safe.

References:
    tf1-bilinear: TensorFlow 1.x, core/kernels/resize_bilinear_op.cc; torch-fidelity, ADM's and StyleGAN's Inception.
    torch-bilinear: pytorch-fid 0.3, inception.py; dgm-eval's Inception; clean-fid's mode "legacy_pytorch".
    torch-bilinear-antialias: torchmetrics >= 1.8 (pull request 3177), image/fid.py.
    pil-bicubic-float: G. Parmar et al., On Aliased Resizing and Surprising Subtleties in GAN Evaluation, 2022.
    pil-bicubic-uint8: G. Stein et al., Exposing flaws of generative model evaluation metrics, 2023 (dgm-eval).
    torch-bicubic-antialias: T. Karras et al., Analyzing and Improving the Training Dynamics of Diffusion Models,
    2024 (EDM2), calculate_metrics.py.
    clip: A. Radford et al., Learning Transferable Visual Models From Natural Language Supervision, 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from genpr.errors import ImageError, UsageError, similar
from genpr.images.decode import pillow_guard
from genpr.images.loading import Pixels

_BICUBIC = Image.Resampling.BICUBIC
# Pixels of a resized image before its center crop; exceeded from an aspect ratio of 1,300:1.
_MAX_RESIZED = 2**26


@dataclass(frozen=True, slots=True)
class ResizeRule:
    """From uint8 (3, h, w) and a side to float32 (3, side, side) on the image's device, in 0..255.

    Only torch-bicubic-antialias overshoots, as published. A rule with `exact_on_device` runs on CUDA with the bits of the CPU,
    also for several images of one size, (n, 3, h, w); other rules copy images from CUDA to the CPU and back.
    """

    name: str
    resize: Callable[[Tensor, int], Tensor]
    exact_on_device: bool = False


def as_tensor(pixels: Pixels) -> Tensor:
    """Decoded pixels, uint8 (h, w, 3), as a view (3, h, w); prepared ones as they are."""
    if isinstance(pixels, Tensor):
        return pixels
    tensor = torch.from_numpy(pixels)
    return tensor.permute(2, 0, 1) if tensor.dtype == torch.uint8 else tensor


def prepare_decoded(prepare: Callable[[Tensor], Tensor], pixels: Pixels) -> Tensor:
    """Apply the `prepare` of an extractor to decoded pixels, uint8 (h, w, 3)."""
    with torch.inference_mode():  # each thread has its own mode
        return prepare(as_tensor(pixels))


def find_rule(name: str) -> ResizeRule:
    """The rule with a name."""
    if name not in RESIZE_RULES:
        known = ", ".join(RESIZE_RULES)
        raise UsageError(
            f"unknown resize rule {name!r}{similar(name, RESIZE_RULES)}; known are {known}",
            code="unknown-resize",
        )
    return RESIZE_RULES[name]


def tf1_bilinear(image: Tensor, size: int) -> Tensor:
    """Resize as TensorFlow 1's ResizeBilinear, the rule of published FID and pool3 numbers.

    Output pixel i blends the two neighbors of input position i * (old / new), without the half-pixel shift and without
    antialiasing, in TensorFlow's float32 arithmetic: along the width first, then along the height.
    """
    return _bilinear(image, size, shift=0.0)


def torch_bilinear(image: Tensor, size: int) -> Tensor:
    """Resize as torch's bilinear interpolation without antialiasing does, which pytorch-fid uses.

    Pixels are squares here: output pixel i is at input position (i + 1/2) * (old / new) - 1/2. Positions are bit-identical to
    torch's; values, which torch blends in another order, differ by up to 5e-5 gray levels.
    """
    return _bilinear(image, size, shift=0.5)


class _Taps(NamedTuple):
    """The two input positions that each output position blends, and the float32 `weight` of the second."""

    before: Tensor
    after: Tensor  # equal to `before` at the border
    weight: Tensor
    used: Tensor  # all input positions that are blended, ascending
    before_in_used: Tensor  # index of `before` in `used`
    after_in_used: Tensor


@lru_cache(maxsize=512)
def _taps(old: int, new: int, shift: float, device: torch.device) -> _Taps:
    """The taps of one axis; `shift` is the distance of a pixel's center from its index."""
    # In float64 the product is exact, so there is one rounding to float32. TensorFlow's i * scale has one, too,
    # and so has torch's (i + 1/2) * scale - 1/2, which compilers fuse: two would cost 0.004 gray levels.
    scale = torch.tensor(old / new, dtype=torch.float32, device="cpu").double()
    index = torch.arange(new, dtype=torch.float64, device="cpu")
    position = ((index + shift) * scale - shift).float().clamp_min_(0)
    before = position.long()
    after = (before + 1).clamp_max_(old - 1)
    used, inverse = torch.unique(torch.cat((before, after)), return_inverse=True)
    weight = (position - before).to(device)  # cached, since a copy waits for the work on the device
    indices = torch.cat((before, after, used, inverse)).to(device)
    parts = torch.split(indices, [new, new, len(used), new, new])
    return _Taps(parts[0], parts[1], weight, *parts[2:])


def _bilinear(image: Tensor, size: int, *, shift: float) -> Tensor:
    rows = _taps(image.shape[-2], size, shift, image.device)
    columns = _taps(image.shape[-1], size, shift, image.device)
    resized = torch.empty((*image.shape[:-2], size, size), dtype=torch.float32, device=image.device)
    # On a CPU, single planes fit the cache of a core, which is 1.5 times as fast; a GPU needs few kernels.
    if image.device.type == "cpu":
        for plane, result in zip(image.flatten(0, -3), resized.flatten(0, -3), strict=True):
            _blend_neighbors(plane, rows, columns, result)
    else:
        _blend_neighbors(image, rows, columns, resized)
    return resized


def _blend_neighbors(planes: Tensor, rows: _Taps, columns: _Taps, result: Tensor) -> None:
    """Fill `result`, float32 (..., size, size), from uint8 (..., h, w): along the width, then along the height."""
    # Neighboring outputs share rows, so each used row is resized once.
    lines = planes.index_select(-2, rows.used).float()
    start, end = lines.index_select(-1, columns.before), lines.index_select(-1, columns.after)
    lines = _blend(start, end, columns.weight)
    start = lines.index_select(-2, rows.before_in_used)
    torch.index_select(lines, -2, rows.after_in_used, out=result)
    _blend(start, result, rows.weight[:, None])


def _blend(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """`start + (end - start) * weight` in place of `end`; in separate steps, so that no device fuses them."""
    return end.sub_(start).mul_(weight).add_(start)


def torch_antialias(image: Tensor, size: int, *, filter_name: Literal["bilinear", "bicubic"]) -> Tensor:
    """Resize with torch's antialiased filter, on the CPU, since CUDA would round differently; the bicubic one overshoots."""
    # Single planes give the same bits, are faster, and take a third of the memory, one gigabyte for the largest images.
    resized = torch.empty((3, size, size), dtype=torch.float32, device="cpu")
    for plane, result in zip(image.cpu(), resized, strict=True):
        floats = plane.to(torch.float32, memory_format=torch.contiguous_format)[None, None]
        filtered = F.interpolate(floats, (size, size), mode=filter_name, align_corners=False, antialias=True)
        result.copy_(filtered[0, 0])
    return resized.to(image.device)


def _pil_bicubic_float(image: Tensor, size: int) -> Tensor:
    """Filter each channel as 32-bit floats in Pillow, and clip the overshoot."""
    resized = np.empty((3, size, size), np.float32)
    for plane, result in zip(image.cpu(), resized, strict=True):
        floats = plane.to(torch.float32, memory_format=torch.contiguous_format).numpy()
        filtered = Image.fromarray(floats).resize((size, size), _BICUBIC)
        np.clip(np.asarray(filtered), 0, 255, out=result)
    return torch.from_numpy(resized).to(image.device)


def _resize_and_crop(
    image: Tensor, side: int, *, filter_: Image.Resampling = _BICUBIC, crop: float = 1.0, squash: bool = False
) -> Tensor:
    """Apply torchvision's `Resize` and `CenterCrop` on 8-bit Pillow images, which are rounded after each axis."""
    height, width = image.shape[1:]
    scaled, shorter = int(side / crop), min(height, width)  # as timm rounds it
    if squash:
        height = width = scaled
    else:  # torchvision truncates
        height, width = scaled * height // shorter, scaled * width // shorter
    if height * width > _MAX_RESIZED:  # a line of 65,535 pixels would become 3 gigapixels
        text = f"an image of {tuple(image.shape[1:])} pixels has an aspect ratio too large for a center crop; crop it first"
        raise ImageError(text, code="image-too-large")
    top, left = round((height - side) / 2), round((width - side) / 2)  # as torchvision, halves to even
    pixels = image.cpu().permute(1, 2, 0).contiguous().numpy()
    whole = Image.fromarray(pixels).resize((width, height), filter_)
    with pillow_guard:  # a crop applies Pillow's limit of pixels
        pixels = np.array(whole.crop((left, top, left + side, top + side)))
    middle = torch.from_numpy(pixels).permute(2, 0, 1)
    return middle.to(torch.float32, memory_format=torch.contiguous_format).to(image.device)


_RULES = (
    ResizeRule("tf1-bilinear", tf1_bilinear, exact_on_device=True),
    ResizeRule("torch-bilinear", torch_bilinear, exact_on_device=True),
    ResizeRule("torch-bilinear-antialias", partial(torch_antialias, filter_name="bilinear")),
    ResizeRule("pil-bicubic-float", _pil_bicubic_float),
    ResizeRule("pil-bicubic-uint8", partial(_resize_and_crop, squash=True)),
    ResizeRule("torch-bicubic-antialias", partial(torch_antialias, filter_name="bicubic")),
    ResizeRule("clip", _resize_and_crop),
)

RESIZE_RULES: Mapping[str, ResizeRule] = {rule.name: rule for rule in _RULES}
"""All rules by name."""


def pillow_rule(family: str, interpolation: str, *, crop: float = 1.0, squash: bool = False) -> ResizeRule:
    """The rule with a center crop of a share `crop` of the shorter side, or of a resized square with `squash`."""
    name = f"{family}-{interpolation}-{crop}{'-squash' if squash else ''}"
    if interpolation.upper() not in Image.Resampling.__members__ or not 0 < crop <= 1:
        raise UsageError(f"resize rule {name!r} is not supported", code="unsupported-model")
    filter_ = Image.Resampling[interpolation.upper()]
    return ResizeRule(name, partial(_resize_and_crop, filter_=filter_, crop=crop, squash=squash))
