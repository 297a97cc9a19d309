"""Images, random weights and extractors of genpr with them, for the benchmarks of embedding and the check of a GPU."""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn

import genpr
from genpr.features.extractor import FeatureExtractor
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.weights import load_weights
from genpr.storage import sha256_of_file

_NARROWEST, _WIDEST = 128, 400  # of a crop, in pixels of the photographs, which are 427 high
_GAIN = (0.7, 1.2)
_NOISE = 4.0  # standard deviation in gray levels: a camera's, so that the files do not compress better than photographs


def make_images(folder: Path, *, count: int, size: int, seed: int = 0, suffix: str = ".png") -> None:
    """Write `count` files of `size` x `size` pixels: random crops of scikit-learn's two photographs.

    The crops are flipped, brightened and noisy, so that no two are equal. Every run makes the same crops.
    """
    load_sample_images = importlib.import_module("sklearn.datasets").load_sample_images
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    generator = np.random.default_rng(seed)
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        side = int(generator.integers(_NARROWEST, _WIDEST))
        left, top = (int(generator.integers(0, length - side + 1)) for length in photograph.size)
        crop = photograph.resize((size, size), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
        if generator.random() < 0.5:
            crop = ImageOps.mirror(crop)
        pixels = np.asarray(crop) * generator.uniform(*_GAIN) + generator.normal(0, _NOISE, (size, size, 3))
        image = Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:06d}{suffix}", quality=95)  # which only JPEG has


def load_genpr(extractor: str, weights: Path | None, device: str) -> FeatureExtractor:
    """Load an extractor with any weights; `genpr.load_extractor` accepts only the published ones."""
    if weights is None:
        return genpr.load_extractor(extractor, device=device)
    name = ExtractorName.parse(extractor)
    published = BUILT_IN[name.base].weights
    assert published is not None
    entry = replace(published, size=weights.stat().st_size, sha256=sha256_of_file(weights))
    where = torch.device(device)
    module = importlib.import_module(f"genpr.features.networks.{BUILT_IN[name.base].network}")
    found: FeatureExtractor = module.build(load_weights(entry, weights), names=[name], device=where)
    return found


TIMM_DINOV2 = {
    "dinov2-vits14": "vit_small_patch14_dinov2",
    "dinov2-vitb14": "vit_base_patch14_dinov2",
    "dinov2-vitl14": "vit_large_patch14_dinov2",
}
"""timm's names of the architectures, by extractor."""
_TRAINED_SIDE = 518


def write_random_weights(extractor: str, folder: Path) -> Path | None:
    """Write the weights of an extractor into `folder`, in the published format; None if it has none."""
    base = ExtractorName.parse(extractor).base
    entry = BUILT_IN[base].weights
    if entry is None:
        return None
    path = folder / f"{base}{Path(entry.name).suffix}"
    if not path.exists():
        state = {name: _live_tensor(name, shape) for name, shape in _shapes(base).items()}
        if path.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file(state, path)
        else:
            torch.save(state, path)
    return path


def _shapes(base: str) -> Mapping[str, torch.Size]:
    family = base.partition("-")[0]
    with torch.device("meta"):
        network = _NETWORKS[family](base)
    shapes = {name: value.shape for name, value in network.state_dict().items()}
    if family == "dinov2":  # of training; the published files hold it, timm drops it
        shapes["mask_token"] = torch.Size((1, shapes["cls_token"][-1]))
    return shapes


def _inception(_base: str) -> nn.Module:
    from genpr.features.networks.inception import InceptionNetwork

    return InceptionNetwork()


def _vgg16(_base: str) -> nn.Module:
    from torchvision.models import vgg16

    network: nn.Module = vgg16(weights=None, init_weights=False)
    return network


def _clip(_base: str) -> nn.Module:
    import open_clip

    network: nn.Module = open_clip.CLIP(**open_clip.get_model_config("ViT-B-32"), quick_gelu=True)
    return network


def _dinov2(base: str) -> nn.Module:
    import timm

    return timm.create_model(TIMM_DINOV2[base], img_size=_TRAINED_SIDE, num_classes=0)


_NETWORKS: Mapping[str, Callable[[str], nn.Module]] = {
    "inception": _inception,
    "vgg16": _vgg16,
    "clip": _clip,
    "dinov2": _dinov2,
}


def _live_tensor(name: str, shape: torch.Size) -> Tensor:
    """A random tensor, scaled so that activations neither vanish nor explode; the same for the same name."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    generator = torch.Generator().manual_seed(seed)
    if name.endswith("num_batches_tracked"):
        return torch.tensor(1)
    if name.endswith("running_var"):
        return torch.rand(shape, generator=generator) + 0.5
    value: Tensor = torch.randn(shape, generator=generator)
    if len(shape) > 1 and "pos" not in name:
        return value * math.sqrt(2 / shape[1:].numel())
    if name.endswith(("weight", "gamma")):
        return 1 + 0.2 * value
    return 0.2 * value
