"""Formats and sizes of files: seen whether images are embedded or cached, kept in feature files, and told."""

from collections import Counter
from dataclasses import replace

import numpy as np
import torch
from PIL import Image

import genpr
from genpr.evaluation.diagnostics import input_notices
from genpr.evaluation.result import Identities
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, ImageFacts

OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 1}
INFO = ExtractorInfo("inception", 3, "none", None, comparable=True, cache_key="0" * 64)


def write(folder, suffix, sizes, **options):
    folder.mkdir()
    rng = np.random.default_rng(len(suffix) + len(sizes))
    for index, (width, height) in enumerate(sizes):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.{suffix}", **options)
    return folder


def told(result):
    return {item.code: item.message for item in result.notices}


SIZES = [(40, 50)] * 6 + [(8, 50), (50, 8)]


def test_codecs_and_sizes_are_told_and_still_known_when_all_is_cached(tmp_path):
    real = write(tmp_path / "real", "png", SIZES)
    fake = write(tmp_path / "fake", "jpg", [(40, 50)] * 8)
    for run in ("embedded", "cached"):
        result = genpr.score(real, fake, **OPTIONS)
        assert ("all-cached" in told(result)) == (run == "cached")
        assert told(result)["codec-mismatch"].startswith("most reals are lossless, most fakes are JPEG")
        (mixed,) = [item.message for item in result.notices if item.code == "size-mix"]
        assert mixed == "real images have 3 different sizes: 40 x 50 (6), 8 x 50 (1), 50 x 8 (1)"


def found(real, fake):
    ids = (Identities.of(real), Identities.of(fake))
    return input_notices(real, fake, *ids, protocol="genpr", deviations=[])


def test_small_images_are_told_where_a_trained_network_looks_at_them():
    facts = ImageFacts.of(Counter(), Counter({(31, 200): 7, (32, 200): 1193}))
    fake = FeatureSet(torch.randn(1200, 3), "fakes/", INFO, facts=facts)
    real = replace(fake, features=torch.randn(1200, 3), facts=ImageFacts())
    (small,) = [item for item in found(real, fake) if item.code == "upscaled"]
    assert small.level == "warning"
    assert small.message.startswith("7 of 1,200 fake images have a side below 32 pixels; most of what incep")
    untrained = replace(INFO, name="gabor", comparable=False)
    sides = [replace(side, extractor=untrained) for side in (real, fake)]
    assert "upscaled" not in {item.code for item in found(*sides)}
