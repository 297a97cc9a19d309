"""genpr and its peers: each loads the given weights and runs its own loop on a folder of images."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from _extractor_weights import TIMM_DINOV2
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import genpr
from genpr.features.extractor import FeatureExtractor
from genpr.features.registry import BUILT_IN, ExtractorName
from genpr.features.weights import load_weights
from genpr.runtime import usable_cores
from genpr.storage import sha256_of_file

Rows: TypeAlias = NDArray[np.floating[Any]]
Embed: TypeAlias = Callable[[Path], Rows]
"""Computes features (n, d) of a folder of images, in the order of file names."""

_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def genpr_embed(extractor: str, weights: Path | None, *, device: str, batch_size: int) -> Embed:
    """`genpr.embed`, which keeps no cache."""
    loaded = load_genpr(extractor, weights, device)
    return lambda folder: genpr.embed(folder, loaded, batch_size=batch_size).numpy()


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


def torch_fidelity(extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """Features by the extraction of torch-fidelity from a folder, without its cache."""
    library = importlib.import_module("torch_fidelity.utils")
    name, layer = {"inception": ("inception-v3-compat", "2048"), "vgg16": ("vgg16", "fc2_relu")}[extractor]
    options = {"cuda": device == "cuda", "verbose": False}
    network = library.create_feature_extractor(
        name, [layer], feature_extractor_weights_path=str(weights), **options
    )

    def embed(folder: Path) -> Rows:
        features: Tensor = library.extract_featuresdict_from_input_id(
            1, network, input1=str(folder), batch_size=batch_size, cache=False, **options
        )[layer]
        return features.numpy()

    return embed


def pytorch_fid(_extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """Features by `get_activations`, with the number of workers of its command line."""
    fid_score: Any = importlib.import_module("pytorch_fid.fid_score")
    inception: Any = importlib.import_module("pytorch_fid.inception")
    # It has no option for a file of weights.
    inception.load_state_dict_from_url = lambda *_args, **_kwargs: torch.load(weights)
    network = inception.InceptionV3([inception.InceptionV3.BLOCK_INDEX_BY_DIM[2048]]).to(device)
    fid_score.tqdm = _no_bar

    def embed(folder: Path) -> Rows:
        activations: Rows = fid_score.get_activations(
            _files(folder), network, batch_size=batch_size, device=device, num_workers=_workers()
        )
        return activations

    return embed


def open_clip(_extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """`encode_image` on what its own preprocessing gives, as its README shows, in float32 and not normalized."""
    import open_clip as library

    network, _, preprocess = library.create_model_and_transforms(
        "ViT-B-32", pretrained=str(weights), force_quick_gelu=True, device=device
    )
    network.eval()
    return _loader_loop(network.encode_image, preprocess, device=device, batch_size=batch_size)


def dgm_eval(extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """The loop and the transform of dgm-eval, around timm's build of the network that it takes from torch.hub.

    timm's attention is fused; that of the hub is so only where xformers is installed.
    """
    from torchvision import transforms

    transform = transforms.Compose(
        [
            transforms.Resize((224, 224), transforms.InterpolationMode.BICUBIC),
            transforms.ToTensor(),
            transforms.Normalize(**_IMAGENET),
        ]
    )
    network = _hub_dinov2(TIMM_DINOV2[extractor], weights).to(device)
    return _loader_loop(network, transform, device=device, batch_size=batch_size)


def _hub_dinov2(architecture: str, weights: Path) -> nn.Module:
    """Load the model with position embeddings resampled as by `interpolate_pos_encoding` of its authors."""
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    state = torch.load(weights)
    network: Any = timm.create_model(architecture, img_size=224, num_classes=0)
    positions = state["pos_embed"]
    grid = positions[:, 1:].reshape(1, 37, 37, -1).permute(0, 3, 1, 2)
    factor = (16 + 0.1) / 37
    grid = nn.functional.interpolate(grid, scale_factor=(factor, factor), mode="bicubic")
    state["pos_embed"] = torch.cat([positions[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)
    network.load_state_dict(checkpoint_filter_fn(state, network))
    evaluated: nn.Module = network.eval()
    return evaluated


class _ImageFiles(torch.utils.data.Dataset[Tensor]):
    def __init__(self, files: list[str], transform: Callable[[Image.Image], Tensor]) -> None:
        self._files = files
        self._transform = transform

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Tensor:
        return self._transform(Image.open(self._files[index]).convert("RGB"))


def _loader_loop(
    network: Callable[[Tensor], Tensor],
    transform: Callable[[Image.Image], Tensor],
    *,
    device: str,
    batch_size: int,
) -> Embed:
    """A DataLoader in front of a network, with the workers of pytorch-fid and dgm-eval."""

    def embed(folder: Path) -> Rows:
        loader = torch.utils.data.DataLoader(
            _ImageFiles(_files(folder), transform),
            batch_size=batch_size,
            num_workers=_workers(),
            pin_memory=device == "cuda",
        )
        with torch.no_grad():
            rows = [network(batch.to(device, non_blocking=True)).cpu() for batch in loader]
        return torch.cat(rows).numpy()

    return embed


def _files(folder: Path) -> list[str]:
    return sorted(map(str, folder.iterdir()))


def _workers() -> int:
    return min(usable_cores(), 8)


def _no_bar(batches: Any) -> Any:  # noqa: ANN401 - any iterable, given back
    return batches
