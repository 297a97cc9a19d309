from __future__ import annotations

import os
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from feature_files import save

import genpr
from genpr.errors import FeatureError
from genpr.features.feature_set import FeatureSet, save_features
from genpr.images.source import choose_rows
from genpr.metrics.fakes_only import inception_score, vendi_score
from genpr.metrics.frechet import frechet_distance, frechet_infinity
from genpr.metrics.kernel import cmmd, kernel_distance
from genpr.metrics.registry import METRICS


def gabor(real, fake, **options):
    return genpr.score(real, fake, extractor="gabor", device="cpu", **options)


EXPECTED_COMPANIONS = {
    "fid": frechet_distance,
    "sfid": frechet_distance,
    "kid": lambda real, fake: kernel_distance(real, fake).mean,
    "fd_dinov2": frechet_distance,
    "cmmd": cmmd,
    "fd": frechet_distance,
    "fd_infinity": frechet_infinity,
    "kd": lambda real, fake: kernel_distance(real, fake).mean,
    "is": lambda _, fake: inception_score(fake).mean,
    "vendi": lambda _, fake: vendi_score(fake),
}


def test_every_metric_without_neighbors_is_expected_below():
    assert set(EXPECTED_COMPANIONS) == {
        name for name, info in METRICS.items() if info.kind in {"distance", "fakes-only"}
    }


@pytest.mark.parametrize("metric", EXPECTED_COMPANIONS)
def test_each_metric_of_a_score_is_the_function_of_its_name(rng, metric, monkeypatch):
    monkeypatch.setattr("genpr.features.source_features.dim_of", lambda _name: None)  # five columns will do
    real, fake = (rng.dirichlet([spread] * 5, n).astype(np.float32) for n, spread in ((40, 0.4), (45, 1.0)))
    result = genpr.score(real, fake, metrics=[metric], extractor=METRICS[metric].space, device="cpu")
    assert result[metric] == pytest.approx(EXPECTED_COMPANIONS[metric](real, fake), rel=1e-9)


def test_a_metric_is_the_mean_over_the_members_of_an_extractor(tmp_path, rng):
    real, fake = rng.normal(size=(2, 40, 6)).astype(np.float32)
    fake *= [0.5, 0.5, 1, 1, 2, 2]
    files = [
        save(tmp_path / f"{name}.safetensors", torch.from_numpy(side), name="random-vgg16", members=3)
        for name, side in (("real", real), ("fake", fake))
    ]
    result = genpr.score(*files, metrics=["precision", "recall", "fd", "vendi"])
    for name, metric in result.metrics.items():
        alone = [
            genpr.score(real[:, at : at + 2], fake[:, at : at + 2], metrics=[name])[name] for at in (0, 2, 4)
        ]
        assert len(set(alone)) == 3
        assert metric.value == pytest.approx(statistics.fmean(alone), rel=1e-9)
        assert metric.spread == pytest.approx(statistics.stdev(alone), rel=1e-9)


def test_the_seed_chooses_the_subset_of_images_and_of_features(write_images, rng):
    images = write_images("real", rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8))
    features = rng.normal(size=(30, 3)).astype(np.float32)
    for source, options in ((images, {"extractor": "gabor", "device": "cpu"}), (features, {})):
        first, again, other = (
            genpr.score(source, source, max_images=20, seed=seed, metrics=["precision"], **options)
            for seed in (0, 0, 5)
        )
        assert first.real.content == again.real.content != other.real.content
        assert (first.max_images, other.seed) == (20, 5)
    chosen = features[choose_rows(30, 20, 5)]
    assert other.real.content == genpr.score(chosen, chosen, metrics=["precision"]).real.content


def test_each_side_has_its_own_content(rng):
    one, two = rng.normal(size=(2, 20, 3))
    result, swapped = genpr.score(one, two), genpr.score(two, one)
    assert result.real.content != result.fake.content
    assert (result.real.content, result.fake.content) == (swapped.fake.content, swapped.real.content)


def test_only_images_from_files_are_kept_in_the_cache(write_images, rng):
    pixels = rng.integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)
    cache = Path(os.environ["GENPR_CACHE"])
    gabor(pixels, pixels)
    assert not list(cache.rglob("*.safetensors"))
    gabor(write_images("a", pixels), pixels)
    assert list(cache.rglob("*.safetensors"))


@pytest.mark.parametrize(
    "options",
    [
        {"k": 4},
        {"ties": "strict"},
        {"metrics": ["recall", "kd"]},
        {"protocol": "prdc"},
        {"max_images": 20},
        {"max_images": 20, "seed": 3},
        {"extractor": "gabor"},
    ],
    ids=str,
)
def test_the_evaluator_takes_every_option_of_score(options, rng, monkeypatch):
    monkeypatch.setattr("genpr.features.source_features.dim_of", lambda _name: None)
    real, fake = (
        rng.integers(0, 4, (40, 3)).astype(np.float32),
        rng.integers(0, 5, (35, 3)).astype(np.float32),
    )
    result = genpr.Evaluator(real, **options).score(fake)
    expected = genpr.score(real, fake, **options)
    assert result.to_flat_dict() == expected.to_flat_dict()
    assert result.real.content == expected.real.content
    assert result.fingerprint == expected.fingerprint
    assert (result.seed, result.max_images) == (expected.seed, expected.max_images)


def test_a_feature_file_is_checked_against_an_extractor_object(tmp_path, rng):
    extractor = genpr.load_extractor("gabor", device="cpu")
    pixels = rng.integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)
    features = genpr.embed(pixels, extractor)
    path = tmp_path / "f.safetensors"
    save_features(path, FeatureSet(features, "f", extractor.info))
    assert genpr.score(path, path, extractor=extractor)["precision"] == 1
    save(path, features, name="pixels")
    with pytest.raises(FeatureError, match="not embedded by the same extractor"):
        genpr.score(path, path, extractor=extractor)
