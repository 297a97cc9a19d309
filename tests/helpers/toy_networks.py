"""Small random networks in place of the published ones, so that commands on pages run unchanged."""

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import torch
from torch import nn

from genpr.conditional import align, recognition
from genpr.evaluation import protocols, reconstruction
from genpr.features import registry
from genpr.features.extractor import ExtractorInfo
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.representations import FDR6
from genpr.features.resize import RESIZE_RULES

WIDTH = 6
"""Number of features of every network on a page."""


class Projection(nn.Module):
    """Random features of mean colors; those called softmax sum to 1."""

    def __init__(self, names, widths):
        super().__init__()
        self.names = names
        seeded = torch.Generator().manual_seed
        self.weights = nn.ParameterList(torch.randn(12, width, generator=seeded(0)) for width in widths)

    def forward(self, images):
        means = nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
        layers = [(name, means @ weight) for name, weight in zip(self.names, self.weights, strict=True)]
        return torch.cat([x.softmax(1) if "softmax" in name else x.relu() for name, x in layers], dim=1)


def build(weights, *, names, device):
    """In place of that of a network; each layer has the width that the registry knows."""
    known = [registry.BUILT_IN.get(name.base) for name in names]
    widths = [each.dim if each else WIDTH for each in known]
    resize = names[0].resize or (known[0].resize if known[0] else None)
    rule = InputRule(RESIZE_RULES.get(resize, RESIZE_RULES["tf1-bilinear"]), 32, (0.0,) * 3, (128.0,) * 3)
    network = Projection([name.base for name in names], widths)
    return NetworkExtractor(network, names, widths, rule=rule, weights=weights, device=device)


class Words:
    name, dim = "clip-vit-b-32", WIDTH
    info = SimpleNamespace(
        name=name, dim=dim, tokenizer="none", context=None, weights_sha256=None, comparable=False
    )

    def encode_text(self, texts, **_):
        return torch.tensor([[float(text.count(letter)) for letter in "abcdef"] for text in texts]) + 0.1

    def truncated(self, texts):
        return [False] * len(texts)


class Difference:
    """In place of LPIPS."""

    info = ExtractorInfo("lpips-vgg", 1, "none", None, comparable=False)

    def __call__(self, real, fake):
        return self.compared([(real, fake)])

    def activations(self, images):
        return [images]

    def compared(self, layers):
        ((first, second),) = layers
        return (first.double() - second.double()).abs().mean(dim=(1, 2, 3))


def use_toy_networks(monkeypatch, captions):
    """Replace every network, text encoder and LPIPS, and the number of captions of coco30k."""
    published = {name: each for name, each in registry.BUILT_IN.items() if each.weights is not None}
    for network in {each.network for each in published.values()}:
        module = SimpleNamespace(build=build, published_weights=lambda _: ())
        monkeypatch.setitem(sys.modules, f"genpr.features.networks.{network}", module)
    small = {name: replace(each, dim=WIDTH, side=32) for name, each in published.items()}
    monkeypatch.setattr(registry, "BUILT_IN", MappingProxyType(registry.BUILT_IN | small))
    for each in ("find_or_fetch", "load_weights", "load_any_weights"):
        monkeypatch.setattr(registry, each, lambda *_, **__: None)
    coco = replace(protocols.find_protocol("coco30k"), n_fake=captions)
    monkeypatch.setattr(protocols, "PROTOCOLS", {**protocols.PROTOCOLS, "coco30k": coco})
    for module in (align, recognition):
        monkeypatch.setattr(module, "text_encoder_for", lambda *_: Words())
    monkeypatch.setattr(reconstruction, "find_or_fetch", lambda *_, **__: Path())
    monkeypatch.setattr(reconstruction, "load_weights", lambda *_: None)
    monkeypatch.setattr(reconstruction, "PerceptualDistance", lambda *_: Difference())


def write_statistics(folder, pixels):
    """Files of mean and covariance under the names of published ones; `pixels` are the images of ADM's batch."""
    moments = {"mu": np.zeros(WIDTH, np.float32), "sigma": np.eye(WIDTH)}
    batch = {"arr_0": pixels, "mu_s": moments["mu"], "sigma_s": moments["sigma"], **moments}
    np.savez(folder / "VIRTUAL_imagenet256_labeled.npz", **batch)
    for name in ("adm_in256_stats", "jit_in256_stats", "imagenet-64x64"):
        np.savez(folder / f"{name}.npz", **moments)
    np.savez(folder / "imagenet_256_fid_stats.npz", **{f"ref_{key}": each for key, each in moments.items()})
    both = {"num_images": 9, "fid": dict(moments), "fd_dinov2": dict(moments)}
    (folder / "img512.pkl").write_bytes(pickle.dumps(both))
    six = {each.statistics: dict(moments) for each in FDR6}
    (folder / "paper_ref_stats.pkl").write_bytes(pickle.dumps(six))
    (folder / "nanogen-evals-stats").mkdir()
    for name, each in six.items():
        np.savez(folder / "nanogen-evals-stats" / name, **each)


class StyleGAN(nn.Module):
    """A network with the interface of StyleGAN: labels are a required argument."""

    z_dim = 12

    def mapping(self, z, c):
        assert c is None
        return z

    def synthesis(self, w):
        return w.view(-1, 3, 2, 2) / 2


class Pipe:
    """A pipeline with the interface of diffusers."""

    device = torch.device("cpu")

    def __call__(self, *, class_labels, latents, guidance_scale, output_type):
        assert (latents.shape[1:], output_type) == ((4, 32, 32), "np")
        pixels = (latents[:, :3, :8, :8] * guidance_scale + class_labels[:, None, None, None]).sigmoid()
        return SimpleNamespace(images=pixels.permute(0, 2, 3, 1).numpy())
