"""docs/protocols.md: every line of genpr runs, on stand-in files and with small random networks for the published ones."""

import json
import pickle
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from genpr.cli.main import run
from genpr.conditional import align
from genpr.evaluation import protocols, reconstruction
from genpr.features import registry
from genpr.features.extractor import ExtractorInfo
from genpr.features.networks.network import InputRule, NetworkExtractor
from genpr.features.representations import FDR6
from genpr.features.resize import find_rule

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "protocols.md").read_text().partition("| verified how |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| .+ \|$", TABLE, re.MULTILINE)
LINES = re.findall(r"`(genpr [^`]+)`", TABLE)
WIDTH, N = 6, 10


class Projection(nn.Module):
    """Random features of mean colors; those called softmax sum to 1."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        weight = torch.randn(len(names), 12, WIDTH, generator=torch.Generator().manual_seed(0))
        self.register_buffer("weight", weight)

    def forward(self, images):
        means = nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
        layers = zip(self.names, means @ self.weight, strict=True)
        return torch.cat([x.softmax(1) if "softmax" in name else x.relu() for name, x in layers], dim=1)


def build(_weights, *, names, device):
    known = registry.BUILT_IN.get(names[0].base)
    rule = InputRule(find_rule(names[0].resize or known.resize), 32, (0.5,) * 3, (0.2,) * 3)
    network = Projection([name.base for name in names])
    return NetworkExtractor(network, names, [WIDTH] * len(names), rule=rule, weights=None, device=device)


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
        return (real.double() - fake.double()).abs().mean(dim=(1, 2, 3))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Networks without weights, and a protocol whose captions are few."""
    for network in {each.network for each in registry.BUILT_IN.values()}:
        module = SimpleNamespace(build=build, published_weights=lambda _: ())
        monkeypatch.setitem(sys.modules, f"genpr.features.networks.{network}", module)
    known = {name: replace(each, dim=WIDTH, side=32) for name, each in registry.BUILT_IN.items()}
    monkeypatch.setattr(registry, "BUILT_IN", MappingProxyType(known))
    for each in ("find_or_fetch", "load_any_weights"):
        monkeypatch.setattr(registry, each, lambda *_, **__: None)
    coco = replace(protocols.find_protocol("coco30k"), n_fake=N)
    monkeypatch.setattr(protocols, "PROTOCOLS", {**protocols.PROTOCOLS, "coco30k": coco})
    monkeypatch.setattr(align, "text_encoder_for", lambda *_: Words())
    monkeypatch.setattr(reconstruction, "find_or_fetch", lambda *_, **__: Path())
    monkeypatch.setattr(reconstruction, "load_weights", lambda *_: None)
    monkeypatch.setattr(reconstruction, "PerceptualDistance", lambda *_: Difference())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Everything that the lines name."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    copies = {"real": "adm10k imagenet-val-prc train50k val2014 train val", "samples": "recon"}
    pixels = {}
    for name, most in (("real", 256), ("samples", 220)):
        pixels[name] = rng.integers(0, most, (N, 16, 16, 3), dtype=np.uint8)
        (folder / name).mkdir()
        for row, image in enumerate(pixels[name]):
            Image.fromarray(image).save(folder / name / f"{row:05d}.png")
        for copy in copies[name].split():
            shutil.copytree(folder / name, folder / copy)
    moments = {"mu": np.zeros(WIDTH, np.float32), "sigma": np.eye(WIDTH)}
    batch = {"arr_0": pixels["real"], "mu_s": moments["mu"], "sigma_s": moments["sigma"], **moments}
    np.savez(folder / "VIRTUAL_imagenet256_labeled.npz", **batch)
    np.savez(folder / "samples.npz", arr_0=pixels["samples"])
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
    for name in ("real", "fake"):
        np.save(folder / f"{name}.npy", rng.normal(size=(N, WIDTH)))
    shutil.make_archive(str(folder / "data"), "zip", folder / "real")
    (folder / "captions.txt").write_text("".join(f"{'abcdef'[row % 6]} {row}\n" for row in range(N)))
    return folder


@pytest.mark.parametrize("line", LINES)
def test_the_line_of_a_repository_runs(line, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    asked = shlex.split(line)[1:]
    assert run([*asked, "--json"]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out)
    if asked[0] == "stats":
        assert {moments["dim"] for moments in result["moments"]} == {WIDTH}
        assert result["n"] == N
        return
    for found in result.get("results", {"": result}).values():  # of a panel, or the only one
        assert all(np.isfinite(metric["value"]) for metric in found["metrics"].values())
        if "--protocol" in asked and "--metrics" not in asked and asked[0] == "score":
            name = asked[asked.index("--protocol") + 1]
            needed = set(protocols.find_protocol(name).metrics)
            assert needed == found["metrics"].keys()


def test_every_repository_has_a_line_and_says_how_it_was_verified():
    assert len(ROWS) >= 17
    for row in ROWS:
        assert re.match(r"\| [^|]+ \| `.+ \| `genpr .+ \| a", row), row


def test_the_files_of_fdr6_are_those_that_its_page_lists():
    page = (ROOT / "docs" / "representations.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| ([\d.]+) \| `([^`]+)` \|$", page, re.MULTILINE)
    assert [(name, of, float(fd), file) for name, of, fd, file in rows] == [
        (each.name, each.extractor, each.validation_fd, each.statistics) for each in FDR6
    ]
