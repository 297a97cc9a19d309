"""Files that are not images or are damaged: each is an error that names the file."""

from io import BytesIO

import numpy as np
import pytest
from image_files import PALETTE, SAMPLES, SMALL, decoded, encode, noise, refused_image
from PIL import Image

from genpr.errors import ImageError

# Truncated and corrupt --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_truncated_images_are_errors_unless_no_pixel_is_lost(name):
    data = SAMPLES[name]
    whole = decoded(data).pixels
    for length in range(len(data)):
        try:
            cut = decoded(data[:length])
        except ImageError:
            continue
        np.testing.assert_array_equal(cut.pixels, whole, err_msg=f"first {length} of {len(data)} bytes")


def test_missing_end_of_a_jpeg_that_pillow_accepts_is_an_error():
    picture = Image.fromarray(noise(24, 40)).convert("CMYK")
    data, preview = encode(picture, "JPEG"), b"JFXX\0\x10" + encode(SMALL[:2, :2], "JPEG")  # with its own end
    data = data[:2] + b"\xff\xe0" + (2 + len(preview)).to_bytes(2, "big") + preview + data[2:]
    assert data.count(b"\xff\xd9") == 2
    decoded(data)
    Image.open(BytesIO(data[:-2])).load()
    assert refused_image(data[:-2]).code == "image-corrupt"


def test_every_flipped_bit_in_the_pixels_of_a_png_is_an_error():
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


def test_out_of_memory_is_not_reported_as_a_bad_image(monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("genpr.images.decode.rgb_pixels", exhausted)
    with pytest.raises(MemoryError):
        decoded(SAMPLES["png"])


# Not an image -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "empty"),
        (b"\n  <html lang='en'>", "accepted format"),
        (b"<!---->" * 25, "accepted format"),
        (b'{"error": "not found"}', "error"),
        (b"PK\x03\x04rest", "PK"),
        (b"\xde\xad\xbe\xef\x00\x01", r"\xde\xad\xbe\xef"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "RIFF"),
    ],
)
def test_kind_of_a_file_that_is_not_an_image_is_named(data, cause):
    error = refused_image(data)
    assert error.code == "image-unreadable"
    assert cause in str(error)


def test_flipped_bit_in_a_jpeg_scan_is_not_detected():
    data = encode(noise(32, 32), "JPEG")
    at = data.index(b"\xff\xda") + 200
    flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    before, after = (decoded(each) for each in (data, flipped))
    assert (before.pixels != after.pixels).any(), "it decodes, and to other pixels"
