from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import genpr
from genpr import protocols
from genpr.cli.main import run
from genpr.features.feature_set import FeatureSet, save_features
from genpr.metrics.catalogue import MANIFOLD_METRICS


def save(path, features, **info):
    facts = {
        "name": "gabor",
        "dim": features.shape[1],
        "resize": "r",
        "weights_sha256": None,
        "comparable": False,
        "cache_key": None,
    } | info
    save_features(path, FeatureSet(features, str(path), genpr.ExtractorInfo(**facts)))
    return path


def test_an_evaluator_takes_as_many_reals_as_each_set_of_fakes(rng):
    real, few, many = (rng.normal(size=(n, 6)).astype(np.float32) for n in (60, 40, 60))
    evaluator = genpr.Evaluator(real, protocol="dgm-eval", metrics=MANIFOLD_METRICS)
    for fake in (few, many, few):
        alone = genpr.score(real, fake, protocol="dgm-eval", metrics=MANIFOLD_METRICS)
        assert evaluator.score(fake).to_flat_dict() == alone.to_flat_dict()


def test_a_protocol_gives_the_same_numbers_beside_others(rng, monkeypatch):
    # A larger choice with the same seed contains the smaller one, so both could take the same images.
    changed = {
        "kynkaanniemi2019": replace(protocols.find_protocol("kynkaanniemi2019"), n_real=50, n_fake=50),
        "prdc": replace(protocols.find_protocol("prdc"), max_real=30, max_fake=30),
    }
    monkeypatch.setattr(protocols, "PROTOCOLS", {**protocols.PROTOCOLS, **changed})
    sides = rng.normal(size=(2, 70, 6)).astype(np.float32)
    beside = genpr.score_protocols(*sides, protocols=["kynkaanniemi2019", "prdc"], metrics=["precision"])
    alone = genpr.score(*sides, protocol="prdc", metrics=["precision"])
    assert beside["prdc"].real.content == alone.real.content


def test_no_protocol_is_a_usage_error(rng):
    with pytest.raises(genpr.UsageError, match="no protocol was named"):
        genpr.score_protocols(*rng.normal(size=(2, 20, 4)), protocols=[])
    sides = rng.normal(size=(2, 20, 4))
    assert list(genpr.score_protocols(*sides, protocols="genpr")) == ["genpr"]


def test_files_of_an_extractor_with_a_name_of_its_own_are_scored(tmp_path):
    path = save(tmp_path / "f.safetensors", torch.randn(20, 4), name="my-net")
    assert genpr.score(path, path)["precision"] == 1


def test_files_made_under_a_longer_name_of_the_same_extractor_are_scored(tmp_path):
    path = save(tmp_path / "f.safetensors", torch.randn(20, 4), name="pixels@torch-bicubic-antialias")
    assert genpr.score(path, path)["precision"] == 1


def test_unlabelled_features_of_several_members_are_counted_in_each(tmp_path, rng):
    real, fake = rng.normal(size=(2, 40, 192)).astype(np.float32)
    labelled = [
        save(tmp_path / f"{i}.safetensors", torch.from_numpy(side), name="random-vgg16", members=3)
        for i, side in enumerate((real, fake))
    ]
    expected = genpr.score(*labelled, metrics=["precision"])
    said = genpr.score(real, fake, extractor="random-vgg16", metrics=["precision"])
    assert said["precision"] == expected["precision"]
    mixed = genpr.score(labelled[0], fake, metrics=["precision"])
    assert mixed["precision"] == expected["precision"]


def test_features_of_a_custom_extractor_with_a_name_are_scored(write_images, tmp_path, rng, capsys):
    (tmp_path / "mine.py").write_text(
        "class Net:\n"
        "    name, dim = 'net', 3\n"
        "    def __call__(self, images):\n"
        "        return images.float().mean((2, 3))\n"
    )
    images = write_images("a", rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    out, mine = str(tmp_path / "f.safetensors"), f"{tmp_path / 'mine.py'}:Net"
    assert run(["features", str(images), out, "--extractor", mine, "--device", "cpu", "-q"]) == 0
    assert run(["score", out, out, "-q"]) == 0, capsys.readouterr().err
    assert run(["score", out, out, "-q", "--extractor", mine]) == 0, capsys.readouterr().err


def test_the_spread_over_random_networks_is_called_that_for_kd_too(tmp_path, capsys):
    path = save(tmp_path / "f.safetensors", torch.randn(20, 6), name="random-vgg16", members=3)
    assert run(["score", str(path), str(path), "--metrics", "kd", "-q"]) == 0
    assert "over random networks" in capsys.readouterr().out
