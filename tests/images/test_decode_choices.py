"""Transparency and orientation: resulting pixels and flags."""

import io

import numpy as np
import pytest
from image_files import SMALL, decoded, encode, exif, noise
from PIL import Image

from genpr.images.source import open_source


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
def test_transparent_pixels_show_their_color(data, shown, hidden):
    image = decoded(data)
    assert image.pixels.tolist() == [[list(shown), list(hidden)]]
    assert "alpha-dropped" in image.flags
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


# Pillow images of datasets ----------------------------------------------------------------------------------


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("format_name", ["PNG", "JPEG"])
def test_images_of_a_dataset_have_the_same_pixels_and_flags(format_name):
    turned = encode(SMALL, format_name, exif=exif(6))
    see_through = encode(rgba((200, 100, 0), 0))
    for data, flag in ((turned, "exif-orientation"), (see_through, "alpha-dropped")):
        (item,) = open_source([opened(data)])
        image, same = decoded(item.read()), decoded(data)
        np.testing.assert_array_equal(image.pixels, same.pixels)
        assert image.flags == same.flags == (flag,)
