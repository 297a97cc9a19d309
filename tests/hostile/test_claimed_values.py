"""Files of values whose tags claim more than they have are errors in bounded time and memory, before anything is decoded."""

import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hostile.side_effects import limited_effects
from image_files import png, refused_image, tiff
from raising import raised

from genpr.errors import DataError, ImageError
from genpr.features.source_features import open_input
from genpr.images.decode import decode
from genpr.images.policy import DecodePolicy

pytest.importorskip("tifffile")
OPTIONS = {"value_range": "0:4095", "bands": "all"}
WIDTH, HEIGHT, BITS, COMPRESSION, COLORS, OFFSETS, SAMPLES, ROWS, COUNTS = (
    *(256, 257, 258, 259, 262, 273, 277, 278, 279),
)
KINDS = {WIDTH: "I", HEIGHT: "I", OFFSETS: "I", COUNTS: "I", ROWS: "I"}


def values_tiff(data=bytes(8 * 8 * 5 * 2), kinds=None, **others):
    """A TIFF of five bands of 16 bits, 8 x 8, with other tags."""
    tags = {WIDTH: 8, HEIGHT: 8, BITS: [16] * 5, COMPRESSION: 1, COLORS: 1, OFFSETS: 8, SAMPLES: 5, ROWS: 8}
    tags |= {COUNTS: len(data), 284: 1, 338: [0] * 4}
    tags |= {int(name[1:]): value for name, value in others.items()}
    listed = {
        tag: value if isinstance(value, list) else [value] for tag, value in tags.items() if value is not None
    }
    return tiff(listed, data, kinds=KINDS | (kinds or {}))


BOMB = zlib.compress(bytes(2**28), 9)  # 256 MB in 261 kB
HOSTILE = {
    "size of a million": (values_tiff(t256=2**20, t257=2**20), "image-too-large"),
    "size of billions": (values_tiff(t256=2**32 - 1, t257=2**32 - 1), "image-too-large"),
    "long side": (values_tiff(t256=2**21, t257=1), "image-too-large"),
    "65,535 bands": (values_tiff(t277=2**16 - 1, t256=9000, t257=9000), "image-too-large"),
    "no bands": (values_tiff(t277=0), "image-corrupt"),
    "no width": (values_tiff(t256=0), "image-corrupt"),
    "bits of 64": (values_tiff(t258=[64] * 5), "image-corrupt"),
    "bits of 7": (values_tiff(t258=[7] * 5), "image-unsupported"),
    "bits that differ": (values_tiff(t258=[16, 8, 16, 8, 16]), "image-corrupt"),
    "large tile": (
        values_tiff(t322=2**16, t323=2**16 - 16, t324=8, t325=640, kinds={322: "I", 323: "I"}),
        "image-too-large",
    ),
    "strips outside of the file": (values_tiff(t273=2**31), "image-corrupt"),
    "short strips": (values_tiff(t279=10), "image-corrupt"),
    "empty strips": (values_tiff(t279=0), "image-corrupt"),
    "many strips": (
        values_tiff(t256=1, t257=2**19, t278=1, t273=[8] * 2**19, t279=[10] * 2**19),
        "image-too-large",
    ),
    "Deflate bomb": (values_tiff(BOMB, t259=8), None),
    "damaged Deflate": (values_tiff(BOMB[:1000], t259=8), None),
    "JPEG": (values_tiff(t259=7), "image-unsupported"),
    "unknown compression": (values_tiff(t259=9), "image-unsupported"),
    "unknown colors": (values_tiff(t262=32803), "image-unsupported"),
    "no colors": (values_tiff(t262=None), "image-unsupported"),
    "depth": (values_tiff(t32997=1000), "image-corrupt"),
    "no offsets": (values_tiff(t273=None), "image-corrupt"),
    "complex": (values_tiff(t339=[6] * 5), None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_tiffs_that_claim_too_much_are_errors(tmp_path, name):
    data, code = HOSTILE[name]
    with limited_effects(tmp_path, seconds=5, memory=2**29):
        error = refused_image(data, **OPTIONS)
    assert code is None or error.code == code, error


def test_valid_tiff_of_the_same_form_is_read(tmp_path):
    from image_files import decoded

    assert decoded(values_tiff(), **OPTIONS).pixels.shape == (8, 8, 5)


def test_repeated_tags_of_a_tiff_do_not_evade_the_limit(tmp_path):
    data = bytearray(values_tiff())
    (page,) = struct.unpack("<I", data[4:8])
    (count,) = struct.unpack("<H", data[page : page + 2])
    first = data[page + 2 : page + 14]
    assert struct.unpack("<H", first[:2]) == (WIDTH,)
    for sizes in ((2**20, 8), (8, 2**20)):
        pair = b"".join(first[:8] + struct.pack("<I", size) for size in sizes)
        table = struct.pack("<H", count + 1) + pair + data[page + 14 :]
        with limited_effects(tmp_path, seconds=5, memory=2**29):
            assert refused_image(bytes(data[:page]) + table, **OPTIONS).code in {
                "image-corrupt",
                "image-too-large",
            }


@pytest.mark.parametrize(("tag", "kind", "repeats"), [(33628, 4, 1), (317, 1, 3000), (700, 2, 3000)])
def test_long_tags_of_a_tiff_are_read_in_bounded_time(tmp_path, tag, kind, repeats):
    data, size = values_tiff(), 2**25
    (page,) = struct.unpack("<I", data[4:8])
    (count,) = struct.unpack("<H", data[page : page + 2])
    added = struct.pack("<HHII", tag, kind, size // {4: 4}.get(kind, 1), page) * repeats
    table = struct.pack("<H", count + repeats) + data[page + 2 : -4] + added + bytes(4)
    body = data[:4] + struct.pack("<I", page + size) + data[8:page] + bytes(size)
    with limited_effects(tmp_path, seconds=15, memory=2**29), suppress(ImageError):
        decode(body + table, name="x", policy=DecodePolicy(**OPTIONS))


def test_tiff_with_a_page_that_follows_itself_is_read_once(tmp_path):
    data = bytearray(values_tiff())
    data[-4:] = data[4:8]
    from image_files import decoded

    with limited_effects(tmp_path, seconds=5, memory=2**29):
        assert decoded(bytes(data), **OPTIONS).flags == ("multi-frame", "dark-range")


def test_png_of_16_bits_that_expands_is_an_error(tmp_path):
    rows = bytes(30_001 * 6 * 4)
    for width in (30_000, 2**20):
        data = png(width, 30_000, bits=16, color=2, rows=rows)
        with limited_effects(tmp_path, seconds=5, memory=2**29):
            assert refused_image(data, **OPTIONS).code == "image-too-large"
    assert refused_image(png(8, 8, bits=16, color=2, rows=bytes(7)), **OPTIONS).code == "image-corrupt"


def npy(shape, data=b"", kind="<u2"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (npy((2**20, 2**20)), "image-corrupt"),
        (npy((10**9, 10**9, 3)), "image-corrupt"),
        (npy((8, 8), bytes(127)), "image-corrupt"),
        (npy((8, 8), bytes(200)), "image-corrupt"),
        (npy((8, 8), bytes(64), kind="|O"), "image-corrupt"),
        (npy((10_000, 9_000), bytes(90_000_000), kind="|u1"), "image-too-large"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "image-corrupt"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "image-corrupt"),
        (b"\x93NUMPY", "image-corrupt"),
    ],
)
def test_array_files_that_claim_too_much_are_errors(tmp_path, data, code):
    with limited_effects(tmp_path, seconds=5, memory=2**29):
        assert refused_image(data, **OPTIONS).code == code


def test_array_of_large_images_is_an_error_before_it_is_read(tmp_path):
    with (tmp_path / "x.npy").open("wb") as file:
        file.write(npy((2, 20_000, 20_000), kind="<f8"))
        file.truncate(len(npy((2, 20_000, 20_000), kind="<f8")) + 2 * 20_000**2 * 8)
    with limited_effects(tmp_path, seconds=5, memory=2**28):
        error = raised(DataError, open_input, tmp_path / "x.npy", "real", DecodePolicy(value_range="0:1"))
    assert error.code == "image-too-large"
    assert not isinstance(error, ImageError)
