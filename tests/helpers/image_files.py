"""Image files, by Pillow or byte by byte, and assertions about reading them."""

import io
import struct
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image
from raising import raised

from genpr.errors import DataError, ImageError
from genpr.images.decode import Decoded, decode
from genpr.images.item import ImageSource, Item
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Random RGB pixels (h, w, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encode(image: Image.Image | np.ndarray, format_name: str = "PNG", **options) -> bytes:
    """Encode `image` as a file, without changing the image (saving modifies it)."""
    copy = Image.fromarray(image) if isinstance(image, np.ndarray) else image.copy()
    file = io.BytesIO()
    copy.save(file, format_name, **options)
    return file.getvalue()


def encode_frames(frames: list[np.ndarray], format_name: str, **options) -> bytes:
    first, *rest = map(Image.fromarray, frames)
    return encode(first, format_name, save_all=True, append_images=rest, **options)


def heic(pixels, **options):
    """A HEIC file, lossless by default."""
    file = io.BytesIO()
    options = {"quality": -1, "chroma": 444, "matrix_coefficients": 0} | options
    plugin = pytest.importorskip("pillow_heif")
    plugin.encode("RGB", pixels.shape[1::-1], pixels.tobytes(), file, **options)
    return file.getvalue()


def jxl(pixels, **options):
    """A JPEG XL file, lossless by default."""
    pytest.importorskip("pillow_jxl")
    return encode(pixels, "JXL", **{"lossless": True} | options)


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[274] = orientation
    block[271] = "camera"
    return block


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *, bits: int, color: int, rows: bytes, extra: bytes = b"") -> bytes:
    """A PNG from raw parts; `rows` are the scan lines with their filter bytes, `extra` chunks before them."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + extra
        + png_chunk(b"IDAT", zlib.compress(rows))
        + png_chunk(b"IEND", b"")
    )


def png_16bit_rgb(pixels: np.ndarray, extra: bytes = b"") -> bytes:
    """A PNG of uint16 pixels (h, w, 3)."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return png(pixels.shape[1], pixels.shape[0], bits=16, color=2, rows=rows, extra=extra)


def tiff(
    tags: dict[int, list[int]], data: bytes, *, order: str = "<", kinds: dict[int, str] | None = None
) -> bytes:
    """A TIFF from raw parts with `data` at byte 8; `kinds` are the `struct` letters of tags whose values are no shorts."""
    body, entries = (b"II*\0" if order == "<" else b"MM\0*") + bytes(4) + data, b""
    for tag, values in sorted(tags.items()):
        letter = (kinds or {}).get(tag, "H")
        value = struct.pack(f"{order}{len(values)}{letter}", *values)
        if len(value) > 4:
            value, body = struct.pack(f"{order}I", len(body)), body + value
        kind = {"H": 3, "I": 4, "q": 17}[letter]
        entries += struct.pack(f"{order}HHI", tag, kind, len(values)) + value.ljust(4, b"\0")
    page = struct.pack(f"{order}H", len(tags)) + entries + bytes(4)
    return body[:4] + struct.pack(f"{order}I", len(body)) + body[8:] + page


def gray_tiff(values: np.ndarray, *, order: str = "<", **others: int) -> bytes:
    """A one-strip TIFF of (h, w) values with 16 bits each; `others` are tags such as `t262=0`."""
    (height, width), data = values.shape, values.astype(f"{order}u2").tobytes()
    tags = {256: width, 257: height, 258: 16, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(data)}
    tags |= {int(tag[1:]): value for tag, value in others.items()}
    return tiff({tag: [value] for tag, value in tags.items()}, data, order=order)


SMALL = noise(9, 12)
PNG = encode(SMALL)
PALETTE = Image.fromarray(SMALL).quantize(16)

# One file of every format and of the variants whose reading differs, for tests of damage.
SAMPLES: dict[str, bytes] = {
    "png": PNG,
    "png-exif": encode(SMALL, exif=exif(6)),
    "png-palette": encode(PALETTE, transparency=3),
    "png-rgba": encode(np.dstack([SMALL, SMALL[..., :1]])),
    "apng": encode_frames([SMALL, 255 - SMALL], "PNG"),
    "jpeg": encode(SMALL, "JPEG"),
    "jpeg-exif": encode(SMALL, "JPEG", exif=exif(6)),
    "jpeg-progressive": encode(SMALL, "JPEG", progressive=True),
    "jpeg-gray": encode(SMALL[..., 0], "JPEG"),
    "jpeg-cmyk": encode(Image.fromarray(SMALL).convert("CMYK"), "JPEG"),
    "mpo": encode_frames([SMALL, 255 - SMALL], "MPO"),
    "webp": encode(SMALL, "WEBP"),
    "webp-rgba": encode(np.dstack([SMALL, SMALL[..., :1]]), "WEBP"),
    "webp-lossless": encode(SMALL, "WEBP", lossless=True),
    "webp-animated": encode_frames([SMALL, 255 - SMALL], "WEBP"),
    "gif": encode(PALETTE, "GIF"),
    "gif-animated": encode_frames([SMALL, 255 - SMALL], "GIF"),
    "bmp": encode(SMALL, "BMP"),
    "bmp-palette": encode(PALETTE, "BMP"),
    "ppm": encode(SMALL, "PPM"),
    "pgm-16bit": encode(SMALL[..., 0].astype(np.uint16) * 257, "PPM"),
    "tiff": encode(SMALL, "TIFF"),
    "tiff-lzw": encode(SMALL, "TIFF", compression="tiff_lzw"),
    "tiff-deflate": encode(SMALL, "TIFF", compression="tiff_adobe_deflate"),
    "tiff-16bit": encode(SMALL[..., 0].astype(np.uint16) * 257, "TIFF"),
    "tiff-pages": encode_frames([SMALL, 255 - SMALL], "TIFF"),
    "avif": encode(SMALL, "AVIF"),
    "avif-animated": encode_frames([SMALL, 255 - SMALL], "AVIF"),
}
IS_OLD_PILLOW = int(PIL.__version__.partition(".")[0]) < 13
TIFF_JPEG = encode(SMALL, "TIFF", compression="jpeg")
if not IS_OLD_PILLOW:
    SAMPLES["tiff-jpeg"] = TIFF_JPEG
    SAMPLES["tiff-zstd"] = encode(SMALL, "TIFF", compression="zstd")


def write_files(folder: Path, *names: str, data: bytes = PNG) -> Path:
    """Write files of equal content below a folder, which may be new, and give its path."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


# Questions --------------------------------------------------------------------------------------------------


def decoded(data: bytes | np.ndarray, name: str = "x.png", **choices: Any) -> Decoded:
    return decode(data, name=name, policy=DecodePolicy(**choices))


def refused_image(data: bytes | np.ndarray, **choices: Any) -> ImageError:
    """The error that decoding `data` raises, with checks that apply to all of them."""
    error = raised(ImageError, decoded, data, **choices)
    assert error.path == "x.png"
    assert str(error).startswith("x.png: ")
    assert "\n" not in str(error)
    return error


def refused_source(source: object) -> DataError:
    """The error that opening `source` raises, with checks that apply to all of them."""
    error = raised(DataError, open_source, source)
    assert "\n" not in str(error)
    if isinstance(source, Path):
        assert source.name in str(error)
    return error


def names(source: Iterable[Item]) -> list[str]:
    return [item.name for item in source]


def stack(source: ImageSource) -> np.ndarray:
    """The images of a source of numbered images of one size, (n, h, w, 3)."""
    items = list(source)
    assert names(items) == [f"[{index}]" for index in range(len(items))]
    return np.stack([decoded(item.read()).pixels for item in items])


def read_in_threads(source: ImageSource) -> dict[str, object]:
    items = list(source)
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(names(items), pool.map(lambda item: item.read(), items), strict=True))
