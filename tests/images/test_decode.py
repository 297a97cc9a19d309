"""Frames, orientation, size limits, uint8 arrays, and identities of images."""

import struct

import numpy as np
import pytest
from image_files import (
    SAMPLES,
    SMALL,
    decoded,
    encode,
    encode_frames,
    exif,
    noise,
    png,
    png_chunk,
    refused_image,
)
from little_memory import little_memory
from PIL import Image, ImageFile

from genpr.images.decode import content_sha256

# Frames and orientation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_first_frame_is_used_and_others_are_reported(format_name):
    red, blue = (np.full((16, 16, 3), color, np.uint8) for color in ((240, 0, 0), (0, 0, 240)))
    image = decoded(encode_frames([red, blue], format_name))
    assert image.flags == ("multi-frame",)
    assert np.abs(image.pixels.astype(int) - red).max() <= 8
    assert decoded(encode(red, format_name)).flags == ()


def test_broken_second_frame_counts_as_a_frame():
    animation = SAMPLES["gif-animated"]
    assert decoded(animation[: len(animation) * 2 // 3]).flags == ("multi-frame",)


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", [1, 2, 8, 9])
def test_orientation_is_reported_and_not_applied(format_name, orientation):
    tag = {"tiffinfo": {274: orientation}} if format_name == "TIFF" else {"exif": exif(orientation)}
    turned, plain = encode(SMALL, format_name, **tag), encode(SMALL, format_name)
    image = decoded(turned)
    np.testing.assert_array_equal(image.pixels, decoded(plain).pixels)
    assert image.flags == (("exif-orientation",) if orientation in {2, 8} else ())


@pytest.mark.parametrize(("order", "magic"), [("<", b"II*\0"), (">", b"MM\0*")])
@pytest.mark.parametrize(("kind", "code"), [("H", 3), ("I", 4)])
def test_orientation_is_read_in_both_byte_orders_and_from_long_integers(order, magic, kind, code):
    value = struct.pack(order + kind, 6).ljust(4, b"\0")
    block = magic + struct.pack(order + "IHHHI", 8, 1, 274, code, 1) + value
    assert decoded(encode(SMALL, "JPEG", exif=b"Exif\0\0" + block)).flags == ("exif-orientation",)


@pytest.mark.parametrize(
    "block",
    [
        b"garbage!",
        b"II",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"MM\0*\0\0\0\x08\xff\xff",
        b"MM\0*\0\0\0\x08\0\x01" + b"\xff" * 40,
        b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x63\0",  # orientation 99
    ],
)
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_is_ignored(block, format_name):
    options = {"lossless": True} if format_name == "WEBP" else {}
    data = encode(SMALL, format_name, exif=b"Exif\0\0" + block, **options)
    if format_name == "JPEG":
        data = data.replace(b"JFIF\0\x01\x01", b"JFIF\0\x01\x00")
    assert decoded(data).flags == ()


def test_broken_xmp_and_color_profiles_are_ignored():
    xmp = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0\xff\xfe broken utf-8")
    profile = png_chunk(b"iCCP", b"profile\0\0not zlib")
    plain = encode(SMALL)
    for extra in (xmp, profile):
        np.testing.assert_array_equal(decoded(plain[:33] + extra + plain[33:]).pixels, SMALL)
    np.testing.assert_array_equal(
        decoded(encode(SMALL, "JPEG", icc_profile=b"nonsense")).pixels, decoded(encode(SMALL, "JPEG")).pixels
    )


# Size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "megapixels"), [(10_000, "100,000,000"), (20_000, "400,000,000")])
def test_decompression_bomb_is_an_error_before_decoding(side, megapixels, monkeypatch):
    bomb = png(side, side, bits=8, color=2, rows=bytes(1 + 3 * side) * 64)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("pixels were decoded"))
    with little_memory(2**20):
        error = refused_image(bomb)
    assert error.code == "image-too-large"
    assert megapixels in str(error)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_pixel_limit_is_inclusive(name):
    decoded(SAMPLES[name], max_pixels=9 * 12)
    assert refused_image(SAMPLES[name], max_pixels=9 * 12 - 1).code == "image-too-large"


@pytest.mark.parametrize("name", ["png", "jpeg", "gif", "tiff", "webp"])
def test_pixel_limit_of_the_process_refuses_no_image(name, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert decoded(SAMPLES[name]).pixels.shape[2] == 3
    assert Image.MAX_IMAGE_PIXELS == 10


# Pixels, identity, versions ---------------------------------------------------------------------------------


def test_only_non_contiguous_and_read_only_pixels_are_copied():
    pixels = noise(6, 8)
    assert decoded(pixels).pixels is pixels
    frozen = pixels.copy()
    frozen.flags.writeable = False
    for awkward in (pixels[:, ::2], pixels[::-1], np.asfortranarray(pixels), frozen):
        image = decoded(awkward)
        np.testing.assert_array_equal(image.pixels, awkward)
        assert image.pixels.flags.c_contiguous
        assert image.pixels.flags.writeable


def test_identity_depends_only_on_content():
    pixels = noise(6, 8)
    assert content_sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_sha256(pixels[:, ::2]) == content_sha256(pixels[:, ::2].copy())
    others = (pixels, pixels.tobytes(), pixels.reshape(8, 6, 3), 255 - pixels)
    assert len({content_sha256(each) for each in others}) == 4
