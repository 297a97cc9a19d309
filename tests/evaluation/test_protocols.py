"""Protocols: pinned options, reported deviations, and several protocols in one run."""

import json
import pickle
from dataclasses import replace
from hashlib import sha256
from unittest.mock import patch

import numpy as np
import oracle
import pytest
import torch
import toy_networks
from feature_files import save
from PIL import Image
from protocol_cases import score_protocols
from raising import raising

import genpr
from genpr.errors import FeatureError, UsageError
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.result import result_of
from genpr.features import registry
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.known_weights import INCEPTION_2015
from genpr.features.networks import inception
from genpr.features.registry import load_joint
from genpr.metrics.fakes_only import inception_score
from genpr.metrics.frechet import Gaussian, frechet_distance
from genpr.metrics.registry import METRICS

WIDTHS = {"inception": 40, "inception-spatial": 30, "inception-softmax": 20}


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A file that is known as the weights of Inception, in place of which random projections of small widths are built."""
    path = tmp_path / "weights" / INCEPTION_2015.name
    path.parent.mkdir()
    torch.save({}, path)
    file = replace(INCEPTION_2015, size=path.stat().st_size, sha256=sha256(path.read_bytes()).hexdigest())
    known = {name: replace(registry.BUILT_IN[name], weights=file, dim=WIDTHS[name]) for name in WIDTHS}
    monkeypatch.setattr(registry, "BUILT_IN", registry.BUILT_IN | known)
    monkeypatch.setattr(inception, "build", toy_networks.build)
    return path


N_REAL, N_FAKE = 5, 10  # enough for k and for the ten splits of IS


@pytest.fixture
def pixels(rng):
    return [rng.integers(0, most, (n, 8, 8, 3), dtype=np.uint8) for n, most in ((N_REAL, 256), (N_FAKE, 200))]


@pytest.fixture
def features(rng):
    """Integers, so that every arithmetic agrees, with many ties."""
    return rng.integers(0, 4, (60, 12)).astype(np.float32), rng.integers(0, 5, (50, 12)).astype(np.float32)


NAMES = ("precision", "recall", "density", "coverage")

# Pinned options ----------------------------------------------------------------------------------------------


class Homonym:
    name, dim = "inception", 1

    def __call__(self, images):
        return images.float().mean(dim=(1, 2, 3))[:, None]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"k": 5}, "k = 3, but 5"),
        ({"ties": "strict"}, "ties = closed, but strict"),
        ({"extractor": "gabor"}, "extractor = inception, but gabor"),
        ({"extractor": Homonym()}, "extractor = inception, but a custom 'inception'"),
        ({"metrics": ["density"]}, "density is not part of protocol adm"),
        ({"metrics": ["vendi"]}, "vendi is not part of protocol adm"),
    ],
)
def test_pinned_options_cannot_be_changed(options, what, pixels):
    with raising(UsageError, "protocol-pinned", what):
        genpr.score(*pixels, protocol="adm", **options)


def test_feature_file_of_another_extractor_is_an_error(tmp_path):
    file = save(tmp_path / "f.safetensors", torch.randn(20, 4), name="gabor")
    with raising(UsageError, "protocol-pinned", "requires extractor = dinov2-vitl14, but gabor"):
        genpr.score(file, file, protocol="dgm-eval")
    with raising(FeatureError, "other-extractor", "has gabor features, but inception features are needed"):
        genpr.score(file, file, metrics=["fid"])


# Numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kynkaanniemi2019", "adm", "stylegan3", "torch-fidelity", "prdc", "genpr"])
def test_neighbor_metrics_of_protocols_equal_their_definition(name, features):
    protocol = find_protocol(name)
    metrics = [metric for metric in protocol.metrics if METRICS[metric].kind == "neighbors"]
    result = genpr.score(*features, protocol=name, metrics=metrics)
    for metric in metrics:
        expected = oracle.manifold_metrics(*features, k=protocol.k[metric], ties=protocol.ties)
        name = metric.removeprefix("calibrated_")
        null = result.metrics[name].null if name != metric else 1
        assert result[metric] == dict(zip(NAMES, expected, strict=True))[name] / null, metric


def test_too_few_images_are_reported(features):
    result = genpr.score(*features, protocol="adm", metrics=["precision"])
    assert result.deviations == (
        "60 real images where adm needs 10,000",
        "50 fake images where adm needs 50,000",
        "features of unknown origin where adm needs inception",
    )
    assert result.notices[0].code == "protocol-not-met"
    assert "60 real images" in result.notices[0].message
    assert not result.comparable


# Several in one run ------------------------------------------------------------------------------------------


def test_panel_computes_metrics_with_fixed_extractors_once(weights, pixels, write_images):
    options = {"control": False, "k": 2, "weights": weights.parent}
    sides = [write_images(*pair) for pair in zip("rf", pixels, strict=True)]
    seen, metrics = [], ["precision", "is"]
    panel = genpr.score_panel(
        *sides,
        extractors=["gabor", "pixels"],
        metrics=metrics,
        progress=lambda stage, *_: seen.append(stage),
        **options,
    )
    assert (seen.count("real"), seen.count("fake")) == (5, 10)
    assert [list(each.metrics) for each in panel.every.values()] == [["precision"], ["precision"], ["is"]]
    alone = genpr.score(*sides, extractor="gabor", metrics=metrics, **options)
    assert (alone["precision"], alone["is"]) == (panel["gabor"]["precision"], panel.others["is"])
    with raising(UsageError, "extractor-unused"):
        genpr.score_panel(*sides, extractors=["gabor", "pixels"], metrics=["is"])


def test_several_protocols_of_one_extractor_embed_once(weights, pixels, tmp_path):
    """P, R, FID, sFID, IS of ADM, of a reference batch that brings the mean and covariance of its whole dataset."""
    extractor = load_joint([*WIDTHS], weights=weights, device="cpu")
    real_features, fake_features = (
        genpr.embed(images, extractor).split([*WIDTHS.values()], dim=1) for images in pixels
    )
    whole = [Gaussian.from_features(1.1 * part) for part in fake_features[:2]]
    moments = {
        f"{key}{end}": value.numpy()
        for end, each in zip(("", "_s"), whole, strict=True)
        for key, value in (("mu", each.mean), ("sigma", each.covariance))
    }
    np.savez(tmp_path / "VIRTUAL_reference.npz", arr_0=pixels[0], **moments)
    np.savez(tmp_path / "samples.npz", arr_0=pixels[1])
    sides = (tmp_path / "VIRTUAL_reference.npz", tmp_path / "samples.npz")
    seen, metrics = [], ["precision", "recall", "fid", "sfid", "is"]
    options = {"weights": weights, "control": False}
    several = {"protocols": ["adm", "mar", "jit"], "progress": lambda stage, *_: seen.append(stage)}
    with patch.object(toy_networks, "Projection", wraps=toy_networks.Projection) as network:
        adm, mar, jit = score_protocols(*sides, **several, **options).values()
    assert (seen.count("real"), seen.count("fake")) == (5, 10)
    assert {*WIDTHS} in [{*call.args[0]} for call in network.call_args_list], "one pass gives all layers"
    alone = genpr.score(sides[1], sides[1], metrics=["precision"], **options)
    assert alone.real.n_cached == 10, "pool3 was cached although it was embedded with other layers"
    plain = genpr.score(*sides, metrics=metrics, **options)
    for name in ("precision", "recall"):
        assert adm[name] == mar[name] == plain[name]
    assert list(adm.metrics) == list(plain.metrics) == metrics
    for name, gaussian, features in zip(("fid", "sfid"), whole, fake_features, strict=False):
        assert adm[name] == pytest.approx(frechet_distance(gaussian, features), rel=1e-6) != plain[name]
    assert adm["is"] == inception_score(fake_features[2], split_size=5000, seed=None).mean
    assert plain["is"] == inception_score(fake_features[2]).mean != adm["is"]
    assert result_of(json.loads(adm.to_json())) == adm
    assert [mar["fid"], mar["is"]] == [adm["fid"], plain["is"]]
    assert jit.to_flat_dict() == {f"genpr/{name}": mar[name] for name in ("fid", "is")}
    assert jit.deviations == (f"{N_FAKE} fake images where jit needs 50,000",)

    given = {"extractor": ["inception-spatial", "inception"], "spatial": True, "weights": weights}
    own = genpr.reference_statistics(pixels[0], **given)
    assert [(each.key, each.extractor) for each in own.moments] == [
        ("mu", "inception"),
        ("mu_s", "inception-spatial"),
    ]
    for each, part in zip(own.moments, real_features[:2], strict=True):
        np.testing.assert_allclose(each.mean, part.double().mean(dim=0), rtol=1e-7)
        covariance = np.cov(part.double(), rowvar=False)
        np.testing.assert_allclose(each.covariance, covariance, rtol=1e-9, atol=1e-12)


def test_coco30k_is_the_fid_of_clean_fid_on_middle_squares(weights, rng, change_protocol):
    change_protocol("coco30k", n_real=2)
    extractor = genpr.load_extractor("inception@pil-bicubic-float", weights=weights, device="cpu")
    sides = [rng.integers(0, most, (n, 20, 30, 3), dtype=np.uint8) for n, most in ((2, 256), (4, 200))]
    features = []
    for wide in sides:
        middle = [
            Image.fromarray(each[:, 5:25]).resize((256, 256), Image.Resampling.LANCZOS) for each in wide
        ]
        features.append(genpr.embed(np.stack(middle), extractor).double())
    result = genpr.score(*sides, protocol="coco30k", weights=weights, control=False)
    real = Gaussian.from_moments(features[0].mean(dim=0).numpy(), torch.cov(features[0].T).numpy())
    assert result["fid"] == pytest.approx(frechet_distance(real, features[1]), rel=1e-6)
    assert result.deviations == ("4 fake images where coco30k needs 30,000",)
    assert result.fake.decoder["prepare"] == "square-crop:256"


def test_edm2_and_guidance_interval_read_the_same_moments_for_features_of_two_resize_rules(rng, tmp_path):
    own, published = "dinov2-vitl14", "dinov2-vitl14@torch-bicubic-antialias"
    rows = rng.normal(size=(30, 1024)).astype(np.float32)
    moments = {"mu": rows[:20].mean(axis=0, dtype=np.float64), "sigma": np.cov(rows[:20].T) + np.eye(1024)}
    (tmp_path / "img512.pkl").write_bytes(pickle.dumps({"num_images": 20, "fd_dinov2": moments}))
    given = Gaussian.from_moments(*moments.values())
    for protocol, name, other in (("edm2", published, own), ("guidance-interval", own, published)):
        fake, foreign = (
            FeatureSet(
                torch.from_numpy(rows),
                each,
                ExtractorInfo(each, 1024, "any", None, comparable=True, cache_key="0" * 64),
            )
            for each in (name, other)
        )
        options = {"protocol": protocol, "metrics": ["fd_dinov2"], "control": False}
        result = genpr.score(tmp_path / "img512.pkl", fake, **options)
        assert result["fd_dinov2"] == frechet_distance(given, fake.features)
        assert result.deviations == (f"30 fake images where {protocol} needs 50,000",)
        with raising(FeatureError, "other-extractor"):
            genpr.score(tmp_path / "img512.pkl", foreign, **options)
    result = genpr.score(fake, fake, **options)
    assert "fd_dinov2 from real images" in result.deviations[-1]


# What is refused ----------------------------------------------------------------------------------------------


def test_overflow_of_float64_is_an_error(rng):
    real, fake = 1e37 * rng.normal(size=(2, 30, 4)).astype(np.float32)
    with raising(FeatureError, "overflow", "exceeds the range of float64"):
        genpr.score(real, np.concatenate([fake, real]) * 10, metrics=["kd"])
    assert genpr.score(real, fake, metrics=["precision"])["precision"] > 0
