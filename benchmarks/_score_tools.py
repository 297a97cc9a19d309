"""The commands that bench_score.py compares, their values, and random Inception weights in the forms that they read."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from _embedding import write_random_weights
from torch import Tensor, nn

from genpr.features.known_weights import INCEPTION_2015
from genpr.features.networks.inception import InceptionNetwork
from genpr.runtime import usable_cores
from genpr.storage import sha256_of_file

Values: TypeAlias = Mapping[str, float]
"""Metrics by their names in genpr."""

_DRIVER = str(Path(__file__).with_name("_score_commands.py"))


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a command reads, and how; `folder` is that of `write_weights`."""

    real: Path
    fake: Path
    folder: Path
    weights: Path
    device: str
    workers: int | None


Command: TypeAlias = Callable[[Inputs, Path], list[str]]
"""The words of a command, with the folder of its cache."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command, and its values from what it prints."""

    name: str
    command: Command
    values: Callable[[str], Values]


@dataclass(frozen=True, slots=True)
class Peer(Tool):
    """Another tool, and options of `genpr score` with the same values."""

    module: str  # that must be installed
    options: str
    has_cache: bool = False

    @property
    def genpr(self) -> Tool:
        """`genpr score` with these options."""
        return Tool("genpr", partial(_genpr, options=self.options), _genpr_values)


def _genpr(inputs: Inputs, cache: Path, *, options: str) -> list[str]:
    weights = inputs.weights
    driver = [sys.executable, _DRIVER, "genpr", sha256_of_file(weights), str(weights.stat().st_size)]
    command = ["score", str(inputs.real), str(inputs.fake), *options.split(), "--json"]
    return [
        *(*driver, *command, "--weights", str(weights)),
        *("--device", inputs.device, "--cache-dir", str(cache)),
    ]


def _genpr_values(output: str) -> Values:
    return {name: metric["value"] for name, metric in json.loads(output)["metrics"].items()}


def _torch_fidelity(inputs: Inputs, cache: Path) -> list[str]:
    """`fidelity` with all options that it needs to cache features of folders."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0")  # which --gpu replaces
    return [
        *(sys.executable, "-m", "torch_fidelity.fidelity", "--isc", "--fid", "--prc", "--json"),
        *("--input1", str(inputs.fake), "--input2", str(inputs.real)),
        *(["--cpu"] if inputs.device == "cpu" else ["--gpu", gpu]),
        *("--feature-extractor", "inception-v3-compat"),
        *("--feature-extractor-weights-path", str(inputs.weights)),
        *("--cache-root", str(cache), "--input1-cache-name", "fake", "--input2-cache-name", "real"),
    ]


def _torch_fidelity_values(output: str) -> Values:
    found = json.loads(output)
    shares = {name: found[name] for name in ("precision", "recall")}
    return {"fid": found["frechet_inception_distance"], "is": found["inception_score_mean"], **shares}


def _pytorch_fid(inputs: Inputs, _cache: Path) -> list[str]:
    workers = min(usable_cores(), 8) if inputs.workers is None else inputs.workers  # its default
    options = ["--device", inputs.device, "--num-workers", str(workers)]
    return [sys.executable, "-m", "pytorch_fid", str(inputs.real), str(inputs.fake), *options]


def _clean_fid(inputs: Inputs, _cache: Path) -> list[str]:
    workers = 12 if inputs.workers is None else inputs.workers  # its default
    folders = [str(inputs.folder), str(inputs.real), str(inputs.fake)]
    return [sys.executable, _DRIVER, "clean-fid", *folders, inputs.device, str(workers)]


def _printed_fid(output: str) -> Values:
    return {"fid": float(re.findall(r"^FID:\s*(\S+)$", output, re.MULTILINE)[-1])}


_ALL = "--extractor inception --metrics fid,is,precision,recall --k 3"
_FID = "--extractor inception@{} --metrics fid"
PEERS = (
    Peer("torch-fidelity", _torch_fidelity, _torch_fidelity_values, "torch_fidelity", _ALL, has_cache=True),
    Peer("pytorch-fid", _pytorch_fid, _printed_fid, "pytorch_fid", _FID.format("torch-bilinear")),
    Peer("clean-fid", _clean_fid, _printed_fid, "cleanfid", _FID.format("pil-bicubic-float")),
)


class _Program(nn.Module):
    """The part of clean-fid's TorchScript program that its mode "clean" calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = InceptionNetwork()

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


def write_weights(folder: Path) -> Path:
    """Write random weights, and into the same folder what pytorch-fid (as TORCH_HOME) and clean-fid read in place of a download."""
    path = write_random_weights("inception", folder)
    assert path is not None
    checkpoints = folder / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / INCEPTION_2015.name).symlink_to(path)
    program = _Program().eval()
    program.layers.load_state_dict(torch.load(path))
    trace: Any = torch.jit.trace
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # TorchScript is deprecated
        trace(program, torch.zeros(2, 3, 299, 299)).save(folder / "inception-2015-12-05.pt")
    return path
