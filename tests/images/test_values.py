"""Images that are not 8-bit RGB: `value_range` and `bands` against integer arithmetic, for files, arrays and data sets."""

import io
import logging
from functools import partial

import numpy as np
import pytest
import torch
from image_files import (
    IS_OLD_PILLOW,
    SMALL,
    decoded,
    encode,
    gray_tiff,
    noise,
    png,
    png_16bit_rgb,
    refused_image,
    write_files,
)
from PIL import Image
from raising import raised, raising

from genpr.errors import DataError, ImageError, UsageError
from genpr.features.source_features import OpenedImages, open_input
from genpr.images.arrays import to_levels
from genpr.images.decode import content_sha256, decode
from genpr.images.policy import DecodePolicy, choices_in, policy_of, reported
from genpr.images.source import open_source

tifffile = pytest.importorskip("tifffile")
RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 4096, (20, 30)).astype(np.uint16)
COLOR = RNG.integers(0, 4096, (20, 30, 3)).astype(np.uint16)
BANDS = RNG.integers(0, 4096, (20, 30, 5)).astype(np.uint16)
BYTES = RNG.integers(0, 256, (20, 30, 4)).astype(np.uint8)
ALPHA = RNG.integers(0, 65536, (20, 30, 1)).astype(np.uint16)
TWELVE = {"value_range": "0:4095"}


def levels(values, low=0, high=4095):
    """Rounded half up in integers, as gray or color pixels."""
    values, width = values.astype(object), high - low
    found = np.clip((2 * 255 * (values - low) + width) // (2 * width), 0, 255).astype(np.uint8)
    return np.repeat(found[..., None], 3, axis=2) if found.ndim == 2 else found


def tiff_of(values, **choices):
    file = io.BytesIO()
    tifffile.imwrite(file, values, **choices)
    return file.getvalue()


def npy_of(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def png_of(values, color):
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return png(values.shape[1], values.shape[0], bits=16, color=color, rows=rows)


def pnm(kind, values, highest):
    return f"{kind} {values.shape[1]} {values.shape[0]} {highest}\n".encode() + values.astype(">u2").tobytes()


# Files ------------------------------------------------------------------------------------------------------

FLOATS = (GRAY / 4096).astype(np.float32)  # exact
FILES = {
    "16-bit gray PNG": (encode(GRAY), levels(GRAY), TWELVE),
    "16-bit color PNG": (png_16bit_rgb(COLOR), levels(COLOR), TWELVE),
    "16-bit PNG with alpha": (png_of(np.dstack([COLOR, ALPHA]), 6), levels(COLOR), TWELVE),
    "16-bit gray PNG with alpha": (png_of(np.dstack([GRAY, ALPHA]), 4), levels(GRAY), TWELVE),
    "alpha as a band": (
        png_of(np.dstack([COLOR, ALPHA]), 6),
        levels(ALPHA[..., 0], 0, 65535),
        {"value_range": "0:65535", "bands": "4"},
    ),
    "PGM of 12 bits": (pnm("P5", GRAY, 4095), levels(GRAY), TWELVE),
    "PGM of 16 bits": (pnm("P5", GRAY, 65535), levels(GRAY), TWELVE),
    "PGM of a high and odd maximum": (
        pnm("P5", 59999 - GRAY // 16, 59999),
        levels(59999 - GRAY // 16, 59744, 59999),
        {"value_range": "59744:59999"},
    ),
    "PGM of an odd maximum": (
        pnm("P5", np.minimum(GRAY, 999), 999),
        levels(np.minimum(GRAY, 999), 0, 999),
        {"value_range": (0, 999)},
    ),
    "PFM": (
        b"Pf 30 20 -1.0\n" + FLOATS[::-1].astype("<f4").tobytes(),
        levels(GRAY, 0, 4096),
        {"value_range": "0:1"},
    ),
    ".npy": (npy_of(GRAY), levels(GRAY), TWELVE),
    ".npy of big-endian values": (npy_of(GRAY.astype(">u2")), levels(GRAY), TWELVE),
    ".npy in Fortran order": (npy_of(np.asfortranarray(COLOR)), levels(COLOR), TWELVE),
    ".npy of bands": (npy_of(BANDS), levels(BANDS[..., [4, 2, 0]]), TWELVE | {"bands": "5,3,1"}),
    ".npy of long integers": (npy_of(GRAY.astype(np.int64)), levels(GRAY), TWELVE),
    ".npy of half floats": (
        npy_of(GRAY // 2 * np.float16(1)),
        levels(GRAY // 2, 0, 2047),
        {"value_range": "0:2047"},
    ),
    "RGB PNG in another order": (encode(BYTES[..., :3]), BYTES[..., [2, 1, 0]], {"bands": "3,2,1"}),
    "RGBA PNG": (encode(BYTES), BYTES[..., [3, 2, 1]], {"bands": (4, 3, 2)}),
    "one band": (encode(BYTES), levels(BYTES[..., 1], 0, 255), {"bands": "2"}),
}
PALETTE = Image.fromarray(BYTES[..., :3]).quantize(64)
FILES["palette in another order"] = (
    encode(PALETTE),
    np.asarray(PALETTE.convert("RGB"))[..., ::-1],
    {"bands": "3,2,1"},
)
SEVERAL = {"photometric": "minisblack"}
for order in "<>":
    TIFFS = {
        "gray": (GRAY, SEVERAL, levels(GRAY), TWELVE),
        "signed": (
            GRAY.astype(np.int16) - 2000,
            SEVERAL,
            levels(GRAY.astype(int) - 2000, -2000, 2095),
            {"value_range": "-2000:2095"},
        ),
        "float": (FLOATS, SEVERAL, levels(GRAY, 0, 4096), {"value_range": "0:1"}),
        "double": (GRAY / 4096, SEVERAL, levels(GRAY, 0, 4096), {"value_range": "0:1"}),
        "long": (GRAY * np.uint32(2**20), SEVERAL, levels(GRAY), {"value_range": f"0:{4095 * 2**20}"}),
        "color": (COLOR, {"photometric": "rgb"}, levels(COLOR), TWELVE),
        "planes": (
            np.moveaxis(COLOR, -1, 0),
            {"photometric": "rgb", "planarconfig": "separate"},
            levels(COLOR),
            TWELVE,
        ),
        "bands": (
            BANDS,
            {**SEVERAL, "planarconfig": "contig"},
            levels(BANDS[..., [3, 2, 1]]),
            TWELVE | {"bands": "4,3,2"},
        ),
        "planes of bands": (
            np.moveaxis(BANDS, -1, 0),
            {**SEVERAL, "planarconfig": "separate"},
            levels(BANDS[..., [3, 2, 1]]),
            TWELVE | {"bands": "4,3,2"},
        ),
        "tiles of bands": (
            BANDS,
            {**SEVERAL, "planarconfig": "contig", "tile": (16, 16)},
            levels(BANDS[..., [3, 2, 1]]),
            TWELVE | {"bands": "4,3,2"},
        ),
        "8-bit bands": (
            BYTES,
            {**SEVERAL, "planarconfig": "contig"},
            BYTES[..., [3, 2, 1]],
            {"bands": "4,3,2"},
        ),
        "8-bit RGB and infrared": (
            BYTES,
            {"photometric": "rgb", "extrasamples": ("unspecified",)},
            BYTES[..., [3, 2, 1]],
            {"bands": "4,3,2"},
        ),
        "8-bit RGB and associated alpha": (
            BYTES,
            {"photometric": "rgb", "extrasamples": ("assocalpha",)},
            BYTES[..., [3, 2, 1]],
            {"bands": "4,3,2"},
        ),
        "8-bit RGBA": (
            BYTES,
            {"photometric": "rgb", "extrasamples": ("unassalpha",)},
            BYTES[..., [3, 2, 1]],
            {"bands": "4,3,2"},
        ),
    }
    FILES |= {
        f"TIFF {name} {order}": (tiff_of(values, byteorder=order, **how), pixels, choices)
        for name, (values, how, pixels, choices) in TIFFS.items()
    }


@pytest.mark.parametrize("name", FILES)
def test_files_give_the_levels_of_their_values(name):
    data, pixels, choices = FILES[name]
    found = decoded(data, **choices)
    np.testing.assert_array_equal(found.pixels, pixels)
    assert found.pixels.flags.c_contiguous
    assert found.pixels.flags.writeable
    assert not {"16bit-scaled", "unscaled", "8bit-values"} & {*found.flags}


def test_reading_many_tiffs_adds_one_handler_to_the_logger_of_tifffile():
    data = tiff_of(BANDS, photometric="minisblack", planarconfig="contig")
    for _ in range(3):
        decoded(data, **TWELVE, bands="4,3,2")
    assert len(logging.getLogger("tifffile").handlers) <= 1


@pytest.mark.parametrize("compression", ["zlib", "lzw", "packbits", "zstd"])
@pytest.mark.parametrize("predictor", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_compressed_tiffs_give_the_levels_of_their_values(compression, predictor, order):
    pytest.importorskip("imagecodecs")
    if compression == "packbits" and predictor:
        pytest.skip("libtiff has no predictor for it")
    if compression == "zstd" and IS_OLD_PILLOW:
        pytest.skip("TIFF in Zstandard needs Pillow 13")
    how = {"compression": compression, "byteorder": order, "predictor": predictor}
    for values, pixels, choices in (
        (GRAY, levels(GRAY), TWELVE),
        (FLOATS, levels(GRAY, 0, 4096), {"value_range": "0:1"}),
        (BANDS, levels(BANDS[..., [3, 2, 1]]), TWELVE | {"bands": "4,3,2"}),
    ):
        layout = {"planarconfig": "contig"} if values.ndim == 3 else {}
        data = tiff_of(values, photometric="minisblack", **layout, **how)
        np.testing.assert_array_equal(decoded(data, **choices).pixels, pixels)


@pytest.mark.parametrize(
    "data",
    [
        encode(noise(9, 12)),
        encode(noise(9, 12), "JPEG"),
        encode(noise(9, 12)[..., 0]),
        encode(noise(9, 12), "TIFF"),
    ],
)
def test_images_of_8_bits_keep_their_pixels_and_are_counted(data):
    found, ranged = decoded(data), decoded(data, **TWELVE)
    np.testing.assert_array_equal(ranged.pixels, found.pixels)
    assert ranged.flags == (*found.flags, "8bit-values")
    assert decoded(data, bands="3,2,1" if found.pixels[0, 0].std() else "1").flags == found.flags


def test_alpha_of_16_bits_is_reported_only_if_it_is_used():
    opaque = np.full_like(ALPHA, 65535)
    assert decoded(png_of(np.dstack([COLOR, ALPHA]), 6), **TWELVE).flags == ("alpha-dropped",)
    assert decoded(png_of(np.dstack([COLOR, opaque]), 6), **TWELVE).flags == ()


@pytest.mark.parametrize("reader", ["Pillow", "tifffile"])
def test_orientation_and_pages_of_a_tiff_are_reported(reader):
    values = GRAY if reader == "Pillow" else GRAY.astype(np.int16)
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for page in (values, values // 2):
            writer.write(page, photometric="minisblack", extratags=[(274, 3, 1, 6, True)], contiguous=False)
    found = decoded(file.getvalue(), **TWELVE)
    assert found.flags == ("multi-frame", "exif-orientation")
    np.testing.assert_array_equal(found.pixels, levels(GRAY))


# Values and options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", [(-1, 1), (0, 1), (-0.1, 1.7), (-1350, 150)])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_floats_become_the_levels_of_image_range_to_the_bit(span, kind):
    low, high = span
    values = np.random.default_rng(1).uniform(low - 0.1, high + 0.1, (64, 64)).astype(kind)
    expected, _ = to_levels(torch.from_numpy(values).float(), span)
    found = decode(values, name="x", policy=DecodePolicy(value_range=span)).pixels[..., 0]
    np.testing.assert_array_equal(found, expected.numpy())


def test_doubles_and_long_integers_are_converted_in_double_precision():
    for kind in (np.float64, np.int64, np.int32, np.uint32):
        values = 10**9 + GRAY.astype(kind)
        found = decoded(values, value_range=(10**9, 10**9 + 4095)).pixels
        np.testing.assert_array_equal(found, levels(GRAY))


def test_array_files_are_read_in_parts_that_do_not_show(tmp_path):
    values = RNG.integers(0, 4096, (1000, 20, 30)).astype(np.uint16)
    np.save(tmp_path / "x.npy", values)
    found = pixels_in(tmp_path / "x.npy", **TWELVE)
    np.testing.assert_array_equal(
        np.stack([*found.values()])[..., 0], [levels(each)[..., 0] for each in values]
    )


def test_large_images_are_converted_in_parts_that_do_not_show():
    values = RNG.integers(0, 4096, (1025, 1024)).astype(np.uint16)  # a row more than a part
    np.testing.assert_array_equal(decoded(values, **TWELVE).pixels, levels(values))


def test_each_band_may_have_its_range():
    ranges = [(0, 4095), (0, 3000), (0, 1000)]
    pixels = np.dstack(
        [levels(BANDS[..., at], *span)[..., 0] for at, span in zip((3, 2, 1), ranges, strict=True)]
    )
    for spelled in ("0:4095,0:3000,0:1000", ranges, np.array(ranges)):
        found = decoded(npy_of(BANDS), bands="4,3,2", value_range=spelled)
        np.testing.assert_array_equal(found.pixels, pixels)
    assert refused_image(npy_of(GRAY), value_range=ranges).code == "image-values"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0:4095", "0:4095"),
        ((0, 4095), "0:4095"),
        ([0.0, 4095.0], "0:4095"),
        ("-1000:400", "-1000:400"),
        ("0:1e4", "0:10000"),
        ((0.1, 0.7), "0.1:0.7"),
        (np.array([-1, 1]), "-1:1"),
        ("0:1,0:2,0:3", "0:1,0:2,0:3"),
        ([(0, 1), (0, 2), (0, 3)], "0:1,0:2,0:3"),
    ],
)
def test_ranges_of_one_meaning_have_one_record(given, text):
    policy = DecodePolicy(value_range=given)
    assert policy.choices == {"value_range": text}
    assert policy_of({"pillow": "13", "value_range": text}).ranges == policy.ranges


@pytest.mark.parametrize(
    ("given", "text"),
    [("4,3,2", "4,3,2"), ([4, 3, 2], "4,3,2"), (np.array([4, 3, 2]), "4,3,2"), (7, "7"), ("all", "all")],
)
def test_bands_of_one_meaning_have_one_record(given, text):
    policy = DecodePolicy(bands=given)
    assert choices_in(policy.choices) == {"bands": text}
    assert policy_of({"bands": text}) == policy


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"value_range": each}
            for each in (
                "4095:0",
                "1:1",
                "0",
                "0:",
                "a:b",
                "0:nan",
                "0:inf",
                "",
                "0:1:2",
                4095,
                "0:1e-38",
                "0:1e40",
                "-1e308:1e308",
            )
        ),
        *({"value_range": each} for each in ((1, 0), (0, 1, 2), [], [(0, 1), (1, 0), (0, 1)], "0:1,0:1")),
        *({"value_range": each} for each in ("p1:p99", "1%:99%", "p0.5:4095")),
        *(
            {"bands": each}
            for each in (
                "",
                "0",
                "1,2",
                "4,3,2,1",
                "17",
                "-1,2,3",
                "a",
                "1.5",
                [],
                [0, 1, 2],
                0,
                True,
                "None",
            )
        ),
        {"bands": "1", "value_range": "0:1,0:1,0:1"},
        {"bands": "all", "prepare": "resize:8"},
    ],
)
def test_wrong_options_are_errors(options):
    with raising(UsageError, "bad-option"):
        DecodePolicy(**options)


def test_percentiles_are_refused_with_the_reason():
    for text in ("p1:p99", "1%:99%"):
        assert "percentile" in str(raised(UsageError, DecodePolicy, value_range=text))


HOLES = FLOATS.copy()
HOLES[3, 4] = np.nan
ENDLESS = FLOATS.copy()
ENDLESS[0, 0] = -np.inf
UNREADABLE = {
    "NaN": (HOLES, {"value_range": "0:1"}),
    "NaN in a TIFF": (tiff_of(HOLES, photometric="minisblack"), {"value_range": "0:1"}),
    "infinity": (ENDLESS, {"value_range": "0:1"}),
    "float without a range": (FLOATS, {"bands": "1"}),
    "float TIFF without a range": (tiff_of(FLOATS, photometric="minisblack"), {"bands": "1"}),
    "16-bit without a range": (png_16bit_rgb(COLOR), {"bands": "3,2,1"}),
    "band out of range": (BANDS, TWELVE | {"bands": "6,1,1"}),
    "band of gray": (encode(GRAY), TWELVE | {"bands": "2"}),
    "band of a palette": (encode(PALETTE), {"bands": "4,3,2"}),
    "band of black and white": (encode(Image.new("1", (8, 8))), {"bands": "4,3,2"}),
    "bands without a choice": (BANDS, TWELVE),
    "TIFF bands without a choice": (tiff_of(BANDS, photometric="minisblack", planarconfig="contig"), TWELVE),
    "two bands": (BANDS[..., :2], TWELVE),
    "too many bands": (np.zeros((3, 4, 17), np.uint8), {"bands": "all"}),
    "volume": (npy_of(np.zeros((5, 20, 30), np.int16)), TWELVE),
    "volume of one slice": (npy_of(np.zeros((1, 20, 30), np.int16)), TWELVE),
    "series of volumes": (npy_of(np.zeros((2, 5, 20, 30), np.int16)), TWELVE),
    "vector": (npy_of(np.zeros(5)), TWELVE),
    "complex": (npy_of(np.zeros((5, 5), complex)), TWELVE),
    "truth": (npy_of(np.zeros((5, 5), bool)), TWELVE),
    "color PPM of 12 bits": (pnm("P6", COLOR, 4095), TWELVE),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_images_that_do_not_fit_the_options_are_errors(name):
    data, choices = UNREADABLE[name]
    assert refused_image(data, **choices).code == "image-values"


def test_white_is_zero_is_refused_since_readers_disagree_about_its_values():
    assert refused_image(gray_tiff(GRAY, t262=0), **TWELVE).code == "image-unsupported"


def test_missing_tifffile_is_named(monkeypatch):
    monkeypatch.setattr("genpr.images.values.find_spec", lambda name: None)
    error = refused_image(tiff_of(COLOR, photometric="rgb"), **TWELVE)
    assert error.code == "image-values"
    assert "genpr[tiff]" in str(error)
    np.testing.assert_array_equal(decoded(gray_tiff(GRAY), **TWELVE).pixels, levels(GRAY))


@pytest.mark.parametrize(
    ("values", "span", "flags"),
    [
        (GRAY, (0, 4095), set()),
        (GRAY, (0, 65535), {"dark-range"}),  # 12 bits in 16
        (GRAY, (0, 255), {"above-range"}),
        (GRAY / 4095, (0, 4095), {"dark-range"}),
        (GRAY / 4095 * 255, (0, 1), {"above-range"}),
        (GRAY * 1.0, (5000, 6000), {"below-range", "dark-range"}),
        (np.where(GRAY < 2500, -1000, GRAY % 200.0), (-160, 240), {"below-range"}),  # air around a body
        (np.where(GRAY < 1500, -1000, GRAY % 200.0), (-160, 240), set()),
        (np.where(GRAY < 1500, 3000, GRAY % 200.0), (-160, 240), set()),  # bones and metal
        (GRAY * 0.0, (0, 1), {"dark-range"}),
        (GRAY * 0.0 + 1.003, (0, 1), set()),  # white by rounding
        (GRAY * 0.0 + 1.01, (0, 1), {"above-range"}),
    ],
)
def test_ranges_that_lose_most_values_are_reported(values, span, flags):
    assert {*decoded(values, value_range=span).flags} == flags


def test_few_images_of_a_set_outside_of_the_range_are_not_reported():
    for flag in ("above-range", "below-range", "dark-range"):
        assert reported({flag: 25}, 100) == {}
        assert reported({flag: 26}, 100) == {flag: 26}
    assert reported({"8bit-values": 1}, 100) == {"8bit-values": 1}


def test_scaled_values_0_and_1_are_not_taken_for_unscaled_floats():
    assert decoded(GRAY % 2, value_range="0:1").flags == ()
    assert decoded((SMALL > 99).astype(np.uint8)).flags == ("unscaled",)
    assert decoded((SMALL > 99).astype(np.uint8), value_range="0:1").flags == ("unscaled", "8bit-values")


# Sources ----------------------------------------------------------------------------------------------------


def pixels_in(source, **choices):
    """The names and pixels of a source."""
    policy = DecodePolicy(**choices)
    opened = open_input(source, "real", policy)
    assert isinstance(opened, OpenedImages)
    names = opened.source.names()
    items = list(opened.source)
    assert names is None or list(names) == [item.name for item in items]
    read = [(item.name, item.read()) for item in items]
    return {name: decode(data, name=name, policy=policy).pixels for name, data in read}


STACK = np.stack([GRAY, GRAY[::-1], GRAY[:, ::-1]] * 2)
COLORS = np.stack([BANDS, BANDS[::-1], BANDS[:, ::-1], BANDS])


class Items(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def save(path, array):
    np.save(path, array)
    return path


def savez(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


FLOAT_STACK = STACK / np.float32(4096)
FLOAT = {"value_range": "0:1"}
THREE = TWELVE | {"bands": "4,3,2"}
CHOSEN = np.stack([levels(each[..., [3, 2, 1]]) for each in COLORS])
GRAYS = np.stack([levels(each) for each in STACK])
FLOAT_GRAYS = np.stack([levels(each, 0, 4096) for each in STACK])
SOURCES = {
    "array (n, h, w)": (lambda _: STACK, TWELVE, GRAYS),
    "array (n, h, w, 1)": (lambda _: STACK[..., None], TWELVE, GRAYS),
    "array (n, h, w, 3)": (lambda _: COLORS[..., [3, 2, 1]], TWELVE, CHOSEN),
    "array (n, h, w, 5)": (lambda _: COLORS, THREE, CHOSEN),
    "float array": (lambda _: FLOAT_STACK, FLOAT, FLOAT_GRAYS),
    "big-endian array": (lambda _: FLOAT_STACK.astype(">f4"), FLOAT, FLOAT_GRAYS),
    "data set of big-endian arrays": (lambda _: Items(FLOAT_STACK.astype(">f4")), FLOAT, FLOAT_GRAYS),
    "tensor (n, h, w)": (lambda _: torch.from_numpy(FLOAT_STACK), FLOAT, FLOAT_GRAYS),
    "tensor (n, 1, h, w)": (lambda _: torch.from_numpy(FLOAT_STACK[:, None]), FLOAT, FLOAT_GRAYS),
    "tensor (n, 5, h, w)": (lambda _: torch.from_numpy(COLORS.astype(np.int32)).permute(0, 3, 1, 2), THREE, CHOSEN),
    "tensor with a gradient": (lambda _: torch.from_numpy(FLOAT_STACK).requires_grad_(), FLOAT, FLOAT_GRAYS),
    "bfloat16 tensor": (lambda _: torch.from_numpy(FLOAT_STACK).round().bfloat16(), FLOAT, (FLOAT_STACK.round() * 255)[..., None].repeat(3, 3)),
    ".npy (n, h, w)": (lambda folder: save(folder / "x.npy", STACK), TWELVE, GRAYS),
    ".npy (n, h, w, 5)": (lambda folder: save(folder / "x.npy", COLORS), THREE, CHOSEN),
    ".npz": (lambda folder: savez(folder / "x.npz", images=STACK, labels=np.arange(6)), TWELVE, GRAYS),
    "data set of arrays": (lambda _: Items([*STACK]), TWELVE, GRAYS),
    "data set of tensors": (lambda _: Items([(torch.from_numpy(x)[None], 1) for x in FLOAT_STACK]), FLOAT, FLOAT_GRAYS),
    "data set of bands": (lambda _: Items([(x, 1) for x in COLORS]), THREE, CHOSEN),
    "data set of Pillow images": (lambda _: Items([Image.fromarray(x) for x in STACK]), TWELVE, GRAYS),
    "data set of float Pillow images": (lambda _: Items([Image.fromarray(x) for x in FLOAT_STACK]), FLOAT, FLOAT_GRAYS),
    "iterable of images": (lambda _: iter([*STACK]), TWELVE, GRAYS),
    "iterable of Pillow images": (lambda _: (Image.fromarray(x) for x in STACK), TWELVE, GRAYS),
    "iterable of batches": (lambda _: iter([STACK[:2, ..., None], STACK[2:, ..., None]]), TWELVE, GRAYS),
    "loader": (lambda _: torch.utils.data.DataLoader(Items([torch.from_numpy(x)[None] for x in FLOAT_STACK]), batch_size=4), FLOAT, FLOAT_GRAYS),
    "list of lists": (lambda _: [[*STACK[:3]], [*STACK[3:]]], TWELVE, GRAYS),
    "uint8 array (n, h, w)": (lambda _: BYTES.transpose(2, 0, 1), {}, BYTES.transpose(2, 0, 1)[..., None].repeat(3, 3)),
    "uint8 tensor (n, h, w)": (lambda _: torch.from_numpy(BYTES).permute(2, 0, 1), {}, BYTES.transpose(2, 0, 1)[..., None].repeat(3, 3)),
    "uint8 .npy (n, h, w)": (lambda folder: save(folder / "x.npy", BYTES.transpose(2, 0, 1)), {}, BYTES.transpose(2, 0, 1)[..., None].repeat(3, 3)),
    "uint8 .npz (n, h, w)": (lambda folder: savez(folder / "x.npz", arr_0=BYTES.transpose(2, 0, 1)), {}, BYTES.transpose(2, 0, 1)[..., None].repeat(3, 3)),
    "uint8 list of (h, w)": (lambda _: [*BYTES.transpose(2, 0, 1)], {}, BYTES.transpose(2, 0, 1)[..., None].repeat(3, 3)),
    "uint8 array with alpha": (lambda _: BYTES[None], {"bands": "1,2,3"}, BYTES[None, ..., :3]),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_sources_give_the_levels_of_their_values(tmp_path, name):
    make, choices, pixels = SOURCES[name]
    found = pixels_in(make(tmp_path), **choices)
    assert list(found) == [f"[{row}]" for row in range(len(pixels))]
    np.testing.assert_array_equal(np.stack([*found.values()]), pixels)


def test_folder_of_arrays_has_an_image_in_each_if_values_are_declared(tmp_path):
    write_files(tmp_path, "a.png", ".hidden.npy")
    for number, image in enumerate(STACK):
        save(tmp_path / f"{number}.npy", image)
    found = pixels_in(tmp_path, **TWELVE)
    assert list(found) == [*(f"{number}.npy" for number in range(6)), "a.png"]
    np.testing.assert_array_equal(np.stack([*found.values()][:6]), GRAYS)
    plain = open_source(tmp_path)
    assert list(plain.names()) == ["a.png"]
    assert plain.passed_over == {".npy": 6, "hidden": 1}
    (tmp_path / "a.png").unlink()
    assert "--value-range" in str(raised(DataError, open_source, tmp_path))


def test_list_of_array_files_has_an_image_in_each(tmp_path):
    save(tmp_path / "b.npy", GRAY)
    (tmp_path / "list.txt").write_text("b.npy\n")
    np.testing.assert_array_equal(pixels_in(tmp_path / "list.txt", **TWELVE)["b.npy"], levels(GRAY))


def test_pattern_of_array_files_has_the_slices_of_volumes(tmp_path):
    """3D-MedDiffusion#14, GEM-3D#1: slices are images, named by volume and number."""
    save(tmp_path / "vol1.npy", STACK[:4])
    save(tmp_path / "vol2.npy", STACK[4:5])  # a volume of one slice is one slice in any reading
    found = pixels_in(str(tmp_path / "*.npy"), **TWELVE)
    assert list(found) == [*(f"vol1.npy/[{row}]" for row in range(4)), "vol2.npy/[0]"]
    np.testing.assert_array_equal(np.stack([*found.values()]), GRAYS[:5])


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 12)])
def test_volumes_that_can_be_read_in_two_ways_are_errors(tmp_path, shape):
    """One slice without its axis, and few slices in the order of NIfTI."""
    save(tmp_path / "vol1.npy", STACK)
    save(tmp_path / "vol2.npy", np.zeros(shape, np.uint16))
    error = raised(
        (DataError, UsageError), open_input, str(tmp_path / "*.npy"), "real", DecodePolicy(**TWELVE)
    )
    assert error.code in {"mixed-kinds", "array-shape"}


@pytest.mark.parametrize(
    ("source", "choices", "code"),
    [
        (STACK, {}, "feature-shape"),
        (FLOAT_STACK, {"bands": "1"}, "feature-shape"),
        (COLORS, {}, "array-dtype"),
        (COLORS, TWELVE, "array-shape"),
        (COLORS.transpose(0, 3, 1, 2), THREE, "array-shape"),
        (COLOR[None, ..., :2], TWELVE, "array-shape"),
        (BYTES, {}, "array-shape"),
        (BYTES[..., :3], {}, "array-shape"),
        (BYTES[..., :3].transpose(2, 0, 1), {}, "array-shape"),
        (torch.from_numpy(BYTES[..., :3]).permute(2, 0, 1), {}, "array-shape"),
        (np.zeros((2, 20, 30, 17), np.uint8), {"bands": "all"}, "array-shape"),
        (np.zeros((2, 20, 30), bool), TWELVE, "array-dtype"),
        (np.zeros((2, 20, 30), complex), TWELVE, "array-dtype"),
        (Items([FLOAT_STACK[0]]), {}, "array-dtype"),
        (Items([COLORS[0]]), TWELVE, "array-shape"),
        (Items([(GRAY, GRAY)]), TWELVE, "array-type"),
    ],
)
def test_arrays_that_do_not_fit_the_options_are_errors(source, choices, code):
    error = raised(DataError, open_input, source, "real", DecodePolicy(**choices))
    assert error.code == code
    assert "\n" not in str(error)


def test_matrices_stay_features():
    for source in (FLOATS, torch.from_numpy(FLOATS), FLOATS[..., None, None]):
        if source.ndim == 2:
            assert not isinstance(open_input(source, "real", DecodePolicy(value_range="0:1")), OpenedImages)
        else:
            assert raised(DataError, open_input, source, "real", DecodePolicy(value_range="0:1"))


def test_identity_of_values_has_their_type_and_not_their_byte_order():
    kinds = [GRAY, GRAY.astype(np.int16), GRAY.astype(np.float32), GRAY[..., None], GRAY[:, ::-1]]
    assert len({content_sha256(each) for each in kinds}) == 5
    assert (
        content_sha256(GRAY) == content_sha256(GRAY.astype(">u2")) == content_sha256(np.asfortranarray(GRAY))
    )


def test_loader_that_reuses_its_memory_gives_each_image():
    def reused():
        batch = np.empty((1, 20, 30, 1), np.uint16)
        for image in STACK:
            batch[0, ..., 0] = image
            yield batch

    policy = DecodePolicy(**TWELVE)
    items = list(open_input(reused(), "fake", policy).source)
    found = [decode(item.read(), name=item.name, policy=policy).pixels for item in items]
    np.testing.assert_array_equal(np.stack(found), GRAYS)


def test_unusable_image_of_a_data_set_is_named():
    opened = open_input(Items([FLOATS, HOLES]), "real", DecodePolicy(value_range="0:1"))
    read = partial(decode, policy=DecodePolicy(value_range="0:1"))
    first, second = opened.source
    read(first.read(), name=first.name)
    assert raised(ImageError, read, second.read(), name=second.name).path == "[1]"
