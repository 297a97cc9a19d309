"""What a file is, by its first bytes, and what probably happened to one that is no image.

The name of a file decides nothing: it is Pillow's habit too, and files named wrongly are common. Deciding here
which plugin may look at a file keeps all others, Ghostscript behind EPS among them, out of reach.
"""

from __future__ import annotations

import re

from genpr.images.item import printable

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"MM*\0", b"II\0*")
_ACCEPTED: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    *((magic, "TIFF") for magic in _TIFF),
)
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "PDF"),
    (b"%!", "PostScript (EPS)"),
    (b"\xc5\xd0\xd3\xc6", "PostScript (EPS)"),
    (b"8BPS", "Photoshop (PSD)"),
    (b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\1\0", "Windows icon (ICO)"),
    (b"\0\0\2\0", "Windows cursor (CUR)"),
    (b"icns", "macOS icon (ICNS)"),
    (b"DDS ", "DirectDraw (DDS)"),
    (b"v/1\1", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"qoif", "QOI"),
    (b"gimp xcf", "GIMP (XCF)"),
    (b"SIMPLE  =", "FITS"),
)
_NO_IMAGE: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "it is a Git LFS pointer; run `git lfs pull`"),
    (b"PK\3\4", "it is a zip archive"),
    (b"\x1f\x8b", "it is gzip-compressed"),
    (b"\x93NUMPY", "it is a numpy array"),
)
_PNM = re.compile(rb"P(?:[1-6]|[Ff]\s)[\s#]?")
_HTML = re.compile(  # atomic and possessive: a comment that was read once is never tried at another length
    rb"\s*+(?:<!--(?>.*?-->)\s*+)*+<(?:!doctype\s+html|html|head|body)", re.IGNORECASE | re.DOTALL
)


def image_format(data: bytes) -> str | None:
    """Name of the accepted format of a file ("PNG", "JPEG", ...), or `None`."""
    for magic, name in _ACCEPTED:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if _brands(data) & {b"avif", b"avis"}:
        return "AVIF"
    return "PPM" if _PNM.match(data) else None


def codec_name(data: bytes) -> str | None:
    """The format of a file, and of WebP whether it is the lossless one."""
    name = image_format(data)
    return "WEBP lossless" if name == "WEBP" and b"VP8L" in data[12:64] else name


def refusal(data: bytes) -> tuple[str, str]:
    """Error code and reason for a file that `image_format` does not accept."""
    for magic, name in _REFUSED:
        if data.startswith(magic):
            return "format-not-allowed", f"it is {name}, which is not accepted"
    if _brands(data):
        brand = data[8:12].decode("ascii", "replace")
        return (
            "format-not-allowed",
            f"it is of the HEIF or MP4 family ({printable(brand)}), which is not accepted",
        )
    start = data[:2048]
    if re.search(rb"<svg[\s>]", start):
        return "format-not-allowed", "it is SVG, which is not accepted"
    return "image-unreadable", _guess(data, start)


def _guess(data: bytes, start: bytes) -> str:
    if not data:
        return "it is empty (0 bytes); was the disk full when it was written?"
    for magic, guess in _NO_IMAGE:
        if data.startswith(magic):
            return f"not an image; {guess}"
    if _HTML.match(start):
        return "not an image; it looks like HTML, such as the error page of a failed download"
    if not any(start):
        return "not an image; it begins with zeros only, like an interrupted copy or download"
    if start.lstrip()[:1] in {b"{", b"["} and start.isascii():
        return "not an image; it looks like JSON, such as the answer of a failed download"
    if start.isascii() and b"\0" not in start:
        return "not an image; it looks like text"
    return f"not an image of a known format; it begins with {start[:8].hex(' ')}"


def _brands(data: bytes) -> set[bytes]:
    """Major and compatible brands of a file of the ISO media family (AVIF, HEIC, MP4); empty for others."""
    if data[4:8] != b"ftyp":
        return set()
    size = min(int.from_bytes(data[:4], "big"), 256)
    return {data[8:12], *(data[at : at + 4] for at in range(16, size, 4))}
