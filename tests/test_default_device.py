"""Public functions under `torch.set_default_device`: what they compute is the same, and code of the user sees it.

"meta" stands for a GPU that the user chose: what genpr made there by mistake has no values or meets tensors of the CPU.
"""

import numpy as np
import pytest
import torch

import genpr
from genpr.demo import ShapesGenerator
from genpr.integrations.callback import GenprCallback
from genpr.integrations.torchmetrics import PrecisionRecallDensityCoverage
from genpr.metrics.copy_detection import copy_detection
from genpr.metrics.frechet import Gaussian, frechet_infinity
from genpr.metrics.kernel import cmmd
from genpr.metrics.modes import modes_of
from genpr.metrics.witnessed import witnessed

RNG = np.random.default_rng(0)
REAL, FAKE = RNG.normal(5, 0.05, (2, 60, 6)).astype(np.float32)
SHARES = FAKE / FAKE.sum(1, keepdims=True)
IMAGES = torch.from_numpy(RNG.integers(0, 256, (12, 3, 16, 16), dtype=np.uint8))
CPU = {"device": "cpu"}
METRIC = PrecisionRecallDensityCoverage(extractor="pixels", k=3, device="cpu")  # lives on the default device


def of_manifold(tmp_path):
    genpr.KNNManifold.fit(REAL, k=3, **CPU).save(tmp_path / "m.safetensors")
    found = genpr.KNNManifold.load(tmp_path / "m.safetensors", **CPU)
    return found.count(FAKE), found.contains(FAKE), found.realism(FAKE), found.rarity(FAKE), found.radii


def of_metric(_path):
    METRIC.reset()
    METRIC.update(IMAGES, real=True)
    METRIC.update(IMAGES.flip(0), real=False)
    return METRIC.compute()


def of_truncations(_path):
    drawn = genpr.Sampler.of(ShapesGenerator(), n=20, **CPU)
    evaluator = genpr.Evaluator(drawn.images(1.0), extractor="pixels", k=3, **CPU)
    return genpr.truncation_sweep(ShapesGenerator(), evaluator, [0.5], n=12, **CPU).points[0].values


def of_score(*sides, **options):
    return lambda _path: genpr.score(*sides, k=3, **CPU, **options).to_flat_dict()


PUBLIC = {
    "callback": lambda _: GenprCallback(IMAGES, lambda model: [model], extractor="pixels")(0, IMAGES.flip(0)),
    "cmmd": lambda _: cmmd(REAL, FAKE, **CPU),
    "copies": lambda _: vars_of(copy_detection(FAKE, REAL, **CPU)),
    "curve": lambda _: vars_of(genpr.pr_curve(REAL, FAKE, **CPU)),
    "embed": lambda _: genpr.embed(IMAGES, genpr.load_extractor("pixels", **CPU)),
    "evidence": lambda _: genpr.Evaluator(REAL, k=3, **CPU).evidence(FAKE).fake,
    "extractor": lambda _: genpr.load_extractor("gabor", **CPU)(IMAGES),
    "frechet": lambda _: genpr.frechet_distance(Gaussian.of(REAL, **CPU), FAKE, **CPU),
    "frechet infinity": lambda _: frechet_infinity(REAL.repeat(9, 0), FAKE.repeat(9, 0), **CPU),
    "generator": lambda _: genpr.load_generator("genpr.demo:ShapesGenerator", **CPU).spec,
    "held out": of_score(REAL[:30], FAKE, held_out=REAL[30:], metrics=["precision", "c_t"]),
    "images": of_score(IMAGES, IMAGES.split(5), extractor="gabor"),
    "inception": lambda _: genpr.inception_score(SHARES, splits=2, **CPU),
    "kernel": lambda _: genpr.kernel_distance(REAL, FAKE, subsets=2, subset_size=20, **CPU),
    "manifold": of_manifold,
    "metrics": lambda _: genpr.manifold_metrics(REAL, FAKE, k=3, **CPU),
    "modes": lambda _: str(modes_of(REAL.repeat(5, 0), FAKE.repeat(5, 0), clusters=3, **CPU)),
    "moments": lambda _: genpr.frechet_distance(Gaussian.from_moments(REAL[0], np.eye(6)), FAKE, **CPU),
    "precision": lambda _: genpr.precision_recall(REAL, FAKE, k=3, **CPU),
    "probabilistic": lambda _: genpr.probabilistic_precision_recall(REAL, FAKE, **CPU),
    "ranking": lambda _: dict(genpr.ranking_metrics((FAKE, REAL), range(60), ks=[1], **CPU)),
    "sampler": lambda _: [*genpr.Sampler.of(ShapesGenerator(), n=4, **CPU).images(0.7)],
    "score": of_score(REAL, FAKE, metrics=["precision", "clipped_density", "witnessed_fidelity", "p_recall"]),
    "sweep": of_truncations,
    "torchmetrics": of_metric,
    "vendi": lambda _: genpr.vendi_score(REAL, **CPU),
    "witnessed": lambda _: witnessed(REAL, FAKE, **CPU),
}


def vars_of(record):
    return {name: getattr(record, name) for name in record.__slots__}


@pytest.fixture
def default_device():
    yield torch.set_default_device
    torch.set_default_device(None)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_default_device_changes_no_result(default_device, name, tmp_path):
    plain = PUBLIC[name](tmp_path)
    default_device("meta")
    found = PUBLIC[name](tmp_path)
    assert torch.empty(0).is_meta
    default_device(None)
    assert repr(found) == repr(plain)


class Seeing:
    """An extractor and a generator that tell where their own tensors are."""

    dim = 1

    def __init__(self):
        self.seen = []

    def __call__(self, images):
        self.seen.append(torch.zeros(1).device.type)
        return torch.zeros(len(images), 1, device="cpu")

    def draw(self):
        for _ in range(3):
            self.seen.append(torch.zeros(1).device.type)
            yield IMAGES


def test_code_of_the_user_sees_the_default_device(default_device):
    default_device("meta")
    user = Seeing()
    genpr.embed(user.draw(), user)
    GenprCallback(IMAGES, lambda _model: user.draw(), extractor="pixels")(0, None)
    assert {*user.seen} == {"meta"}
    assert len(user.seen) > 6
