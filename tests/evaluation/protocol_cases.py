"""Inception with random weights in place of the published ones, so that whole protocols run without a download."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from random_weights import random_state

from genpr.evaluation.evaluator import score_with
from genpr.evaluation.options import ScoreOptions
from genpr.features import registry
from genpr.features.known_weights import INCEPTION_2015
from genpr.features.networks import inception


def replaced_inception(folder: Path) -> Iterator[Path]:
    """Within this generator the catalog knows a random Inception, and each network is built once; gives its weights file."""
    path = folder / INCEPTION_2015.name
    with torch.device("meta"):
        shapes = inception.InceptionNetwork().state_dict()
    torch.save(random_state(shapes), path)
    data = path.read_bytes()
    entry = replace(INCEPTION_2015, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    known = {
        name: replace(item, weights=entry) if item.weights is INCEPTION_2015 else item
        for name, item in registry.BUILT_IN.items()
    }
    build, built = inception.build, {}

    def build_once(weights, *, names, device):
        key = (*names, str(device))
        built[key] = built.get(key) or build(weights, names=names, device=device)
        return built[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "BUILT_IN", MappingProxyType(known))
        patch.setattr(inception, "build", build_once)
        yield path


def score_protocols(real, fake, *, protocols, **options):
    """The results of several protocols in one run."""
    choices = [ScoreOptions(protocol=name, **options) for name in protocols]
    results = [each.result for each in score_with(real, fake, choices)]
    return {result.protocol: result for result in results}
