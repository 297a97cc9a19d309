"""HEIC and JPEG XL: read with the plugins of Pillow that the user installed, and otherwise errors that name the extra."""

import io
import struct
import sys

import numpy as np
import pytest
from image_files import PNG, SMALL, decoded, encode, heic, jxl, names, noise, refused_image
from PIL import Image

import genpr
from genpr.images.decode import decoder_versions
from genpr.images.formats import PLUGINS, jpeg_xl_size
from genpr.images.source import open_source

FTYP = struct.pack(">I", 12) + b"JXL \r\n\x87\n"  # the first box of the container of JPEG XL
TWO_FRAMES = bytes.fromhex(  # by cjxl 0.7: 8 x 8 pixels of (10, 10, 10), then of (200, 200, 200)
    "ff0a41040308282e09080208000050004b188b1542a9d00b4400900000000000000000000802040054004b188b15c249415e20028090000000000000000000"
)


GRAY_16 = bytes.fromhex(  # by pillow-jxl-plugin 1.3.8, since older ones cannot write it
    "0000000c4a584c200d0a870a00000014667479706a786c20000000006a786c20000000096a786c6c0a000000376a786c63ff0a1030fc00458b0800010084004b188b"
    "154202645e00a8fd131007c401711e45c1f8d06380c6c1d465da2c7d9c0e"
)
FILES = {"HEIC": heic, "JPEG XL": jxl}


def bits(*fields):
    """A codestream of JPEG XL that begins with numbers, each with its length in bits."""
    value = at = 0
    for number, length in fields:
        value, at = value | number << at, at + length
    return b"\xff\n" + value.to_bytes(at // 8 + 1, "little")


def box(kind, body, size=None):
    return struct.pack(">I", 8 + len(body) if size is None else size) + kind + body


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "list", "parquet"])
def test_lossless_files_have_the_pixels_of_their_source(pack, name, kind):
    files = {f"{number}.{PLUGINS[name][0]}": FILES[name](np.roll(SMALL, number, 1)) for number in range(2)}
    source = open_source(pack(kind, files))
    for number, item in enumerate(source):
        np.testing.assert_array_equal(decoded(item.read()).pixels, np.roll(SMALL, number, 1))
    assert len(source) == 2


@pytest.mark.parametrize("name", FILES)
def test_lossy_files_have_the_pixels_of_the_plugin(name):
    data = FILES[name](SMALL, **({"quality": 60} if name == "HEIC" else {"lossless": False, "quality": 60}))
    *_, module, plugin = PLUGINS[name]
    image = getattr(sys.modules[module], plugin)(io.BytesIO(data))
    np.testing.assert_array_equal(decoded(data).pixels, np.asarray(image.convert("RGB")))
    assert (decoded(data).pixels != SMALL).any()


@pytest.mark.parametrize("name", FILES)
def test_score_records_the_version_of_the_plugin(pack, name):
    images = [noise(8, 8, seed) for seed in range(12)]
    folder = pack("folder", {f"{number}.x": FILES[name](image) for number, image in enumerate(images)})
    options = {"extractor": "pixels", "k": 1, "intervals": False, "control": False, "cache": False}
    result = genpr.score(np.stack(images[::-1]), folder, **options)
    assert result.fake.decoder[PLUGINS[name][1]] == decoder_versions()[PLUGINS[name][1]]
    assert result.n_shared == 0  # the bytes of files and of arrays differ
    assert (result["precision"], result["coverage"]) == (1, 1)
    mixed = genpr.score(
        pack("zip", {f"{n}.png": encode(each) for n, each in enumerate(images)}), folder, **options
    )
    assert "codec-mismatch" in {each.code for each in mixed.notices}


@pytest.mark.parametrize("name", FILES)
def test_without_the_plugin_no_image_is_left_out_and_the_error_names_the_extra(pack, name, monkeypatch):
    extra, *_, module, _ = PLUGINS[name]
    monkeypatch.setitem(sys.modules, module, None)
    start = FTYP if name == "JPEG XL" else b"\0\0\0\x1cftypheic"
    files = {"a.png": PNG, f"b.{extra}": start, "c": start}
    for kind in ("folder", "zip", "tar"):
        source = open_source(pack(kind, files))
        assert sorted(names(source)) == sorted(files)
        assert source.passed_over == {}
    error = refused_image(start)
    assert error.code == "image-unsupported"
    assert f"genpr[{extra}]" in str(error)


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_cut_short_are_errors(name):
    data = FILES[name](SMALL)
    for end in (16, len(data) // 2, len(data) - 1):
        assert refused_image(data[:end]).code == "image-corrupt"


def test_heic_is_as_large_as_it_states():
    pixels = noise(64, 64)  # a multiple of the blocks of HEVC, so that it is not cropped
    data = heic(pixels)
    sides = data.index(b"ispe") + 8
    for width, code in ((60_000, "image-too-large"), (8, "image-corrupt"), (1000, "image-corrupt")):
        forged = data[:sides] + struct.pack(">II", width, width) + data[sides + 8 :]
        assert refused_image(forged).code == code
    assert refused_image(data, max_pixels=64 * 64 - 1).code == "image-too-large"


def test_gray_of_16_bits_and_transparency_in_jpeg_xl_are_reported():
    pytest.importorskip("pillow_jxl")
    values = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    found = decoded(GRAY_16)
    np.testing.assert_array_equal(found.pixels[..., 1], values >> 8)
    assert found.flags == ("16bit-scaled",)
    found = decoded(jxl(np.dstack([SMALL, SMALL[..., :1]])))
    np.testing.assert_array_equal(found.pixels, SMALL)
    assert found.flags == ("alpha-dropped",)


def test_primary_image_of_several_in_heic_is_used_and_others_are_reported():
    plugin = pytest.importorskip("pillow_heif")
    several, file = plugin.HeifFile(), io.BytesIO()
    for shift in range(3):
        several.add_from_pillow(Image.fromarray(np.roll(SMALL, shift, 1)))
    several.save(file, quality=-1, chroma=444, matrix_coefficients=0, primary_index=1)
    found = decoded(file.getvalue())
    np.testing.assert_array_equal(found.pixels, np.roll(SMALL, 1, 1))
    assert found.flags == ("multi-frame",)
    assert decoded(heic(SMALL)).flags == ()


# The header of JPEG XL, which needs no plugin -----------------------------------------------------------------


def test_sizes_in_headers_of_jpeg_xl():
    rest = [(0, 2), (0, 60)]
    for fields, size in (
        ([(1, 1), (4, 5), (0, 3), (6, 5)], (56, 40)),  # eighths
        ([(0, 1), (0, 2), (299, 9), (0, 3), (1, 2), (8191, 13)], (8192, 300)),
        ([(0, 1), (2, 2), (99_999, 18), (0, 3), (3, 2), (2**30 - 1, 30)], (2**30, 100_000)),
        *(
            ([(0, 1), (1, 2), (1079, 13), (ratio, 3)], (1080 * numerator // denominator, 1080))
            for ratio, numerator, denominator in (
                *((1, 1, 1), (2, 12, 10), (3, 4, 3), (4, 3, 2), (5, 16, 9), (6, 5, 4), (7, 2, 1)),
            )
        ),
    ):
        bare = bits(*fields, *rest)
        parts = [
            box(b"jxlp", number.to_bytes(4, "big") + bare[number : number + 1]) for number in range(len(bare))
        ]
        for data in (
            bare,
            FTYP + box(b"Exif", bytes(99)) + box(b"jxlc", bare),
            FTYP + box(b"jxlc", bare, size=0),  # until the end of the file
            FTYP + box(b"jxlc", struct.pack(">Q", 16 + len(bare)) + bare, size=1),
            FTYP + b"".join(parts),
        ):
            assert jpeg_xl_size(data) == size


@pytest.mark.parametrize("shape", [(1, 1), (8, 16), (8, 257), (33, 11), (300, 400), (90, 160), (1, 520)])
def test_headers_of_jpeg_xl_files_have_their_size(shape):
    pixels = np.zeros((*shape, 3), np.uint8)
    for options in ({}, {"use_container": True}):
        assert jpeg_xl_size(jxl(pixels, **options)) == shape[::-1]
        assert decoded(jxl(pixels, **options)).pixels.shape == pixels.shape


def test_hostile_jpeg_xl_is_refused_by_its_header():
    pytest.importorskip("pillow_jxl")  # which would decode all pixels when it opens a file
    square = bits((0, 1), (3, 2), (2**30 - 1, 30), (1, 3), (0, 80))
    for data in (square, FTYP + box(b"jxlc", square)):
        assert refused_image(data).code == "image-too-large"
    assert refused_image(TWO_FRAMES).code == "image-unsupported"  # of which the plugin gives the last frame
    oriented = [(0, 1), (1, 1), (7, 3)]  # no defaults, additional fields, an orientation
    shown = [(1, 1), (1, 1), (0, 5), (1, 3)]  # shown as 8 x 8
    for fields in ([*oriented, (0, 1), (2, 2)], [*oriented, *shown, (1, 2)]):  # an animation, a preview
        assert refused_image(bits((1, 1), (0, 5), (1, 3), *fields)).code == "image-unsupported"
    assert jpeg_xl_size(bits((1, 1), (0, 5), (1, 3), *oriented, *shown, (0, 2))) == (8, 8)
    for data in (FTYP, FTYP + box(b"abcd", b""), FTYP + box(b"jxlc", b"\0" * 30), FTYP + bytes(2**21)):
        assert refused_image(data).code in {"image-corrupt", "image-too-large"}
