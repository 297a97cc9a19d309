"""Formats and sizes of files: seen whether images are embedded or cached, kept in feature files, and told."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import genpr
from genpr.evaluation.diagnostics import input_notices
from genpr.evaluation.result import Identities
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, ImageFacts
from genpr.images.formats import codec_name

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
        assert (
            told(result)["size-mix"]
            == "real images have 3 different sizes: 40 x 50 (6), 8 x 50 (1), 50 x 8 (1)"
        )
        assert len([item for item in result.notices if item.code == "size-mix"]) == 1


def test_alike_sides_are_told_nothing(tmp_path):
    real = write(tmp_path / "real", "png", [(40, 50)] * 8)
    others = {
        "bmp": write(tmp_path / "bmp", "bmp", [(8, 8)] * 8),
        "lossless webp": write(tmp_path / "webp", "webp", [(40, 50)] * 8, lossless=True),
        "array": np.random.default_rng(1).integers(0, 256, (8, 40, 50, 3), dtype=np.uint8),
    }
    for name, fake in others.items():
        found = told(genpr.score(real, fake, **OPTIONS))
        assert not found.keys() & {"codec-mismatch", "size-mix", "upscaled"}, name


@pytest.mark.parametrize(
    ("suffix", "options", "codec"),
    [
        ("png", {}, "PNG"),
        ("jpeg", {}, "JPEG"),
        ("webp", {}, "WEBP"),
        ("webp", {"lossless": True}, "WEBP lossless"),
        ("webp", {"lossless": True, "exif": b"Exif\0\0II*\0"}, "WEBP lossless"),
        ("gif", {}, "GIF"),
    ],
)
def test_formats_are_known_by_their_bytes(suffix, options, codec):
    file = io.BytesIO()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(file, suffix, **options)
    assert codec_name(file.getvalue()) == codec


def test_what_prevails_is_more_than_half():
    sizes = Counter({(64, 64): 5})
    assert ImageFacts.of(Counter(PNG=2, BMP=2, JPEG=3), sizes).codec == "lossless"
    assert ImageFacts.of(Counter(PNG=3, JPEG=3), sizes).codec is None
    assert ImageFacts.of(Counter({"WEBP lossless": 1, "WEBP": 2}), sizes).codec == "WEBP"
    assert ImageFacts().codec is None


def test_the_commonest_sizes_are_shown_and_all_are_counted():
    sizes = Counter({(100 + n, 64): 10 - n for n in range(7)}) + Counter({(31, 99): 3, (99, 31): 2})
    facts = ImageFacts.of(Counter(), sizes)
    assert facts.shown_sizes == (
        "100 x 64 (10), 101 x 64 (9), 102 x 64 (8), 103 x 64 (7), 104 x 64 (6), and 4 more"
    )
    assert (facts.n_sizes, facts.n_small) == (9, 5)
    assert ImageFacts.of(Counter(), Counter({(32, 32): 4})).n_small == 0


def found(real, fake):
    ids = (Identities.of(real), Identities.of(fake))
    return input_notices(real, fake, *ids, protocol="genpr", deviations=[])


def test_small_images_are_told_where_a_trained_network_looks_at_them():
    facts = ImageFacts.of(Counter(), Counter({(31, 200): 7, (200, 200): 1193}))
    fake = FeatureSet(torch.randn(1200, 3), "fakes/", INFO, facts=facts)
    real = replace(fake, features=torch.randn(1200, 3), facts=ImageFacts())
    (small,) = [item for item in found(real, fake) if item.code == "upscaled"]
    assert small.level == "warning"
    assert small.message.startswith(
        "7 of 1,200 fake images have a side below 32 pixels; most of what inception"
    )
    untrained = replace(INFO, name="gabor", comparable=False)
    sides = [replace(side, extractor=untrained) for side in (real, fake)]
    assert "upscaled" not in {item.code for item in found(*sides)}
