"""LPIPS with random weights: its tensors, and files of them in place of the published ones."""

import hashlib
from dataclasses import replace

import pytest
import torch
from random_weights import random_state

from genpr.features import known_weights


def lpips_state(net):
    """Tensors of the backbone, named as in torchvision, and of the linear layers."""
    from torchvision import models

    build, options = (models.vgg16, {"init_weights": False}) if net == "vgg" else (models.alexnet, {})
    with torch.device("meta"):
        shapes = build(**options).features.state_dict()
    channels = (64, 128, 256, 512, 512) if net == "vgg" else (64, 192, 384, 256, 256)
    with torch.device("cpu"):
        backbone = {f"features.{name}": value for name, value in random_state(shapes).items()}
        generator = torch.Generator().manual_seed(1)
        linear = {
            f"lin{place}.model.1.weight": torch.rand(1, count, 1, 1, generator=generator, dtype=torch.float32)
            for place, count in enumerate(channels)
        }
    return backbone, linear


def replaced_lpips(folder, patch: pytest.MonkeyPatch, net="alex"):
    """Replace the files of the catalog by ones with random weights, in a folder."""
    entries = []
    for entry, tensors in zip(known_weights.LPIPS[net], lpips_state(net), strict=True):
        torch.save(tensors, folder / entry.name)
        data = (folder / entry.name).read_bytes()
        entries.append(replace(entry, size=len(data), sha256=hashlib.sha256(data).hexdigest()))
    patch.setitem(known_weights.LPIPS, net, tuple(entries))
    return folder
