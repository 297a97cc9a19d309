"""Calls of the public functions on small data: each with options that name a device, and a folder."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from lpips_state import replaced_lpips

import genpr
from genpr.demo import ShapesGenerator
from genpr.integrations.callback import GenprCallback
from genpr.metrics.frechet import Gaussian, frechet_infinity
from genpr.metrics.kernel import cmmd
from genpr.metrics.mind import monge_inception_distance
from genpr.metrics.modes import modes_of

RNG = np.random.default_rng(0)
REAL, FAKE = RNG.normal(5, 0.05, (2, 80, 16)).astype(np.float32)
SHARES = FAKE / FAKE.sum(1, keepdims=True)
IMAGES = torch.from_numpy(RNG.integers(0, 256, (12, 3, 16, 16), dtype=np.uint8))


def of_manifold(on, folder):
    genpr.KNNManifold.fit(REAL, k=3, **on).save(folder / "m.safetensors")
    found = genpr.KNNManifold.load(folder / "m.safetensors", **on)
    return found.count(FAKE), found.contains(FAKE), found.realism(FAKE), found.rarity(FAKE), found.radii


@functools.cache
def _metric(device):
    pytest.importorskip("torchmetrics")
    from genpr.integrations.torchmetrics import PrecisionRecallDensityCoverage

    return PrecisionRecallDensityCoverage(extractor="pixels", k=3, device=device)


def of_metric(on, _folder):
    metric = _metric(on["device"])
    metric.reset()
    metric.update(IMAGES, real=True)
    metric.update(IMAGES.flip(0), real=False)
    return metric.compute()


def of_truncations(on, _folder):
    drawn = genpr.Sampler.of(ShapesGenerator(), n=20, **on)
    evaluator = genpr.Evaluator(drawn.images(1.0), extractor="pixels", k=3, **on)
    return genpr.truncation_sweep(ShapesGenerator(), evaluator, [0.5], n=12, **on).points[0].values


def of_score(*sides, **options):
    def values(on, _folder):
        metrics = genpr.score(*sides, k=3, **on, **options).metrics
        return {name: (each.value, each.interval, each.null) for name, each in metrics.items()}

    return values


def of_pairs(on, folder):
    real = IMAGES.repeat(1, 1, 2, 2)
    options = {"metrics": ["psnr", "ssim", "lpips", "rfid", "clip_i"], "inception": "gabor", "clip": "pixels"}
    with pytest.MonkeyPatch.context() as patch:
        options |= {"lpips_net": "alex", "weights": replaced_lpips(folder, patch)}
        return genpr.reconstruct(real, real.flip(0), **options, **on).metrics


def of_groups(on, folder):
    images = IMAGES.repeat(1, 1, 2, 2)
    options = {"metrics": ["lpips", "cosine_distance"], "extractor": "pixels", "images_per_group": 6}
    with pytest.MonkeyPatch.context() as patch:
        options |= {"weights": replaced_lpips(folder, patch)}
        return genpr.diversity(
            images, groups=[row % 3 for row in range(len(images))], **options, **on
        ).metrics


def of_panel(on, _folder):
    options = {"extractors": ["pixels", "gabor"], "metrics": ["recall"], "k": 3}
    return {name: each["recall"] for name, each in genpr.score_panel(IMAGES, IMAGES, **options, **on).items()}


def fields_of(record):
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


PUBLIC = {
    "callback": lambda *_: GenprCallback(IMAGES, lambda model: [model], extractor="pixels")(0, IMAGES),
    "cmmd": lambda on, _: cmmd(REAL, FAKE, **on),
    "diversity": of_groups,
    "embed": lambda on, _: genpr.embed(IMAGES, genpr.load_extractor("pixels", **on)),
    "evidence": lambda on, _: genpr.Evaluator(REAL, k=3, **on).evidence(FAKE).fake,
    "extractor": lambda on, _: genpr.load_extractor("gabor", **on)(IMAGES),
    "frechet": lambda on, _: genpr.frechet_distance(Gaussian.from_features(REAL, **on), FAKE, **on),
    "frechet infinity": lambda on, _: frechet_infinity(REAL.repeat(5, 0), FAKE.repeat(5, 0), **on),
    "generator": lambda on, _: genpr.load_generator("genpr.demo:ShapesGenerator", **on).spec,
    "held out": of_score(REAL[:40], FAKE, held_out=REAL[40:], metrics=["precision", "c_t"]),
    "images": of_score(IMAGES, IMAGES.split(5), extractor="gabor"),
    "inception": lambda on, _: genpr.inception_score(SHARES, splits=2, **on),
    "kernel": lambda on, _: genpr.kernel_distance(REAL, FAKE, subsets=2, subset_size=20, **on),
    "manifold": of_manifold,
    "metrics": lambda on, _: genpr.manifold_metrics(REAL, FAKE, k=3, **on),
    "mind": lambda on, _: monge_inception_distance(REAL, FAKE, **on),
    "modes": lambda on, _: str(modes_of(REAL, FAKE, clusters=3, **on)),
    "moments": lambda on, _: genpr.frechet_distance(Gaussian.from_moments(REAL[0], np.eye(16)), FAKE, **on),
    "panel": of_panel,
    "precision": lambda on, _: genpr.precision_recall(REAL, FAKE, k=3, **on),
    "ranking": lambda on, _: dict(genpr.ranking_metrics((FAKE, REAL), range(80), ks=[1], **on)),
    "reconstruct": of_pairs,
    "sampler": lambda on, _: [*genpr.Sampler.of(ShapesGenerator(), n=4, **on).images(0.7)],
    "score": of_score(REAL, FAKE, metrics=["precision", "clipped_density", "witnessed_diversity", "fd"]),
    "sweep": of_truncations,
    "torchmetrics": of_metric,
    "vendi": lambda on, _: genpr.vendi_score(REAL, **on),
}
