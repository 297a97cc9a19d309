"""Small files that would take a decoder much time or memory, and large ordinary files, which are accepted."""

import io
import struct
import time
import tracemalloc
import warnings
import zlib

import numpy as np
import PIL
import pytest
from image_files import (
    PNG,
    SAMPLES,
    SMALL,
    TIFF_JPEG,
    decoded,
    encode,
    exif,
    png,
    png_chunk,
    raised,
    refused_image,
    tiff,
)
from PIL import Image, ImageFile

from genpr import embed, load_extractor
from genpr.errors import BadImagesError

MOST_SECONDS = 3.0  # of processor time; each took 5 to 50 s, or gigabytes


@pytest.fixture(autouse=True)
def _in_little_time():
    started = time.process_time()
    yield
    assert time.process_time() - started < MOST_SECONDS


@pytest.fixture
def no_pixels(monkeypatch):
    """Assert that loaders of Pillow decode no pixels."""
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("pixels were decoded"))
    monkeypatch.setattr(
        "PIL.TiffImagePlugin.TiffImageFile._load_libtiff", lambda _: pytest.fail("pixels were decoded")
    )


def segment(marker: int, body: bytes = b"") -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


# Pixels beyond the image ------------------------------------------------------------------------------------


LONG = dict.fromkeys((256, 257, 273, 278, 279, 324, 325), "I")


def gray_tags(size: tuple[int, int], *, compression: int) -> dict[int, list[int]]:
    return {256: [size[0]], 257: [size[1]], 258: [8], 259: [compression], 262: [1], 277: [1]}


def tiled_tiff(size: tuple[int, int], tile: tuple[int, int], *, kind: str = "I", tiles: int = 1) -> bytes:
    """Tiles of zeros; `kind` is the `struct` letter of the tile's sides."""
    strip = zlib.compress(bytes(tile[0] * tile[1] if tile[0] * tile[1] < 10**6 else 1000), 9)
    places = {322: [tile[0]], 323: [tile[1]], 324: [8] * tiles, 325: [len(strip)] * tiles}
    return tiff(gray_tags(size, compression=8) | places, strip, kinds=LONG | {322: kind, 323: kind})


@pytest.mark.parametrize("kind", ["H", "I", "q"])
@pytest.mark.parametrize("order", ["first", "last"])
def test_tiff_tile_larger_than_the_limit_is_an_error(kind, order, no_pixels):
    data = tiled_tiff((1, 1), (26_000, 26_000), kind=kind)
    small = struct.pack("<HHII", 322, 4, 1, 16)
    at = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, at)[0] + 1
    where = at + 2 if order == "first" else len(data) - 4
    repeated = data[:at] + struct.pack("<H", count) + data[at + 2 : where] + small + data[where:]
    for each in (data, repeated, tiled_tiff((1, 65_536), (9000, 16), tiles=4096)):
        assert refused_image(each).code in {"image-too-large", "image-corrupt"}


def test_gif_frame_larger_than_its_screen_is_an_error(monkeypatch):
    """Pillow allocates such a frame while it opens the file."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr("PIL.Image.core.fill", lambda *_: pytest.fail("the frame was filled"))
    control = b"!\xf9\x04\x08\0\0\0\0"
    frame = b",\0\0\0\0" + struct.pack("<HHB", 65_535, 65_535, 0) + b"\x02\x02\x4c\x01\0;"
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    for between in (b"", b"!\xfe\x03abc\0", b"\0\0"):
        assert refused_image(screen + between + control + frame).code == "image-too-large"


@pytest.mark.parametrize("size", [(2**20 + 1, 1), (1, 2**20 + 1)])
def test_sides_of_more_than_a_million_pixels_are_errors(size):
    header = struct.pack("<IiiHHIIiiII", 40, *size, 1, 8, 1, 6, 0, 0, 0, 0)
    bmp = b"BM" + struct.pack("<IHHI", 1084, 0, 0, 1078) + header + bytes(range(256)) * 4 + b"\1\5\0\0\0\1"
    files = [bmp, png(*size, bits=8, color=0, rows=bytes(100)), b"P4\n%d %d\n" % size + bytes(2**18)]
    for data in files:
        assert refused_image(data).code == "image-too-large"
    assert refused_image(np.zeros((size[1], size[0], 3), np.uint8)).code == "image-too-large"


def test_size_of_a_jpeg_is_in_one_frame_header(no_pixels):
    at = JPEG.index(b"\xff\xc0")
    header = JPEG[at : at + 2 + int.from_bytes(JPEG[at + 2 : at + 4], "big")]
    smaller = header[:5] + struct.pack(">HH", 8, 8) + header[9:]
    for each in (header, smaller):
        assert refused_image(JPEG[:at] + each + JPEG[at:]).code == "image-corrupt"
    # Pillow looks for headers in a segment that libjpeg does not know, and uses the size that it finds there.
    hidden = segment(0xC8, smaller)
    at += len(header)
    assert refused_image(JPEG[:at] + hidden + JPEG[at:]).code == "image-corrupt"


def repeat_tag(data: bytes, tag: int) -> bytes:
    """A little-endian TIFF, which ends with its tags, with one tag twice."""
    at = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, at)[0]
    entries = [data[at + 2 + 12 * i : at + 14 + 12 * i] for i in range(count)]
    entries += [entry for entry in entries if entry.startswith(struct.pack("<H", tag))]
    return data[:at] + struct.pack("<H", count + 1) + b"".join(sorted(entries)) + bytes(4)


STRIP = gray_tags((4, 4), compression=1) | {273: [8], 278: [4], 279: [16]}
UNSAFE = {
    "jpeg": TIFF_JPEG,
    "zstd": tiff(STRIP | {259: [50000]}, bytes(16)),
    "fax": tiff(STRIP | {258: [1], 259: [4]}, bytes(16)),
    "tiles": tiled_tiff((16, 16), (16, 16)),
    "YCbCr": tiff(STRIP | {258: [8, 8, 8], 262: [6], 277: [3], 279: [48]}, bytes(48)),
    "type": tiff(STRIP, bytes(16), kinds={259: "q"}),
    "repeated": repeat_tag(tiff(STRIP, bytes(16)), 262),
    "no-colors": tiff({tag: value for tag, value in STRIP.items() if tag != 262}, bytes(16)),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_tiff_that_old_pillow_decodes_beyond_its_buffers_is_an_error(name, monkeypatch, no_pixels):
    monkeypatch.setattr(PIL, "__version__", "12.3.0")
    assert refused_image(UNSAFE[name]).code == "image-unsupported"


@pytest.mark.parametrize("name", ["tiff", "tiff-lzw", "tiff-deflate", "tiff-16bit", "tiff-pages"])
def test_plain_tiff_is_read_by_any_pillow(name, monkeypatch):
    found = decoded(SAMPLES[name])
    monkeypatch.setattr(PIL, "__version__", "11.3.0")
    np.testing.assert_array_equal(decoded(SAMPLES[name]).pixels, found.pixels)


# Passes over an image ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [b"", b"\xff", b"\xff\x01"], ids=["plain", "fill", "parameterless"])
def test_jpeg_of_thousands_of_scans_is_an_error(fill, no_pixels):
    data = encode(Image.new("RGB", (2000, 2000)), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    data = data[:-2] + fill.join([last] * 2000) + data[-2:]
    assert refused_image(data).code == "image-too-large"


# Pieces -----------------------------------------------------------------------------------------------------

SCREEN = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
FRAME = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x4c\x01"
JPEG = SAMPLES["jpeg"]


PIECES = {
    "jpeg-comments": JPEG[:2] + segment(0xFE) * 300_000 + JPEG[2:],
    "jpeg-app0": JPEG[:2] + segment(0xE0, b"a") * 300_000 + JPEG[2:],
    "jpeg-junk": JPEG[:20] + bytes(1_200_000) + JPEG[20:],
    "png-data": PNG[:33] + png_chunk(b"IDAT", b"") * 300_000 + PNG[33:],
    "png-unknown": PNG[:33] + png_chunk(b"teSt", b"") * 300_000 + PNG[33:],
    "gif-comment": SCREEN + b"!\xfe" + b"\1a" * 600_000 + b"\0" + FRAME + b"\0;",
    "gif-comments": SCREEN + b"!\xfe\1a\0" * 2000 + FRAME + b"\0;",
    "gif-data": SCREEN + FRAME + b"\1a" * 600_000 + b"\0;",
    "ppm-comment": b"P6\n#" + b"a" * 1_200_000 + b"\n1 1\n255\nabc",
}


@pytest.mark.parametrize("data", PIECES.values(), ids=PIECES)
def test_files_of_a_million_pieces_are_errors(data):
    assert refused_image(data).code == "image-too-large"


def test_long_comment_of_a_gif_is_skipped():
    comment = b"!\xfe" + (b"\xff" + b"a" * 255) * 60_000 + b"\0"
    plain = decoded(SCREEN + FRAME + b"\0;")
    assert decoded(SCREEN + comment + FRAME + b"\0" + comment + b";").pixels.tolist() == plain.pixels.tolist()


def test_tiff_strips_that_share_bytes_are_an_error():
    count = 20_000
    places = {273: [8] * count, 278: [1], 279: [1] * count}
    data = tiff(gray_tags((1, count), compression=1) | places, bytes(70_000), kinds=LONG)
    assert refused_image(data).code == "image-too-large"


# Metadata ---------------------------------------------------------------------------------------------------


def tag_bomb(*, tags: int, size: int) -> bytes:
    """An EXIF block whose tags all refer to the same bytes."""
    entries = b"".join(struct.pack("<HHII", 0x9000 + tag, 7, size, 8) for tag in range(tags))
    return b"II*\0" + struct.pack("<IH", 8, tags) + entries + bytes(4 + size)


@pytest.mark.parametrize("name", ["jpeg", "avif", "png", "webp"])
def test_exif_tags_that_share_bytes_are_not_copied(name):
    bomb = tag_bomb(tags=4000, size=500_000)
    if name == "jpeg":
        parts = [bomb[at : at + 60_000] for at in range(0, len(bomb), 60_000)]
        data = JPEG[:2] + b"".join(segment(0xE1, b"Exif\0\0" + part) for part in parts) + JPEG[2:]
    elif name == "avif":  # the encoder would copy them
        without_tags = tag_bomb(tags=0, size=len(bomb) - 14)
        data = encode(SMALL, "AVIF", exif=without_tags).replace(without_tags, bomb)
        assert bomb in data
    else:
        with warnings.catch_warnings(action="ignore"):
            data = encode(SMALL, name.upper(), exif=bomb)
    # Before memory is traced, since it also imports what decoding needs.
    plain = decoded(JPEG if name == "jpeg" else encode(SMALL, name.upper()))
    tracemalloc.start()
    try:
        found = decoded(data)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(bomb)
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found.pixels, plain.pixels)


@pytest.mark.parametrize("kind", [b"iCCP", b"zTXt", b"iTXt"])
def test_profiles_and_texts_of_a_png_are_not_decompressed(kind):
    head = b"a\0\1\0\0\0" if kind == b"iTXt" else b"a\0\0"
    chunk = png_chunk(kind, head + zlib.compress(bytes(2**20), 9))
    for at in (33, len(PNG) - 12):
        refused_image(PNG[:at] + chunk * 3000 + PNG[at:])


def test_orientation_and_colors_do_not_need_other_metadata():
    turned = exif(6)
    camera = segment(0xE1, b"Exif\0\0" + turned.tobytes().removeprefix(b"Exif\0\0"))
    icc = segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(3000))
    for name in ("jpeg", "jpeg-cmyk", "jpeg-progressive", "mpo"):
        plain = SAMPLES[name]
        marked = plain[:2] + camera + icc + segment(0xED, b"Photoshop 3.0\0") + plain[2:]
        # Bytes between segments must not become markers when what lies between them goes.
        junk = plain[:2] + camera + b"\5\xff\xff" + icc[1:] + b"\xdb\xdb" + plain[2:]
        for data in (marked, junk):
            with Image.open(io.BytesIO(data)) as opened:
                np.testing.assert_array_equal(decoded(data).pixels, np.asarray(opened.convert("RGB")))
            assert "exif-orientation" in decoded(data).flags


# What Pillow decodes pixel by pixel -------------------------------------------------------------------------


SLOW = {
    "ppm": b"P6\n1025 1024\n254\n" + bytes(3 * 1025 * 1024),
    "deep ppm": b"P6\n1025 1024\n65535\n" + bytes(6 * 1025 * 1024),
    "plain ppm": b"P2 1025 1024 255\n" + b"0 " * (1025 * 1024),
    "comments": b"P2 2 2 255\n" + b"#c\n" * 500_000 + b"1 2 3 4",
}


@pytest.mark.parametrize("data", SLOW.values(), ids=SLOW)
def test_formats_that_pillow_decodes_in_python_are_limited(data, no_pixels):
    assert refused_image(data).code == "image-too-large"


# Every way in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["folder", "list", "zip", "tar", "parquet"])
def test_hostile_images_are_errors_in_every_kind_of_source(way, pack):
    images = {"large.png": png(2**16, 2**16, bits=8, color=0, rows=b""), "slow.ppm": SLOW["comments"]}
    error = raised(BadImagesError, embed, pack(way, images), load_extractor("pixels"))
    assert [bad.code for bad in error.bad] == ["image-too-large"] * 2
