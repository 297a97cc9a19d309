"""Scores against reference statistics: with and without images, and errors for those of other features."""

import json
import pickle
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from feature_files import save
from raising import raising

import genpr
from genpr.errors import DataError, FeatureError, UsageError
from genpr.evaluation import write_statistics
from genpr.evaluation.plan import given_moments
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.result import result_of
from genpr.features.extractor import ExtractorInfo
from genpr.features.statistics import FeatureMoments, ReferenceStatistics, read_statistics
from genpr.metrics.frechet import Gaussian, frechet_distance
from genpr.report.score_tables import score_table

D = 6
MIXED = ["precision", "recall", "coverage", "fd", "kd", "vendi"]


@pytest.fixture
def real(rng):
    return (rng.normal(size=(120, D)) + 2).astype(np.float32)


@pytest.fixture
def fake(rng):
    return (rng.normal(size=(90, D)) + 2.2).astype(np.float32)


@pytest.fixture
def whole(rng, tmp_path):
    """Statistics of another, larger set."""
    rows = rng.normal(size=(1000, D)) + 2.1
    np.savez(tmp_path / "whole.npz", mu=rows.mean(axis=0), sigma=np.cov(rows, rowvar=False))
    return tmp_path / "whole.npz"


def labeled(rows, tmp_path, name, extractor="inception-64", weights="a" * 64):
    """A feature file of a published extractor."""
    facts = {"name": extractor, "resize": "tf1-bilinear-299", "weights_sha256": weights, "comparable": True}
    return save(tmp_path / f"{name}.safetensors", torch.from_numpy(rows), **facts)


def codes(result):
    return {item.code for item in result.notices}


def test_distances_use_the_statistics_and_other_metrics_the_images(real, fake, whole):
    both = genpr.score(real, fake, metrics=MIXED, reference_statistics=whole)
    alone, images = genpr.score(whole, fake), genpr.score(real, fake, metrics=MIXED)
    assert list(alone.metrics) == ["fd"]
    assert both["fd"] == alone["fd"] != images["fd"]
    for name in set(MIXED) - {"fd"}:
        assert both.metrics[name] == images.metrics[name]
    assert both.reference_statistics.metrics == {"fd": "mu"}
    assert (both.real.n, alone.real.n) == (120, 0)
    assert alone.real.content == alone.reference_statistics.content == both.reference_statistics.content
    for result in (both, alone):
        assert result_of(json.loads(result.to_json())) == result
        assert f"\nfd from mean and covariance (mu) of {whole}\n" in score_table(result)
        assert "whole.npz" in genpr.html_report(result)
        assert "statistics-unlabeled" in codes(result)
    assert "statistics-alone" in codes(alone) - codes(both)
    assert both.fingerprint != images.fingerprint
    assert both.metrics["fd"].variant.startswith("real mean and covariance as given (sha256 ")
    assert both.metrics["fd"].variant == alone.metrics["fd"].variant
    assert both.metrics["kd"].variant == "subsets of 90 images"
    own = genpr.score(fake, fake, metrics=["fd"], reference_statistics=genpr.reference_statistics(real))
    assert own.metrics["fd"].variant != both.metrics["fd"].variant


def test_evaluator_and_ranking_accept_statistics(real, fake, whole):
    evaluator = genpr.Evaluator(whole, metrics=["fd", "fd_infinity", "vendi"])
    for samples in (fake, real):
        assert evaluator.score(samples)["fd"] == genpr.score(whole, samples)["fd"]
        assert evaluator.score(samples)["vendi"] == genpr.score(real, samples, metrics=["vendi"])["vendi"]
    ranking = genpr.rank_checkpoints(evaluator, {"a": fake, "b": fake + 1}, by="fd")
    assert ranking.entries[0].name == "a"
    held = read_statistics(whole)
    with_file = genpr.Evaluator(real, metrics=["fd"], reference_statistics=held)
    assert with_file.recipe != genpr.Evaluator(real, metrics=["fd"]).recipe
    assert genpr.Evaluator(held).score(fake)["fd"] == with_file.score(fake)["fd"]


class Thumbnail:
    """A few pixels of each image."""

    def __init__(self, name, dim):
        self.name, self.dim = name, dim

    def __call__(self, images):
        return images.flatten(1)[:, : self.dim].float()


def test_one_file_may_contain_moments_of_several_extractors(rng, tmp_path, monkeypatch):
    sides = rng.integers(0, 256, (2, 40, 8, 8, 3), dtype=np.uint8)
    several = [Thumbnail("third", 5), Thumbnail("second", 7), Thumbnail("fi\udcffrst", 6)]
    statistics = genpr.reference_statistics(sides[0], tmp_path / "s.npz", extractor=several)
    named = [("mu", "third"), ("second/mu", "second"), ("fi\\udcffrst/mu", "fi\udcffrst")]
    for held in (statistics, read_statistics(tmp_path / "s.npz")):
        assert [(each.key, each.extractor) for each in held.moments] == named
        assert held.content == statistics.content
    with raising(UsageError, "bad-option"):
        genpr.reference_statistics(sides[0], extractor=[several[0], Thumbnail("third", 4)])
    monkeypatch.setattr(write_statistics, "MAX_BYTES", 100)
    with raising(FeatureError, "statistics-shape"):
        genpr.reference_statistics(sides[0], tmp_path / "t.npz", extractor=several)
    for extractor in several:
        options = {"extractor": extractor, "metrics": ["fd", "precision"]}
        found = genpr.score(*sides, reference_statistics=statistics, **options)
        assert found["fd"] == pytest.approx(genpr.score(*sides, **options)["fd"], rel=1e-6)
        assert statistics.images_sha256 == found.real.content
        assert not codes(found) & {"statistics-unlabeled", "statistics-alone"}


def test_only_statistics_of_genpr_outside_of_the_source_are_replaced(rng, tmp_path):
    out, (real, fake) = tmp_path / "s.npz", (tmp_path / name for name in ("real.npy", "fake.npy"))
    for path in (real, fake):
        np.save(path, rng.normal(size=(20, 3)))
    for _ in range(2):
        genpr.reference_statistics(real, out)
    for source in (fake, rng.normal(size=(20, 3))):
        with raising(UsageError, "output-exists"):
            genpr.reference_statistics(source, out)
    np.savez(out, mu=np.zeros(3), sigma=np.eye(3))
    with raising(UsageError, "output-exists"):
        genpr.reference_statistics(real, out)
    for statistics in (out, read_statistics(out)):
        with raising((DataError, UsageError), "npz-key" if statistics is out else "source-kind"):
            genpr.reference_statistics(statistics)
    genpr.reference_statistics(real, out, overwrite=True)


def test_adm_uses_moments_in_the_files_of_images(rng, tmp_path, change_protocol):
    change_protocol("adm", metrics=("fd",), free=frozenset({"extractor"}))
    given = []
    for name in "rf":
        rows = rng.normal(size=(50, 5))
        moments = {"mu": rows.mean(axis=0), "sigma": np.cov(rows, rowvar=False)}
        images = rng.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", arr_0=images, **moments)
        given.append(Gaussian.from_moments(*moments.values()))
    sides = tmp_path / "r.npz", tmp_path / "f.npz"
    found = genpr.score(*sides, protocol="adm", extractor=Thumbnail("thumbnail", 5))
    assert found["fd"] == frechet_distance(*given)
    assert "; fake mean and covariance as given" in found.metrics["fd"].variant


@pytest.mark.parametrize("name", ["precision", "kd", "mind", "c_t", "authenticity"])
def test_without_images_only_distances_are_computed(fake, whole, name):
    held_out = {"held_out": fake} if name == "c_t" else {}
    with raising(UsageError, "no-images-in-statistics", "give images"):
        genpr.score(whole, fake, metrics=["fd", name], **held_out)


def test_unused_statistics_are_an_error(real, fake, whole):
    with raising(UsageError, "statistics-unused"):
        genpr.score(real, fake, reference_statistics=whole)
    with raising(UsageError, "no-images-in-statistics"):
        genpr.score(whole, fake, reference_statistics=whole)
    with raising(UsageError, "no-images-in-statistics"):
        genpr.score(whole, fake, protocol="prdc")
    with raising(DataError, "npz-key"):
        genpr.score(real, whole)


def test_statistics_of_another_width_are_an_error(rng, fake, tmp_path, write_images):
    np.savez(tmp_path / "s.npz", mu=np.zeros(768), sigma=np.eye(768))
    folder = write_images("fake", rng.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8))
    for extractor, metric in (("inception", "fid"), ("dinov2-vitl14", "fd"), ("gabor", "fd")):
        with raising(FeatureError, "statistics-shape"):
            genpr.score(tmp_path / "s.npz", folder, extractor=extractor, metrics=[metric])
    with raising(FeatureError, "statistics-shape"):
        genpr.score(tmp_path / "s.npz", fake)
    with raising(FeatureError, "unlabeled-features"):
        genpr.score(tmp_path / "s.npz", folder)


def test_statistics_of_other_features_are_an_error(rng, tmp_path):
    rows = rng.normal(size=(100, 64)).astype(np.float32)
    fakes, layer = labeled(rows, tmp_path, "fake"), "inception-64"
    statistics = genpr.reference_statistics(labeled(rows, tmp_path, "real"), tmp_path / "s.npz")
    assert genpr.score(tmp_path / "s.npz", fakes)["fd"] == pytest.approx(0, abs=1e-9)
    assert statistics.moments[0].extractor == layer
    of_another = genpr.reference_statistics(labeled(rows, tmp_path, "other", extractor="timm:other"))
    with raising(FeatureError, "other-extractor"):
        genpr.score(fakes, fakes, metrics=["fd"], reference_statistics=of_another)
    for other in ({"weights": "b" * 64}, {"extractor": f"{layer}@torch-bilinear"}):
        file = labeled(rows, tmp_path, "other", **other)
        held = genpr.reference_statistics(file)
        for options in ({}, {"extractor": layer, "metrics": ["fd"]}):
            with raising(FeatureError, "other-extractor"):
                genpr.score(held, fakes, **options)
        with raising(FeatureError, "other-extractor"):
            genpr.score(fakes, fakes, metrics=["fd", "precision"], reference_statistics=held)
    images = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    held = genpr.reference_statistics(images, extractor="pixels")
    for options in ({"extractor": "gabor"}, {"metrics": ["fid"]}, {"metrics": ["fd", "fid"]}):
        with raising(FeatureError, "other-extractor"):
            genpr.score(held, images, **options)

    # fid would else be of real images, though the file has Inception features of another resize rule.
    info = ExtractorInfo("inception@torch-bilinear", 2048, "torch-bilinear-299", "a" * 64, comparable=True)
    variant = FeatureMoments("v/mu", np.zeros(2048), np.eye(2048), info)
    both = replace(held, moments=(*held.moments, variant))
    with raising(FeatureError, "other-extractor"):
        genpr.score(images, images, extractor="pixels", metrics=["fd", "fid"], reference_statistics=both)


FACTORY = """
import torch

def load(seed, resize):
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 5))
    network.name, network.dim, network.forward = "net", 5, lambda x, f=network.forward: f(x.float())
    if resize:
        network.resize = resize
    return network

def first(): return load(0, "a")
def unlike(): return load(0, "b")
def trained(): return load(1, "a")
def first_unnamed(): return load(0, None)
def trained_unnamed(): return load(1, None)
"""


def test_statistics_of_a_factory_are_for_the_extractor_that_it_returns(rng, tmp_path):
    (tmp_path / "net.py").write_text(FACTORY)
    images = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    for written, read, is_same in (
        *(("first", "first", True), ("first", "unlike", False), ("first", "trained", False)),
        *(("first_unnamed", "first_unnamed", True), ("first_unnamed", "trained_unnamed", False)),
    ):
        held = genpr.reference_statistics(images, extractor=f"{tmp_path}/net.py:{written}")
        for real, given in ((held, {}), (images, {"reference_statistics": held})):
            options = {"extractor": f"{tmp_path}/net.py:{read}", "metrics": ["fd"], "control": False}
            with nullcontext() if is_same else raising(FeatureError, "other-extractor"):
                assert genpr.score(real, images, **options, **given)["fd"] == pytest.approx(0, abs=1e-9)


def test_names_of_unknown_models_in_a_pickle_are_no_labels(rng, fake, tmp_path):
    (tmp_path / "x.pkl").write_bytes(
        pickle.dumps({key: {"mu": np.ones(D), "sigma": np.eye(D)} for key in "ab"})
    )
    assert "statistics-unlabeled" in codes(genpr.score(tmp_path / "x.pkl", fake))


def test_moments_of_too_few_images_are_a_deviation_from_the_protocol(rng, tmp_path, change_protocol):
    for name in ("coco30k", "mar"):
        change_protocol(name, extractor="inception-64", metrics=("fd",), prepare=None, n_fake=90)
    rows = rng.normal(size=(90, 64)).astype(np.float32)
    images = labeled(rows, tmp_path, "images")
    held = genpr.reference_statistics(labeled(rows[:70], tmp_path, "real"))
    beside = {"real": images, "reference_statistics": held}
    for name, sides, numbers in (
        *(
            ("coco30k", sides, "70 real images where coco30k needs 40,504")
            for sides in ({"real": held}, beside)
        ),
        ("mar", beside, "90 real images where mar needs 10,000"),
    ):
        assert genpr.score(**sides, fake=images, protocol=name).deviations == (numbers,)


def test_published_statistics_of_edm2_are_used_by_their_metrics(rng, tmp_path):
    sizes = {"fid": 2048, "fd_dinov2": 1024}
    moments = {name: {"mu": np.zeros(d), "sigma": np.eye(d)} for name, d in sizes.items()}
    (tmp_path / "img.pkl").write_bytes(pickle.dumps({"num_images": 5000, **moments}))
    fakes = labeled(np.ones((3, 2048), np.float32), tmp_path, "fake", "inception")
    found = genpr.score(tmp_path / "img.pkl", fakes)
    assert found["fid"] == pytest.approx(2048 + 2048)  # of the means, and the trace with a covariance of 0
    assert found.reference_statistics.count == 5000
    assert "statistics-unlabeled" not in codes(found)


def test_moments_are_used_by_the_metrics_of_their_extractor():
    unnamed = ReferenceStatistics("s", (FeatureMoments("mu", np.ones(64), np.eye(64)),))
    spaces, protocol = {"fid": "inception-64", "fd": "pixels"}, find_protocol("genpr")
    assert list(given_moments(unnamed, spaces, "pixels", protocol)) == ["fid"]
    assert list(given_moments(unnamed, {"fd": "inception-64"}, "inception-64", protocol)) == ["fd"]


def test_moments_in_files_of_images_are_not_prepared(rng, tmp_path, change_protocol):
    change_protocol("adm", extractor="gabor", metrics=("fd",), n_real=None, n_fake=None)
    names = [f"{tmp_path}/{name}.npz" for name in ("real", "fake")]
    for name in names:
        images = rng.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
        np.savez(name, images, mu=np.zeros(736), sigma=np.eye(736))
    for prepare, expected in ((None, 0), ("resize:16", 2)):
        found = genpr.score(*names, protocol="adm", prepare=prepare)
        assert found["fd"] == pytest.approx(0, abs=1e-9)
        notices = [item.message for item in found.notices if item.code == "statistics-unprepared"]
        assert [name in text for name, text in zip(names, notices, strict=False)] == [True] * expected


def test_spatial_statistics_need_inception(real):
    with raising(UsageError, "bad-option"):
        genpr.reference_statistics(np.zeros((2, 8, 8, 3), np.uint8), extractor="gabor", spatial=True)
