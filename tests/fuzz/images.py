"""Valid image files of every format and of the variants whose reading differs, small, and made on the spot."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

_RNG = np.random.default_rng(0)
COLOUR = _RNG.integers(0, 256, (9, 12, 3), dtype=np.uint8)
_GRAY16 = COLOUR[..., 0].astype(np.uint16) * 257
_RGBA = np.concatenate([COLOUR, COLOUR[..., :1]], axis=2)
_PALETTE = Image.fromarray(COLOUR).quantize(16)
_CMYK = Image.fromarray(COLOUR).convert("CMYK")


def encoded(image: Image.Image | np.ndarray, format_name: str, **options: object) -> bytes:
    """A file with `image`, of which saving leaves no trace."""
    copy = Image.fromarray(image) if isinstance(image, np.ndarray) else image.copy()
    file = io.BytesIO()
    copy.save(file, format_name, **options)
    return file.getvalue()


def _frames(format_name: str, **options: object) -> bytes:
    second = Image.fromarray(255 - COLOUR)
    return encoded(COLOUR, format_name, save_all=True, append_images=[second], **options)


def _exif() -> Image.Exif:
    block = Image.Exif()
    block[274], block[271] = 6, "camera"
    return block


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of_chunks(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file of these chunks."""
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, body) for kind, body in chunks)


def _png_by_hand(bits: int, colour: int, row_bytes: int) -> bytes:
    """What Pillow writes not: 16-bit colour, 2-bit gray, interlaced rows."""
    rows = b"".join(b"\0" + bytes((7 * row + i) % 256 for i in range(row_bytes)) for row in range(9))
    header = struct.pack(">IIBBBBB", 12, 9, bits, colour, 0, 0, 0)
    text = b"Comment\0\0" + zlib.compress(b"a comment" * 9)
    profile = b"profile\0\0" + zlib.compress(bytes(200))
    return png_of_chunks(
        [
            (b"IHDR", header),
            (b"iCCP", profile),
            (b"IDAT", zlib.compress(rows)),
            (b"zTXt", text),
            (b"IEND", b""),
        ]
    )


def _png_interlaced() -> bytes:
    """Adam7 of an 8 x 8 gray image: seven passes, each with its own rows."""
    passes = [(1, 1), (1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4)]
    rows = b"".join((b"\0" + bytes(range(width))) * height for width, height in passes)
    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 1)
    return png_of_chunks([(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")])


def image_files() -> dict[str, list[bytes]]:
    """Valid files by format."""
    tiffs = [
        encoded(COLOUR, "TIFF", compression=compression)
        for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "lzma")
    ]
    return {
        "png": [
            encoded(COLOUR, "PNG", exif=_exif()),
            encoded(COLOUR[..., 0], "PNG"),
            encoded(_PALETTE, "PNG", transparency=3),
            encoded(_RGBA, "PNG"),
            encoded(_GRAY16, "PNG"),
            _frames("PNG"),
            _png_by_hand(16, 2, 72),
            _png_by_hand(2, 0, 3),
            _png_interlaced(),
        ],
        "jpeg": [
            encoded(COLOUR, "JPEG", exif=_exif()),
            encoded(COLOUR, "JPEG", progressive=True),
            encoded(COLOUR, "JPEG", subsampling=0, icc_profile=bytes(200)),
            encoded(COLOUR[..., 0], "JPEG"),
            encoded(_CMYK, "JPEG"),
            _frames("MPO"),
        ],
        "webp": [
            encoded(COLOUR, "WEBP", exif=_exif()),
            encoded(COLOUR, "WEBP", lossless=True),
            encoded(_RGBA, "WEBP"),
            _frames("WEBP"),
        ],
        "tiff": [
            *tiffs,
            encoded(_GRAY16, "TIFF"),
            encoded(_PALETTE, "TIFF"),
            encoded(Image.fromarray(COLOUR).convert("1"), "TIFF", compression="group4"),
            _frames("TIFF"),
        ],
        "gif": [encoded(_PALETTE, "GIF"), _frames("GIF"), encoded(_PALETTE, "GIF", transparency=3)],
        "bmp": [encoded(COLOUR, "BMP"), encoded(_PALETTE, "BMP"), encoded(_RGBA, "BMP")],
        "ppm": [
            encoded(COLOUR, "PPM"),
            encoded(_GRAY16, "PPM"),
            b"P3 2 1 255\n255 0 0 # red\n0 0 255\n",
            b"P1 3 1\n0 1 0\n",
            b"Pf\n2 1\n-1.0\n" + struct.pack("<2f", 0.5, 1.5),
        ],
        "avif": [encoded(COLOUR, "AVIF"), encoded(_RGBA, "AVIF"), _frames("AVIF")],
    }
