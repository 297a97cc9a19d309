"""Files that are no images, or no longer: each gives one line that says which, and nothing passes by mistake."""

from __future__ import annotations

import contextlib
import random
import subprocess
import warnings
from io import BytesIO

import numpy as np
import pytest
from image_files import PALETTE, SAMPLES, SMALL, encode, noise, refused_image
from PIL import Image

from genpr.errors import ImageError
from genpr.images.decode import decode, rgb_of_image
from genpr.images.policy import DecodePolicy

POLICY = DecodePolicy()


# Truncated and corrupt --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_cut_is_refused_or_costs_no_pixel(name):
    data = SAMPLES[name]
    whole = decode(data, name=name, policy=POLICY).pixels
    for length in range(len(data)):
        try:
            cut = decode(data[:length], name=name, policy=POLICY)
        except ImageError:
            continue
        np.testing.assert_array_equal(cut.pixels, whole, err_msg=f"first {length} of {len(data)} bytes")


ONE_PICTURE = sorted(set(SAMPLES) - {"mpo", "gif-animated", "tiff-pages"})  # halves of the others are intact


@pytest.mark.parametrize("name", ONE_PICTURE)
def test_half_a_file_is_called_truncated(name):
    data = SAMPLES[name]
    error = refused_image(data[: len(data) // 2])
    assert error.code == "image-truncated"
    assert "ends early" in str(error)


@pytest.mark.parametrize(
    "name", ["jpeg", "jpeg-progressive", "jpeg-cmyk", "webp", "webp-lossless", "png", "avif"]
)
def test_two_missing_bytes_are_noticed(name):
    assert refused_image(SAMPLES[name][:-2]).code == "image-truncated"


def test_the_lost_end_of_a_jpeg_that_pillow_does_not_miss_is_noticed():
    picture = Image.fromarray(noise(24, 40)).convert("CMYK")
    data = encode(picture, "JPEG", comment=encode(SMALL[:2, :2], "JPEG"))  # like a preview, with its own end
    assert data.count(b"\xff\xd9") == 2
    decode(data, name="x", policy=POLICY)
    Image.open(BytesIO(data[:-2])).load()
    assert refused_image(data[:-2]).code == "image-truncated"


def test_every_flipped_bit_in_the_pixels_of_a_png_is_noticed():
    data = encode(PALETTE)
    start = data.index(b"IDAT")
    end = data.index(b"IEND") - 4
    for at in range(start + 4, end):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            error = refused_image(bytes(flipped))
            assert error.code == "image-corrupt"
            assert "damaged" in str(error)


def test_a_flipped_bit_in_a_jpeg_scan_goes_unnoticed_as_documented():
    data = encode(noise(32, 32), "JPEG")
    at = data.index(b"\xff\xda") + 200
    flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    before, after = (decode(each, name="x", policy=POLICY) for each in (data, flipped))
    assert after.flags == ()
    assert (before.pixels != after.pixels).any(), "it decodes, and to other pixels"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_random_damage_raises_image_errors_only(name):
    rng = random.Random(name)
    for _ in range(150):
        data = bytearray(SAMPLES[name])
        for _ in range(rng.choice([1, 1, 2, 6])):
            data[rng.randrange(rng.choice([len(data), min(200, len(data))]))] = rng.randrange(256)
        with contextlib.suppress(ImageError):
            image = decode(bytes(data), name="x", policy=DecodePolicy(max_pixels=10**6))
            assert image.pixels.dtype == np.uint8
            assert image.pixels.shape[2] == 3


def test_running_out_of_memory_is_not_blamed_on_the_file(monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("genpr.images.decode.rgb_pixels", exhausted)
    with pytest.raises(MemoryError):
        decode(SAMPLES["png"], name="x", policy=POLICY)


def test_an_image_that_pillow_cannot_load_later_is_an_image_error(tmp_path):
    (tmp_path / "half.jpg").write_bytes(SAMPLES["jpeg"][:-40])
    with Image.open(tmp_path / "half.jpg") as image, pytest.raises(ImageError, match="truncated") as caught:
        rgb_of_image(image, name="[3]")
    assert caught.value.path == "[3]"


# Not an image -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "looks like HTML"),
        (b"\n  <html lang='en'>", "looks like HTML"),
        (b"<!---->" * 25, "known format"),
        (b'{"error": "not found"}', "error"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (bytes(5000), "zeros only"),
        (b"PK\x03\x04rest", "PK"),
        (b"\xde\xad\xbe\xef\x00\x01", r"\xde\xad\xbe\xef"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "RIFF"),
    ],
)
def test_what_is_no_image_is_named(data, cause):
    error = refused_image(data)
    assert error.code == "image-unreadable"
    assert cause in str(error)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "EPS"),
        (b"%PDF-1.7\n", "PDF"),
        (b"8BPS\0\1", "PSD"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"\0\0\1\0\1\0", "ICO"),
        (b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "heic"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp41", "isom"),
        (b"qoif\0\0\0\1", "QOI"),
    ],
)
def test_other_formats_are_not_allowed_and_start_no_program(data, what, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    error = refused_image(data)
    assert error.code == "format-not-allowed"
    assert what in str(error)


def test_the_brand_list_decides_whether_a_file_is_avif():
    data = SAMPLES["avif"]
    size = int.from_bytes(data[:4], "big")
    generic = data[:8] + b"mif1" + data[12:size].replace(b"mif1", b"avif") + data[size:]
    np.testing.assert_array_equal(
        decode(generic, name="x", policy=POLICY).pixels, decode(data, name="x", policy=POLICY).pixels
    )


def test_names_cannot_break_the_line_or_the_terminal():
    with pytest.raises(ImageError) as caught:
        decode(b"", name="a\nb\x1b[31m\udcff.png", policy=POLICY)
    assert str(caught.value).startswith(r"a\nb\x1b[31m\udcff.png: ")
    assert caught.value.path == "a\nb\x1b[31m\udcff.png"


# Silence ----------------------------------------------------------------------------------------------------

BROKEN_METADATA = {
    "tiff tag too far": SAMPLES["tiff"].replace(
        b"\x02\x01\x03\x00\x03\x00\x00\x00", b"\x02\x01\x03\x00\xff\xff\xff\x00"
    ),
    "apng control": SAMPLES["apng"].replace(b"acTL\0\0\0\2", b"acTL\0\0\0\0"),
    "tiff directory cut": SAMPLES["tiff-lzw"][:-30],
}


@pytest.mark.parametrize("name", sorted(BROKEN_METADATA))
def test_pillows_warnings_stay_inside(name):
    data = BROKEN_METADATA[name]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with contextlib.suppress(OSError, SyntaxError):
            Image.open(BytesIO(data)).load()
        assert heard, "Pillow does not warn about this file any more"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with contextlib.suppress(ImageError):
            decode(data, name="x", policy=POLICY)
        assert warnings.filters == before
