"""Conversion of each mode, bit depth and kind of alpha to 8-bit RGB."""

import io

import numpy as np
import pytest
from image_files import SAMPLES, SMALL, decoded, encode, gray_tiff, png_16bit_rgb, refused_image, tiff
from PIL import Image

HALF_CLEAR = np.concatenate([SMALL, np.full((9, 12, 1), 255, np.uint8)], axis=2)
HALF_CLEAR[4:6, :, 3] = 77
TAGS = {256: [9], 257: [8], 258: [16, 16, 16], 259: [1], 262: [2], 277: [3], 278: [8]}
RAMP = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)


# Modes that are simply converted ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(name for name in SAMPLES if "16bit" not in name))
def test_files_of_8_bits_equal_those_of_pillow(name):
    image = decoded(SAMPLES[name])
    with Image.open(io.BytesIO(SAMPLES[name])) as opened:
        expected = np.asarray((opened.convert("RGBA") if name == "png-palette" else opened).convert("RGB"))
    np.testing.assert_array_equal(image.pixels, expected)
    assert image.pixels.dtype == np.uint8
    assert image.pixels.flags.c_contiguous
    assert image.pixels.flags.writeable


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "BMP", "GIF"])
@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_gray_bilevel_and_palette_equal_their_three_channel_copies(mode, format_name):
    source = Image.fromarray(SMALL).convert(mode)
    image = decoded(encode(source, format_name))
    np.testing.assert_array_equal(image.pixels, decoded(encode(source.convert("RGB"))).pixels)
    assert image.flags == ()


@pytest.mark.parametrize("format_name", ["JPEG", "TIFF"])
def test_cmyk_is_converted_and_reported(format_name):
    data = encode(Image.fromarray(SMALL).convert("CMYK"), format_name)
    image = decoded(data)
    with Image.open(io.BytesIO(data)) as opened:
        np.testing.assert_array_equal(image.pixels, np.asarray(opened.convert("RGB")))
    assert image.flags == ("cmyk-converted",)


# 16 bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        encode(RAMP, "PNG"),
        encode(RAMP, "TIFF"),
        encode(RAMP, "TIFF", compression="tiff_lzw"),
        encode(RAMP, "PPM"),
        gray_tiff(RAMP, order="<"),
        gray_tiff(RAMP, order=">"),
    ],
    ids=["png", "tiff", "tiff-lzw", "pgm", "tiff-little", "tiff-big"],
)
def test_16_bit_gray_keeps_its_256_levels(data):
    image = decoded(data)
    assert image.flags == ("16bit-scaled",)
    np.testing.assert_array_equal(image.pixels, np.repeat((RAMP >> 8)[..., None], 3, 2))
    assert image.pixels.flags.c_contiguous


def test_16_bit_color_keeps_its_high_byte_and_is_reported():
    pixels = np.random.default_rng(0).integers(0, 65536, (8, 9, 3), dtype=np.uint16)
    chunky = tiff(TAGS | {273: [8], 279: [432]}, pixels.astype("<u2").tobytes())
    for data in (png_16bit_rgb(pixels), chunky):
        image = decoded(data)
        np.testing.assert_array_equal(image.pixels, (pixels >> 8).astype(np.uint8))
        assert image.flags == ("16bit-scaled",)


def test_16_bit_tiff_that_pillow_misreads_is_an_error():
    pixels = np.random.default_rng(0).integers(0, 65536, (8, 9, 3), dtype=np.uint16)
    planes = TAGS | {273: [8, 152, 296], 279: [144] * 3, 284: [2]}
    data = tiff(planes, np.moveaxis(pixels, -1, 0).astype("<u2").tobytes())
    with Image.open(io.BytesIO(data)) as opened:
        assert not np.array_equal(np.asarray(opened), pixels >> 8), "Pillow reads them now: accept them"
    for each in (data, gray_tiff(RAMP, t258=12), gray_tiff(RAMP, t262=0)):
        assert refused_image(each).code == "image-unsupported"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (encode(SMALL[..., 0].astype(np.float32), "TIFF"), "float"),
        (encode(SMALL[..., 0].astype(np.int32), "TIFF"), "integer"),
        (b"Pf 2 2 -1.0\n" + bytes(16), "float"),
    ],
    ids=["float-tiff", "int-tiff", "pfm"],
)
def test_pixels_of_unknown_range_are_errors(data, what):
    error = refused_image(data)
    assert error.code == "image-unsupported"
    assert what in str(error)
    assert "range is unknown" in str(error)


# Large images -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "flags"), [(255, ()), (256, ("16bit-scaled",))])
def test_pixels_of_a_ppm_have_two_bytes_from_a_maximum_of_256_on(most, flags):
    white = 3 * most.to_bytes(1 if most < 256 else 2, "big")
    image = decoded(b"P6\n1 2\n%d\n" % most + bytes(len(white)) + white)
    assert (image.flags, image.pixels.tolist()) == (flags, [[[0] * 3], [[255] * 3]])


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name != "pgm-16bit"])
def test_large_images_are_converted_in_parts_to_the_same_pixels(sample, monkeypatch):
    """Parts have two rows here, the last one has one; transparency may be in any part."""
    for data in (SAMPLES[sample], encode(HALF_CLEAR, "PNG"), encode(HALF_CLEAR, "WEBP", lossless=True)):
        whole = decoded(data)
        with monkeypatch.context() as patch:
            patch.setattr("genpr.images.decode._PART_PIXELS", 2 * whole.pixels.shape[1])
            parts = decoded(data)
        np.testing.assert_array_equal(parts.pixels, whole.pixels)
        assert parts.flags == whole.flags


# Range of values --------------------------------------------------------------------------------------------

UNIT = np.random.default_rng(0).random((9, 12, 3)).round(1)  # 0 and 1 included


@pytest.mark.parametrize(
    ("pixels", "is_flagged"),
    [
        (UNIT, True),
        (2 * UNIT - 1, True),
        (np.zeros((9, 12, 3)), True),
        (UNIT.round() * 255, False),
        (np.full((9, 12, 3), 255), False),
        (np.where(np.arange(324).reshape(9, 12, 3) == 323, 2, UNIT), False),
        (UNIT * 255, False),
    ],
    ids=["unit", "signed", "black", "mask", "white", "one-larger-value", "scaled"],
)
def test_floats_cast_to_uint8_are_flagged(pixels, is_flagged):
    pixels = np.broadcast_to(pixels, (9, 12, 3)).astype(np.int16).astype(np.uint8)
    for data in (pixels, encode(pixels), encode(Image.fromarray(pixels), "BMP")):
        assert decoded(data).flags == (("unscaled",) if is_flagged else ())
    small = decoded(pixels, prepare="resize:20")
    assert small.flags == (("enlarged", "unscaled") if is_flagged else ("enlarged",))


@pytest.mark.parametrize(("largest", "is_flagged"), [(4095, True), (1, True), (4096, False)])
def test_16_bit_images_with_12_bits_are_flagged(largest, is_flagged):
    gray = np.full((9, 12), largest, np.uint16)
    color = np.repeat(gray[..., None], 3, axis=2)
    expected = ("16bit-scaled", *(["16bit-unscaled"] if is_flagged else []))
    for data in (encode(gray), encode(gray, "TIFF"), encode(gray, "PPM"), png_16bit_rgb(color)):
        assert decoded(data).flags == expected
