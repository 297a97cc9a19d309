"""Options for transparency and orientation: resulting pixels and flags."""

import io

import numpy as np
import pytest
from image_files import SMALL, encode, exif, noise
from PIL import Image, ImageOps
from raising import raised

from genpr.errors import UsageError
from genpr.images.decode import decode
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source


def decoded(data, **choices):
    return decode(data, name="x.png", policy=DecodePolicy(**choices))


def test_pixel_limit_of_the_process_refuses_no_crop(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    for rule in ("center-crop", "square-crop", "resize"):
        assert decoded(encode(noise(20, 30)), prepare=f"{rule}:16").pixels.shape == (16, 16, 3)


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
def test_transparent_pixels_show_their_color_or_the_chosen_background(data, shown, hidden, alpha, expected):
    image = decoded(data, alpha=alpha)
    assert image.pixels.tolist() == [[list(shown), list(expected or hidden)]]
    assert ("alpha-dropped" in image.flags) == (expected is None)
    assert image.pixels.flags.c_contiguous
    assert image.pixels.flags.writeable


@pytest.mark.parametrize(
    "data",
    [
        encode(rgba((255, 0, 0), 255)),
        encode(Image.new("P", (4, 4), 1), transparency=b"\0\xff\0"),
        encode(Image.new("P", (4, 4), 1), transparency=0),
        encode(Image.new("RGB", (4, 4), (255, 0, 0)), transparency=(255, 0, 1)),
        encode(np.full((3, 3), 77 << 8, np.uint16), transparency=(77 << 8) + 1),
    ],
)
def test_unused_transparency_is_not_reported(data):
    assert "alpha-dropped" not in decoded(data).flags


@pytest.mark.parametrize("color", [0, 1, 100, 254, 255])
def test_half_transparent_pixels_are_blended_and_rounded_to_nearest(color):
    grid = np.zeros((256, 256, 4), np.uint8)
    grid[..., :3] = np.arange(256)[:, None, None]
    grid[..., 3] = np.arange(256)
    value, alpha = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    exact = (value * alpha + color * (255 - alpha)) / 255
    pixels = decoded(encode(Image.fromarray(grid)), alpha=f"#{color:02x}{color:02x}{color:02x}").pixels
    np.testing.assert_array_equal(pixels, np.rint(exact)[..., None].repeat(3, 2))


# Orientation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_as_by_pillow(format_name, orientation):
    picture = noise(9, 12)
    tag = {"tiffinfo": {274: orientation}} if format_name == "TIFF" else {"exif": exif(orientation)}
    stored = decoded(encode(picture, format_name)).pixels
    marked = Image.fromarray(stored)
    marked.getexif()[274] = orientation
    image = decoded(encode(picture, format_name, **tag), exif="apply")
    np.testing.assert_array_equal(image.pixels, np.asarray(ImageOps.exif_transpose(marked)))
    assert image.flags == ()
    assert image.pixels.flags.c_contiguous


# Pillow images of datasets ----------------------------------------------------------------------------------


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("format_name", ["PNG", "JPEG"])
def test_images_of_a_dataset_have_the_same_options_and_flags(format_name):
    turned = encode(SMALL, format_name, exif=exif(6))
    see_through = encode(rgba((200, 100, 0), 0))
    for data, flag in ((turned, "exif-orientation"), (see_through, "alpha-dropped")):
        (item,) = open_source([opened(data)])
        for choices in ({}, {"alpha": "white", "exif": "apply"}):
            image, same = decoded(item.read(), **choices), decoded(data, **choices)
            np.testing.assert_array_equal(image.pixels, same.pixels)
            assert image.flags == same.flags == (() if choices else (flag,))


# Options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices",
    [{"alpha": "red"}, {"alpha": "#fff"}, {"alpha": "#gggggg"}, {"alpha": None}, {"exif": "rotate"}],
)
def test_invalid_options_are_errors(choices):
    assert raised(UsageError, DecodePolicy, **choices).code == "bad-option"


def test_only_changed_options_are_recorded_in_normal_form():
    assert DecodePolicy(max_pixels=5).choices == {}
    assert DecodePolicy(alpha="black", exif="apply").choices == {"alpha": "#000000", "exif": "apply"}
    assert DecodePolicy(alpha="white").choices == DecodePolicy(alpha="#FFFFFF").choices
