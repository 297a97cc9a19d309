"""Preparation: pixels equal those of the data tools of ADM and NVIDIA to the bit, for every kind of source."""

import base64
import io
import math
import re
from itertools import islice, product

import numpy as np
import pytest
from image_files import decoded, encode, noise
from PIL import Image
from raising import raising

import genpr
from genpr.errors import DataError, ImageError, UsageError
from genpr.images.policy import policy_of
from genpr.report.score_page import evidence_report

N = 20
SIDES = (1, 7, 19, 20, 21, 24, 27, 39, 40, 41, 79, 80, 81, 101)  # 24 x 27 scales to 20 x 22.5, which is 22
SIZES = [*islice(product(SIDES, SIDES), 195), (5, 700), (700, 5), (33, 900), (900, 33), (161, 163)]
MODES = ("RGB", "L", "RGBA", "LA", "P")
OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 3}


def stored(number, size):
    """A PNG of some size and mode, and its pixels in RGB."""
    values = np.random.default_rng(number).integers(0, 256, (*size[::-1], 4), dtype=np.uint8)
    image = Image.fromarray(values).convert(MODES[number % len(MODES)])
    return encode(image), image.convert("RGB")


def adm_crop(image, side):
    """`center_crop_arr` by its description: halving by box filter, then bicubic, then a center crop."""
    width, height = image.size
    if min(width, height) // side >= 2:
        return adm_crop(image.resize((width // 2, height // 2), Image.Resampling.BOX), side)
    scale = side / min(width, height)
    image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    return middle(np.asarray(image), side)


def middle(pixels, side):
    top, left = (math.floor((length - side) / 2) for length in pixels.shape[:2])
    return np.ascontiguousarray(pixels[top : top + side, left : left + side])


def nvidia_crop(image, side):
    square = Image.fromarray(middle(np.asarray(image), min(image.size)))
    return np.asarray(square.resize((side, side), Image.Resampling.LANCZOS))


@pytest.mark.parametrize(
    ("rule", "reference", "sizes"),
    [
        ("center-crop", adm_crop, SIZES),
        ("square-crop", nvidia_crop, SIZES[::7]),
        ("resize", lambda image, side: image.resize((side, side), Image.Resampling.BICUBIC), SIZES[::7]),
    ],
    ids=["center-crop", "square-crop", "resize"],
)
def test_pixels_equal_those_of_the_data_tools(rule, reference, sizes):
    for number, size in enumerate(sizes):
        data, image = stored(number, size)
        found = decoded(data, prepare=f"{rule}:{N}")
        np.testing.assert_array_equal(found.pixels, reference(image, N), err_msg=f"{size}")
        assert ("enlarged" in found.flags) == (min(size) < N)
        assert found.pixels.flags.c_contiguous
        assert found.pixels.flags.writeable


@pytest.mark.parametrize(
    ("shape", "rule"),
    [((1, 1000), "center-crop:64"), ((1000, 1), "center-crop:64"), ((4000, 2), "resize:300")],
)
def test_intermediate_images_that_are_too_large_are_errors(shape, rule):
    how = {"prepare": rule, "max_pixels": 1_000_000}
    with raising(ImageError, "image-too-large", match="x.png: .* makes it "):
        decoded(noise(*shape), **how)
    assert decoded(noise(shape[0] // 5 or 1, shape[1] // 5 or 1), **how).flags == ("enlarged",)


BAD = ("", "crop:8", "center-crop", "resize:0", "resize:08", "resize:-8", "resize:8193", "resize: 8", 8)


@pytest.mark.parametrize(
    "how", [*({"prepare": rule} for rule in BAD), {"prepare": "resize:9", "max_pixels": 80}]
)
def test_invalid_rules_and_sides_are_errors(how):
    with raising(UsageError, "bad-option"):
        genpr.score(noise(9, 9)[None], noise(9, 9)[None], **how)


# Sources ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (12, 21, 34, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def expected(pixels):
    """The score of images that were prepared before."""
    sides = np.roll(pixels, 7, 2), pixels
    return genpr.score(*([adm_crop(Image.fromarray(each), N) for each in side] for side in sides), **OPTIONS)


@pytest.mark.parametrize("kind", ["npz", "zip", "pillow"])
def test_preparation_equals_scoring_prepared_images(kind, pixels, expected, make_source):
    pairs, rule = [(Image.fromarray(each), 0) for each in pixels], f"center-crop:{N}"
    fake = pairs if kind == "pillow" else make_source(kind, pixels)
    found = genpr.score(np.roll(pixels, 7, 2), fake, **OPTIONS, cache=False, prepare=rule)
    assert found.to_flat_dict() == expected.to_flat_dict()
    assert (found.real.decoder["prepare"], found.fake.decoder["prepare"]) == (rule, rule)


def test_unknown_preparations_in_a_result_are_errors():
    with raising(DataError, "not-a-result"):
        policy_of({"prepare": "crop"})


def test_page_shows_the_scored_pixels(pixels):
    reals = np.roll(pixels, 7, 2)
    found = genpr.Evaluator(reals, **OPTIONS, prepare="resize:8").evidence(pixels)
    page = evidence_report(found, reals, pixels, device="cpu")
    shown = [base64.b64decode(each) for each in re.findall(r'image/jpeg;base64,([^"]+)', page)]
    assert {Image.open(io.BytesIO(each)).size for each in shown} == {(8, 8)}
