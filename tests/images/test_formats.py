"""Formats of images that genpr does not read: such a file counts as an image, and the error names its format."""

import mimetypes
import sys
from pathlib import Path

import numpy as np
import pytest
from image_files import PNG, SAMPLES, decoded, gray_tiff, names, raised, refused_image, tiff

from genpr.cli.main import run
from genpr.errors import ImageError
from genpr.images.formats import (
    IMAGE_SUFFIXES,
    OTHER_SUFFIXES,
    PLUGINS,
    READABLE_SUFFIXES,
    UNREAD_FORMATS,
    image_format,
)
from genpr.images.source import open_source

JPEG = SAMPLES["jpeg"]
# The image types of IANA and Apache in Debian's list, which `mimetypes` reads where it is installed, and those of Python itself.
LISTED = """
apng avci avcs avif azv b16 bmp btf btif cdr cdt cgm cpt cr2 crw djv djvu dpx drle dwg dxf emf erf exr fbs fit fits fpx fst fts g3
gif hdr heic heics heif heifs hej2 hif hsj2 ico ief jfif jhc jls jng jp2 jpe jpeg jpf jpg jpg2 jpgm jph jphc jpm jpx jxl jxr jxra
jxrs jxs jxsc jxsi jxss ktx ktx2 mdi mmr nef orf pat pbm pct pcx pgb pgm pic pict png pnm ppm psd pti ras rgb rgbe rlc s1g s1j s1n
sgi sgif sjp sjpg spn spng svg svgz t38 tap tfx tif tiff uvg uvi uvvg uvvi vtf wbmp webp wmf xbm xcf xif xpm xwd xyze
"""
PYTHON = {
    suffix
    for types in mimetypes.MimeTypes().types_map
    for suffix, kind in types.items()
    if kind.startswith("image/")
}
SUFFIXES = sorted({f".{suffix}" for suffix in LISTED.split()} | PYTHON | {".tga", ".qoi", ".dng", ".j2k"})


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch):
    for *_, module, _ in PLUGINS.values():
        monkeypatch.setitem(sys.modules, module, None)


@pytest.fixture
def stored(pack):
    """Write files as a folder, a zip, a tar and a list, and give the sources."""
    return lambda files: [open_source(pack(kind, files)) for kind in ("folder", "zip", "tar", "list")]


def error_of(item) -> ImageError:
    return raised(ImageError, lambda: decoded(item.read(), item.name))


def test_files_with_the_suffix_of_an_image_count_as_some(stored):
    files = {f"{suffix.upper()}": b"\1\2\3 no signature" for suffix in SUFFIXES}
    for source in stored({"a.png": PNG} | {f"b{suffix}": data for suffix, data in files.items()}):
        found = {Path(item.name).name.removeprefix("b"): item for item in source}
        assert found.pop("a.png").read() == PNG
        assert found.keys() == files.keys()
        for suffix, item in found.items():
            error, is_read = error_of(item), suffix.lower() in READABLE_SUFFIXES
            assert error.code == ("image-unreadable" if is_read else "image-unsupported")
            assert is_read or "convert it to PNG" in str(error)


FTYP = b"\0\0\0\x1cftyp"
STARTS = {
    "ASTC": [b"\x13\xab\xa1\x5c\4\4\1"],
    "AutoCAD": [b"AC1032\0"],
    "BigTIFF": [b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0"],
    "BLP": [b"BLP2\1"],
    "BPG": [b"BPG\xfb\x20"],
    "camera raw": [
        *(b"IIRO\x08\0", b"IIU\0\x18\0\0\0", b"II\x1a\0\0\0HEAPCCDR", b"FUJIFILMCCD-RAW 0201"),
        *(b"\0MRM\0\1", b"FOVb\0\0", b"\0\0\0\x18ftypcrx \0\0\0\1crx isom"),
    ],
    "CorelDRAW": [b"RIFF\0\0\1\0CDRAvrsn"],
    "DDS": [b"DDS |\0\0\0"],
    "DICOM": [bytes(128) + b"DICM\2\0"],
    "DjVu": [b"AT&TFORM\0\0\0\1DJVU"],
    "DPX or Cineon": [b"SDPX\0", b"XPDS\0", b"\x80\x2a\x5f\xd7"],
    "EPS": [b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\xc5\xd0\xd3\xc6\x20"],
    "farbfeld": [b"farbfeld\0\0\0\4"],
    "FITS": [b"SIMPLE  =                    T"],
    "FLIF": [b"FLIF31"],
    "FTEX": [b"FTEX\0\0\1\0"],
    "GIMP": [b"gimp xcf v011\0", b"\0\0\0\x1c\0\0\0\1" + bytes(12) + b"GPAT"],
    "HEIC": [FTYP + brand for brand in (b"heic\0\0\0\0", b"mif1\0\0\0\0mif1heic", b"msf1\0\0\0\0hevc")],
    "ICNS": [b"icns\0\1"],
    "ICO": [b"\0\0\1\0\4\0\x10\x0c", b"\0\0\2\0\1\0\x10\x0c"],
    "IFF": [b"FORM\0\0\1\0ILBMBMHD"],
    "IM": [b"Image type: RGB image\r\n"],
    "JBIG": [b"\x97JB2\r\n\x1a\n"],
    "JPEG 2000": [b"\0\0\0\x0cjP  \r\n\x87\n", b"\xffO\xffQ\0/"],
    "JPEG XL": [b"\xff\n\xcb@$", b"\0\0\0\x0cJXL \r\n\x87\n"],
    "JPEG XR": [b"II\xbc\1 \0"],
    "JPEG XS": [b"\0\0\0\x0cJXS \r\n\x87\n", b"\xff\x10\xffP\0"],
    "KTX": [b"\xabKTX 11\xbb\r\n\x1a\n", b"\xabKTX 20\xbb\r\n\x1a\n"],
    "Microsoft Document Imaging": [b"EP*\0\1"],
    "MNG or JNG": [b"\x8aMNG\r\n\x1a\n", b"\x8bJNG\r\n\x1a\n"],
    "MSP": [b"DanM@\0", b"LinS@\0"],
    "OpenEXR": [b"v/1\1\2\0"],
    "Paint Shop Pro": [b"Paint Shop Pro Image File\n\x1a"],
    "PAM": [b"P7\nWIDTH 4\n"],
    "PCO": [b"PCO-\0"],
    "PCX": [b"\n\5\1\x08\0\0", b"\xb1h\xde:"],
    "Photoshop": [b"8BPS\0\1", b"8BPS\0\2"],
    "PIXAR": [b"\x80\xe8\0\0\0\0"],
    "PVR": [b"PVR\3\0"],
    "QOI": [b"qoif\0\0\0@"],
    "Radiance HDR": [b"#?RADIANCE\nFORMAT", b"#?RGBE\n"],
    "SGI": [b"\x01\xda\0\1\0\3\0@"],
    "Sun raster": [b"\x59\xa6\x6a\x95\0"],
    "SVG": [
        *(b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"\xef\xbb\xbf\n<svg>"),
        *(b"<?xml version='1.0'?>\n<!-- a -->\n<svg>", b"<!DOCTYPE svg PUBLIC ''>\n<svg >"),
    ],
    "TGA": [bytes(18) + b"\1\2\3TRUEVISION-XFILE.\0"],
    "VTF": [b"VTF\0\7\0"],
    "WMF or EMF": [b"\xd7\xcd\xc6\x9a\0", b"\1\0\0\0" + b"a" * 36 + b" EMF"],
    "XBM or XPM": [b"#define im_width 8\n", b"/* XPM */\nstatic char"],
    "XWD": [b"\0\0\0\x65\0\0\0\7\0\0\0\2"],
}


@pytest.mark.parametrize("name", STARTS)
def test_file_with_the_signature_of_an_image_counts_as_one_and_is_named(stored, name):
    starts = STARTS[name]
    files = {f"{number}.unknown" if number % 2 else str(number): data for number, data in enumerate(starts)}
    for source in stored(files):
        assert [Path(item.name).name for item in source] == list(files)
        for item in source:
            error = error_of(item)
            assert (error.code, f" {name} is" in str(error)) == ("image-unsupported", True)
    for data in starts:  # whatever its suffix says
        assert refused_image(data).code == "image-unsupported"


def test_every_signature_is_tested():
    assert {name for name, _, signature in UNREAD_FORMATS if signature} | {"TGA"} == set(STARTS)


def test_page_lists_every_format_with_its_suffixes():
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    listed = [suffixes for _, suffixes, _ in UNREAD_FORMATS]
    for suffixes in (*listed, " ".join(READABLE_SUFFIXES).replace(".", "")):
        assert f" | {' '.join(f'.{suffix}' for suffix in suffixes.split())} | " in page


def test_no_suffix_is_of_an_image_and_of_something_else():
    listed = [
        *READABLE_SUFFIXES,
        *(f".{each}" for _, suffixes, _ in UNREAD_FORMATS for each in suffixes.split()),
    ]
    assert len(listed) == len(set(listed))
    assert not IMAGE_SUFFIXES & OTHER_SUFFIXES


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"text", b"{}", b"P2X", b"BM and more text", b"%PDF-1.7\n", b"PK\3\4", b"\x93NUMPY\1\0"),
        *(
            bytes(3000),
            b"<!DOCTYPE html><svg></svg>",
            b"<?xml version='1.0'?><html><svg>",
            b"RIFF\0\0\0\0WAVEfmt ",
        ),
        *(FTYP + b"isom\0\0\2\0isomiso2avc1mp41", b"\x80\2}q\0.", b"GIF", b"\xff\xd8"),
    ],
)
def test_file_of_unknown_suffix_without_a_signature_is_passed_over(stored, data):
    *containers, _ = stored({"a.png": PNG, "b.unknown": data, "c": data})
    for source in containers:
        assert names(source) == ["a.png"]
        assert source.passed_over == {".unknown": 1, "none": 1}


def test_unread_image_is_treated_as_damaged_ones_by_on_bad(sides, capsys):
    real, fake = sides
    (fake / "x.jp2").write_bytes(STARTS["JPEG 2000"][0])
    (fake / "notes.txt").touch()
    score = f"score {real} {fake} --extractor pixels --k 1".split()
    assert run([*score, "-q", "--no-control", "--no-intervals", "--on-bad", "skip", "--max-bad", "0.1"]) == 0
    assert "30 images of" in (out := capsys.readouterr().out)
    assert ", 1 left out, 1 other file passed over (.txt 1)" in out
    assert run(score) == 3
    assert "image-unsupported: x.jp2: JPEG 2000" in capsys.readouterr().err


# Properties that Pillow does not read ------------------------------------------------------------------------

RGB_TAGS = {256: [12], 257: [9], 258: [8, 8, 8], 259: [1], 262: [2], 273: [8], 277: [3], 278: [9], 279: [324]}


def changed(**tags: list[int]) -> bytes:
    """A TIFF of 12 x 9 pixels with tags such as t339=[3]; 4,000 bytes of pixels are enough for all layouts."""
    return tiff(RGB_TAGS | {int(name[1:]): values for name, values in tags.items()}, bytes(4000))


def test_plain_tiff_is_read():
    assert decoded(changed()).pixels.shape == (9, 12, 3)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (changed(t258=[32] * 3, t339=[3] * 3), "32-bit float"),
        (changed(t258=[16] * 3, t339=[3] * 3), "16-bit float"),
        (changed(t258=[32] * 3), "32-bit integer"),
        (changed(t258=[8] * 3, t339=[2] * 3), "8-bit signed integer"),
        (gray_tiff(np.zeros((9, 12)), t258=8, t339=2), "8-bit signed integer"),
        (gray_tiff(np.zeros((9, 12)), t339=2), "16-bit signed integer"),
        *((changed(t258=[8] * n, t277=[n], t262=[1]), "does not read") for n in (4, 5, 8, 13)),
        *((changed(t258=[8] * n, t277=[n], t262=[1], t284=[2]), "does not read") for n in (2, 4, 13)),
        (changed(t258=[16] * 2, t277=[2], t262=[1]), "does not read"),
        (gray_tiff(np.zeros((9, 12)), t258=14), "does not read"),
        (gray_tiff(np.zeros((9, 12)), t258=12), "does not read"),
        (gray_tiff(np.zeros((9, 12)), t258=8, t262=32803), "does not read"),
        (changed(t259=[12345]), "12345"),
        (changed(t254=[1], t330=[100]), "preview"),
        (changed(t50706=[1]), "camera"),
        (JPEG.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc1\0\x11\x0c"), "JPEG compression of 12 bits"),
        (JPEG.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc3\0\x11\x10"), "lossless JPEG compression of 16"),
        (JPEG.replace(b"\xff\xc0\0\x11", b"\xff\xf7\0\x11"), "JPEG-LS"),
        (SAMPLES["bmp"][:30] + b"\4" + SAMPLES["bmp"][31:], "BMP compression (4)"),
    ],
)
def test_property_that_is_not_supported_is_named(data, what, capfd):
    error = refused_image(data)
    assert error.code == "image-unsupported"
    assert what in str(error)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", ["dng", "NEF", "arw"])
def test_raw_file_of_a_camera_is_not_read_as_its_preview(suffix):
    error = raised(ImageError, decoded, changed(), f"x.{suffix}")
    assert error.code == "image-unsupported"
    canon = changed()[:4] + b"\x10\0\0\0CR\2\0" + bytes(4) + b"\0\0"
    assert refused_image(canon).code == "image-unsupported"


@pytest.mark.parametrize("tag", [256, 257, 258, 259, 262])
def test_damaged_tiff_is_not_reported_as_unsupported(tag):
    """A file that ends within the list of its tags."""
    whole = changed(t258=[32] * 3)
    at = whole.index(tag.to_bytes(2, "little") + b"\3\0", 3000)
    assert refused_image(whole[: at + 6]).code == "image-corrupt"


def test_lossless_webp_is_a_format_of_its_own():
    names = ("png", "webp", "webp-rgba", "webp-lossless")
    assert [image_format(SAMPLES[name]) for name in names] == ["PNG", "WEBP", "WEBP", "WEBP lossless"]
