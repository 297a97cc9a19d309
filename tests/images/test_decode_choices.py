"""What the user may choose about transparency and orientation: which pixels come out, and that the choice is told."""

from __future__ import annotations

import io

import numpy as np
import pytest
from image_files import SMALL, encode, exif, noise, png_16bit_rgb, png_chunk
from PIL import Image, ImageOps

from genpr.errors import UsageError
from genpr.images.decode import content_sha256, decode
from genpr.images.pack import pack
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source


def decoded(data, **choices):
    return decode(data, name="x.png", policy=DecodePolicy(**choices))


# Transparency -----------------------------------------------------------------------------------------------


def rgba(color, alpha) -> Image.Image:
    """One opaque pixel of `color`, and one with `alpha`."""
    return Image.fromarray(np.array([[(*color, 255), (*color, alpha)]], np.uint8))


def palette() -> bytes:
    image = Image.new("P", (2, 1), 1)
    image.putpalette([0, 0, 255, 200, 100, 0])
    image.putpixel((1, 0), 0)
    return encode(image, "PNG", transparency=b"\0\xff")


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [("white", (255, 255, 255)), ("black", (0, 0, 0)), ("#0A80fF", (10, 128, 255)), ("drop", None)],
)
@pytest.mark.parametrize(
    ("data", "shown", "hidden"),
    [
        (encode(rgba((200, 100, 0), 0), "PNG"), (200, 100, 0), (200, 100, 0)),
        (encode(rgba((200, 100, 0), 0), "TIFF"), (200, 100, 0), (200, 100, 0)),
        (encode(rgba((200, 100, 0), 0), "WEBP", lossless=True, exact=True), (200, 100, 0), (200, 100, 0)),
        (encode(rgba((77, 77, 77), 0).convert("LA"), "PNG"), (77, 77, 77), (77, 77, 77)),
        (palette(), (200, 100, 0), (0, 0, 255)),
        (
            encode(Image.fromarray(np.array([[(1, 2, 3), (4, 5, 6)]], np.uint8)), transparency=(4, 5, 6)),
            (1, 2, 3),
            (4, 5, 6),
        ),
        (encode(np.array([[9 << 8, 7 << 8]], np.uint16), transparency=7 << 8), (9, 9, 9), (7, 7, 7)),
    ],
    ids=["rgba-png", "rgba-tiff", "rgba-webp", "la", "palette", "color-key", "16-bit-key"],
)
def test_hidden_colors_show_or_give_way_to_the_chosen_one(data, shown, hidden, alpha, expected):
    image = decoded(data, alpha=alpha)
    assert image.pixels.tolist() == [[list(shown), list(expected or hidden)]]
    assert ("alpha-dropped" in image.flags) == (expected is None)
    assert image.pixels.flags.c_contiguous
    assert image.pixels.flags.writeable


@pytest.mark.parametrize("color", [0, 1, 100, 254, 255])
def test_half_transparent_pixels_are_mixed_and_rounded_to_the_nearest(color):
    grid = np.zeros((256, 256, 4), np.uint8)
    grid[..., :3] = np.arange(256)[:, None, None]
    grid[..., 3] = np.arange(256)
    value, alpha = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    exact = (value * alpha + color * (255 - alpha)) / 255
    pixels = decoded(encode(Image.fromarray(grid)), alpha=f"#{color:02x}{color:02x}{color:02x}").pixels
    np.testing.assert_array_equal(pixels, np.rint(exact)[..., None].repeat(3, 2))


def test_opaque_images_are_the_same_whatever_is_chosen():
    opaque = Image.fromarray(SMALL)
    opaque.putalpha(255)
    for data in (encode(SMALL), encode(opaque), encode(SMALL, "JPEG"), SMALL):
        np.testing.assert_array_equal(decoded(data, alpha="black").pixels, decoded(data).pixels)


def test_a_color_key_of_16_bits_does_not_spill():
    pixels = np.full((2, 2, 3), 0x1234, np.uint16)
    data = png_16bit_rgb(pixels, extra=png_chunk(b"tRNS", bytes([0, 1, 0, 2, 0, 3])))
    assert (decoded(data, alpha="white").pixels == 0x12).all()


# Orientation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_pillow_turns_them(format_name, orientation):
    picture = noise(9, 12)
    tag = {"tiffinfo": {274: orientation}} if format_name == "TIFF" else {"exif": exif(orientation)}
    stored = decoded(encode(picture, format_name)).pixels
    marked = Image.fromarray(stored)
    marked.getexif()[274] = orientation
    image = decoded(encode(picture, format_name, **tag), exif="apply")
    np.testing.assert_array_equal(image.pixels, np.asarray(ImageOps.exif_transpose(marked)))
    assert image.flags == ()
    assert image.pixels.flags.c_contiguous


def test_broken_exif_turns_nothing():
    broken = encode(SMALL, exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    np.testing.assert_array_equal(decoded(broken, exif="apply").pixels, SMALL)


# Pillow images of datasets ----------------------------------------------------------------------------------


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("format_name", ["PNG", "JPEG"])
def test_images_of_a_dataset_obey_the_choices_and_tell_what_is_lost(format_name):
    turned = encode(SMALL, format_name, exif=exif(6))
    see_through = encode(rgba((200, 100, 0), 0))
    for data, flag in ((turned, "exif-orientation"), (see_through, "alpha-dropped")):
        (item,) = open_source([opened(data)])
        for choices in ({}, {"alpha": "white", "exif": "apply"}):
            image, same = decoded(item.read(), **choices), decoded(data, **choices)
            np.testing.assert_array_equal(image.pixels, same.pixels)
            assert image.flags == same.flags == (() if choices else (flag,))


def test_a_tiff_that_pillow_has_turned_is_not_turned_again():
    data = encode(SMALL, "TIFF", tiffinfo={274: 6})
    (item,) = open_source([opened(data)])
    image = decoded(item.read(), exif="apply")
    np.testing.assert_array_equal(image.pixels, decoded(data, exif="apply").pixels)
    assert image.flags == ()


def test_images_of_a_dataset_are_known_by_their_pixels():
    (item,) = open_source([opened(encode(SMALL))])
    assert content_sha256(item.read()) == content_sha256(SMALL)


# Options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices",
    [{"alpha": "red"}, {"alpha": "#fff"}, {"alpha": "#gggggg"}, {"alpha": None}, {"exif": "rotate"}],
)
def test_other_choices_are_refused(choices):
    with pytest.raises(UsageError) as caught:
        DecodePolicy(**choices)
    assert caught.value.code == "bad-option"


def test_only_what_is_chosen_is_recorded_and_equal_choices_alike():
    assert DecodePolicy(max_pixels=5).choices == {}
    assert DecodePolicy(alpha="black", exif="apply").choices == {"alpha": "#000000", "exif": "apply"}
    assert DecodePolicy(alpha="white").choices == DecodePolicy(alpha="#FFFFFF").choices


def test_packed_images_obey_the_choices(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(encode(rgba((200, 100, 0), 0), exif=exif(6)))
    assert pack(tmp_path / "in", tmp_path / "out.npz", alpha="white", exif="apply") == 1
    packed = np.load(tmp_path / "out.npz")["arr_0"]
    assert packed.tolist() == [[[[200, 100, 0]], [[255, 255, 255]]]]
