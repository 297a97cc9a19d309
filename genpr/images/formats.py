"""Formats of images, and checks of files before Pillow parses them.

The first bytes of a file determine its format, as in Pillow; names of files are often wrong. genpr chooses the
plugin, so that no other plugin, such as Ghostscript for EPS, can be reached. Suffixes only determine which files of a folder or
archive are images.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Literal
from zlib import crc32

SHARD_SUFFIXES = (".zip", ".tar", ".parquet")
"""Suffixes of containers whose names do not show their content."""
ARRAY_SUFFIXES = (".npy", ".npz")

# The formats that are read, with their first bytes as a regular expression; not BigTIFF, which Pillow and libtiff read
# differently. Text can begin as PNM or BMP do, such as a list of files in "P1/" or "BM/".
_READ = (
    ("PNG", rb"\x89PNG\r\n\x1a\n"),
    ("JPEG", rb"\xff\xd8\xff"),
    ("GIF", rb"GIF8[79]a"),
    ("TIFF", rb"II\*\0|MM\0\*"),
    ("WEBP", rb"RIFF.{4}WEBP"),
    ("BMP", rb"BM.{12}.\0\0\0"),  # then the size of the second header
    ("PPM", rb"P[1-6Ff][\s#]"),
)
_SUFFIXES = "apng avif avifs bmp gif jfif jpe jpeg jpg mpo pbm pfm pgm png pnm ppm tif tiff webp"
READABLE_SUFFIXES = tuple(f".{suffix}" for suffix in _SUFFIXES.split())
_CAMERA_RAW = "camera raw"
# Other formats: name, suffixes, and the first bytes as a regular expression. The suffixes are those of all image types of IANA,
# Apache and Debian, and of common programs for photographs, textures and paintings. Many share the signature of TIFF or zip.
UNREAD_FORMATS: tuple[tuple[str, str, bytes], ...] = (
    ("AirZip", "azv", b""),
    ("ASTC", "astc", rb"\x13\xab\xa1\x5c"),
    ("AutoCAD", "dwg dxf", rb"AC10\d\d"),
    ("BigTIFF", "btf", rb"II\+\0|MM\0\+"),
    ("BLP", "blp", rb"BLP[12]"),
    ("BMP without a file header", "dib", b""),
    ("BPG", "bpg", rb"BPG\xfb"),
    ("BTIF", "btif pti", b""),
    (
        _CAMERA_RAW,
        "3fr arw cr2 cr3 crw dcr dng erf fff iiq kdc mef mos mrw nef nrw orf pef raf rw2 rwl sr2 srf srw x3f",
        rb"IIR[OS]|MMOR|IIU\0|II\x1a\0{3}HEAPCCDR|FUJIFILMCCD-RAW|\0MRM|FOVb|.{4}ftypcrx ",
    ),
    ("CGM", "cgm", b""),
    ("CorelDRAW", "cdr cdt cmx cpt pat", rb"RIFF.{4}(?:CDR|CMX)"),
    ("DDS", "dds", rb"DDS "),
    ("DECE graphic", "uvg uvi uvvg uvvi", b""),
    ("DICOM", "dcm dicom drle", rb".{128}DICM"),
    ("DjVu", "djv djvu", rb"AT&TFORM"),
    ("DPX or Cineon", "cin dpx", rb"SDPX|XPDS|\x80\x2a\x5f\xd7"),
    ("EPS", "eps epsf epsi", rb"%!PS-Adobe-[\d.]+ EPSF|\xc5\xd0\xd3\xc6"),
    ("farbfeld", "ff", rb"farbfeld"),
    ("FAST", "fst", b""),
    ("FastBid Sheet", "fbs", b""),
    ("fax", "g3 mmr rlc t38", b""),
    ("FITS", "fit fits fts", rb"SIMPLE  ="),
    ("FlashPix", "fpx", b""),
    ("FLIF", "flif", rb"FLIF"),
    ("FTEX", "ftc ftu", rb"FTEX"),
    ("GIMP", "gbr xcf", rb"gimp xcf|.{20}GPAT"),
    (
        "HEIC",
        "avci avcs heic heics heif heifs hej2 hif hsj2",
        rb".{4}ftyp(?:.{4}){0,15}?(?:he[iv][cmsvx]|mif[12]|msf1|avc[is]|j2k[is])",
    ),
    ("ICNS", "icns", rb"icns"),
    ("ICO", "cur ico", rb"\0\0[\1\2]\0[^\0]\0"),
    ("IEF", "ief", b""),
    ("IFF", "iff ilbm lbm", rb"FORM.{4}(?:ILBM|PBM )"),
    ("IM", "im", rb"Image type: "),
    ("JBIG", "jb2 jbg jbig jbig2", rb"\x97JB2\r\n\x1a\n"),
    (
        "JPEG 2000",
        "j2c j2k jhc jp2 jpc jpf jpg2 jpgm jph jphc jpm jpx",
        rb"\0\0\0\x0cjP(?:  |\x1a\x1a)\r\n\x87\n|\xffO\xffQ",
    ),
    ("JPEG-LS", "jls", b""),
    ("JPEG XL", "jxl", rb"\xff\n|\0\0\0\x0cJXL \r\n\x87\n"),
    ("JPEG XR", "hdp jxr jxra jxrs wdp", rb"II\xbc\x01"),
    ("JPEG XS", "jxs jxsc jxsi jxss", rb"\0\0\0\x0cJXS \r\n\x87\n|\xff\x10\xffP"),
    ("KTX", "ktx ktx2", rb"\xabKTX [12][01]\xbb"),
    ("MNG or JNG", "jng mng", rb"[\x8a\x8b][MJ]NG\r\n\x1a\n"),
    ("Microsoft Document Imaging", "mdi", rb"EP\*\0"),
    ("MSP", "msp", rb"DanM|LinS"),
    ("OpenEXR", "exr", rb"v/1\x01"),
    ("OpenRaster", "kra ora", b""),
    ("Paint Shop Pro", "psp pspimage", rb"Paint Shop Pro Image File"),
    ("Palm", "palm", b""),
    ("PAM", "pam", rb"P7\n"),
    ("PCO", "b16", rb"PCO-"),
    ("PCX", "dcx pcx", rb"\n[\0\2-\5]\x01[\1\2\4\x08]|\xb1h\xde:"),
    ("PGB", "pgb", b""),
    ("Photo CD", "pcd", b""),
    ("Photoshop", "psb psd", rb"8BPS"),
    ("PICT", "pct pic pict", b""),
    ("PIXAR", "pxr", rb"\x80\xe8\0\0"),
    ("PVR", "pvr", rb"PVR\x03"),
    ("QOI", "qoi", rb"qoif"),
    ("Radiance HDR", "hdr rgbe xyze", rb"#\?R(?:ADIANCE|GBE)"),
    ("sealed image", "s1g s1j s1n sgif sjp sjpg spn spng", b""),
    ("SGI", "bw rgb rgba sgi", rb"\x01\xda[\0\1][\1\2]\0[\1-\3]"),
    ("Sun raster", "ras", rb"\x59\xa6\x6a\x95"),
    (
        "SVG",
        "svg svgz",
        rb"(?:\xef\xbb\xbf)?\s{0,99}<(?:svg\b|(?:\?xml|!--|!DOCTYPE svg)(?!.*<html).*<svg\b)",
    ),
    ("TAP", "tap", b""),
    ("TGA", "icb targa tga vda", b""),
    ("TIFF-FX", "tfx xif", b""),
    ("VTF", "vtf", rb"VTF\0"),
    ("WBMP", "wbmp", b""),
    ("WMF or EMF", "emf emz wmf wmz", rb"\xd7\xcd\xc6\x9a|\x01\0\0\0.{36} EMF"),
    ("XBM or XPM", "xbm xpm", rb"/\* XPM \*/|#define \w+_width "),
    ("XWD", "xwd", rb"\0\0.{2}\0\0\0\x07\0\0\0[\0-\2]"),
)
_UNREAD = {f".{suffix}": name for name, suffixes, _ in UNREAD_FORMATS for suffix in suffixes.split()}
IMAGE_SUFFIXES = frozenset((*READABLE_SUFFIXES, *_UNREAD))
# The first bytes of files with these suffixes are not read.
_OTHERS = """
7z asc bak bib bz2 c caption cfg ckpt cls conf cpp crc crdownload css csv db docx download exe feather flac gz h h5 hdf5 htm html
ini ipynb js json jsonl lmdb lock log m4a mat md md5 mdb mkv mov mp3 mp4 msgpack ndjson nfo npy npz ogg old onnx orig parquet part
partial pdf pickle pkl pptx ps pt pth py rar rst safetensors sh sha1 sha256 sha512 sig so sqlite swp tar temp tex tfrecord tgz tmp
toml torrent tsv txt url wav webm xlsx xml xz yaml yml zip zst
"""
OTHER_SUFFIXES = frozenset(f".{suffix}" for suffix in _OTHERS.split())
START = 2048
"""Bytes of a file that show its format."""
_UNREADABLE = "image-unreadable"
PLUGINS = {
    # Older ones decode images of another size than they state, or end the process.
    "HEIC": ("heif", "pillow-heif", "1.4", "pillow_heif", "HeifImageFile"),
    "JPEG XL": ("jxl", "pillow-jxl-plugin", "1.3", "pillow_jxl.JpegXLImagePlugin", "JXLImageFile"),
}
"""Formats that are read by plugins of Pillow, if installed: extra of genpr, package, oldest version, module and class."""

# Parsers in Python take a microsecond or more for a piece of a few bytes, and keep many pieces. Image files have
# dozens of pieces, and at most one per few hundred bytes of pixels.
MAX_PNG_PROFILES = 100  # each of which Pillow decompresses, to a megabyte at most
_MAX_READS = 1_100_000  # of Pillow's parsers, several to a piece; 89 megapixels of noise as GIF take 850,000
_READ_AGAIN = 4  # times that the same bytes may be read on average, in addition to these:
_BYTES_READ = 2**26
MAX_PIECES = 2**18  # a 1-kilobyte chunk for all of 89 megapixels

_MARKER = re.compile(rb"\xff([^\0\xff])")  # after any number of fill bytes
_START_OF_SCAN, _APP1, _COMMENT = 0xDA, 0xE1, 0xFE
# APP1 to APP15 and comments, except APP14, which defines the colors as APP0 does.
_DROPPED_SEGMENTS = frozenset({*range(_APP1, 0xF0), _COMMENT}) - {0xEE}
_NO_SEGMENT = frozenset({0x01, *range(0xD0, 0xDA)})
_LOSSLESS_FRAMES, _LS_FRAME = {0xC3, 0xC7, 0xCB, 0xCF}, 0xF7
_FRAMES = {*range(0xC0, 0xD0), _LS_FRAME} - {0xC4, 0xC8, 0xCC}
_EMPTY_COMMENT = b"\xff\xfe\0\2"  # replaces dropped segments, so that no new marker arises there
JPEG_END, JPEG_SCAN = b"\xff\xd9", b"\xff\xda"
# An entry of a table of items with the type "Exif": version 2 or 3, flags, a number of 2 or 4 bytes, and 2 bytes of protection.
_AVIF_EXIF = re.compile(rb"Exif(?:(?<=infe\x02.{7}Exif)|(?<=infe\x03.{9}Exif))", re.DOTALL)
_JXL_MARKER, _JXL_HEADER = b"\xff\n", 24  # the fields that are read are in the first 24 bytes
_JXL_BITS, _JXL_RATIOS = (9, 13, 18, 30), ((0, 1), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_TILE_WIDTH, _TILE_HEIGHT, _SHORT, _LONG = 322, 323, 3, 4  # TIFF tags and types
BITS, PHOTOMETRIC, PLANAR, SEPARATE_PLANES = 258, 262, 284, 2
SAMPLES, SAMPLE_FORMAT, NEXT_PAGE = 277, 339, -1
_SUBFILE, _COMPRESSION, _SUB_PAGES, _DNG_VERSION = 254, 259, 330, 50706
TIFF_LAYOUT = "TIFF pixels in a form that Pillow does not read"
_MOST_CHANNELS = 6  # for more, Pillow logs an error
_SAMPLE_FORMATS = {2: "signed integer", 3: "float", 5: "complex integer", 6: "complex float"}
# None, fax, LZW, JPEG, Deflate, PackBits, LogLuv, LZMA, Zstandard.
_TIFF_COMPRESSIONS = {*range(1, 9), 32771, 32773, 32809, 32946, 34676, 34677, 34925, 50000}
SAFE_PILLOW = 13
"""The first major version of Pillow that decodes every TIFF within its buffers."""
_BYTE_COMPRESSIONS = {1, 5, 8, 32773, 32946, 34925}  # not Zstandard, which Pillow 11.3 lacks
_OTHER_COMPRESSIONS = {2: "fax", 3: "fax", 4: "fax", 6: "JPEG", 7: "JPEG", 50000: "Zstandard"}
_TILES, _YCBCR = {_TILE_WIDTH, _TILE_HEIGHT, 324, 325}, 6


class UnsupportedImageError(Exception):
    """An intact file has a property that genpr does not read; the message says which."""


class TooManyPiecesError(Exception):
    """Parsing a file takes too long; the message says why."""

    def __init__(self, reason: str = f"it is made of more than {MAX_PIECES:,} pieces") -> None:
        super().__init__(reason)


class ReadLimitedFile(io.BytesIO):
    """A file for Pillow's parsers that limits the number of reads and the bytes read.

    `read` raises `TooManyPiecesError`, which is not an `OSError`, because Pillow ignores those as damaged metadata.
    """

    def __init__(self, data: bytes, most: int = 0) -> None:
        super().__init__(data)
        self._reads_left = _MAX_READS
        self.bytes_left = most or _BYTES_READ + _READ_AGAIN * len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as `io.BytesIO` does, within the limits."""
        data = super().read(size)
        self._reads_left -= 1
        self.bytes_left -= len(data)
        if self._reads_left < 0:
            raise TooManyPiecesError(f"it is read in more than {_MAX_READS:,} pieces")
        if self.bytes_left < 0:
            raise TooManyPiecesError("many of its parts refer to the same bytes")
        return data


_ACCEPTED = re.compile(
    b"|".join(b"(?P<%s>%s)" % (name.encode(), signature) for name, signature in _READ), re.DOTALL
)
_OTHER = [(name, re.compile(signature, re.DOTALL)) for name, _, signature in UNREAD_FORMATS if signature]


def image_format(data: bytes) -> str | None:
    """Name of the accepted format of a file ("PNG", "JPEG", ...), or `None`; lossless WebP is a separate format."""
    if data[4:8] == b"ftyp":  # the major and the compatible brands of the ISO media family
        size = min(int.from_bytes(data[:4], "big"), 256)
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, size, 4))}
        return "AVIF" if brands & {b"avif", b"avis"} else None
    match = _ACCEPTED.match(data)
    name = match and match.lastgroup
    return "WEBP lossless" if name == "WEBP" and b"VP8L" in data[12:64] else name


def image_suffix(name: str) -> str:
    """The end of a name from its last dot on in lower case, which may be no suffix of the file; fast."""
    return name[name.rfind(".") :].lower()


def unread_format(data: bytes) -> str | None:
    """Name of the format of an image that genpr does not read, by its first bytes."""
    by_start = next((name for name, pattern in _OTHER if pattern.match(data[:START])), None)
    return by_start or ("TGA" if data.endswith(b"TRUEVISION-XFILE.\0") else None)


def is_image_start(start: bytes) -> bool:
    """Whether a file with these first bytes is an image of any format, accepted or not."""
    return image_format(start) is not None or unread_format(start) is not None


def unaccepted(data: bytes, name: str) -> tuple[str, str]:
    """Code and description of a file that is not an image of an accepted format."""
    start, other = data[:START], unread_format(data)
    if other is None:
        if not data:
            return _UNREADABLE, "it is empty (0 bytes); write it again, and check for a full disk"
        other = _UNREAD.get(image_suffix(name))
    if other is None:
        return _UNREADABLE, f"not an image of an accepted format; it begins with {start[:12]!r}"
    remedy = f", or pip install 'genpr[{PLUGINS[other][0]}]'" if other in PLUGINS else ""
    return "image-unsupported", f"{other} is not supported; convert it to PNG{remedy}"


def jpeg_without_metadata(data: bytes) -> tuple[bytes, bytes | None, tuple[int, int] | None]:
    """A JPEG without the segments that pixels do not depend on, its EXIF block, if any, and the size in its frame header.

    Pillow would join EXIF segments one by one (quadratic in their number), and allocate the sizes that their tags claim.
    Segments up to the first scan are found as in Pillow and libjpeg, which skip bytes between them.
    """
    kept: list[bytes] = []
    exif: list[bytes] = []
    size: tuple[int, int] | None = None
    at, kept_to = 2, 0
    for _ in range(MAX_PIECES):
        match = _MARKER.search(data, at)
        if match is None or match[1][0] == _START_OF_SCAN:
            break
        marker, at = match[1][0], match.end()
        if marker in _NO_SEGMENT:
            continue
        if marker in _FRAMES:
            if size is not None:  # Pillow uses the last one, and libjpeg raises an error
                raise ValueError("it has two frame headers")
            _check_frame(marker, data[at + 2 : at + 3])
            size = int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 3 : at + 5], "big")
        body, at = at + 2, at + max(2, int.from_bytes(data[at : at + 2], "big"))
        if marker in _DROPPED_SEGMENTS and at <= len(data):
            kept += data[kept_to : match.start()], _EMPTY_COMMENT
            kept_to = at
            if marker == _APP1 and data.startswith(b"Exif\0\0", body):
                exif.append(data[body + 6 : at])
    else:
        raise TooManyPiecesError
    if not kept_to:
        return data, None, size
    return b"".join((*kept, data[kept_to:])), b"Exif\0\0" + b"".join(exif) if exif else None, size


def _check_frame(marker: int, precision: bytes) -> None:
    """Refuse JPEG-LS, and JPEGs of more than 8 bits."""
    if marker == _LS_FRAME:
        raise UnsupportedImageError("JPEG-LS compression")
    if precision and 8 < precision[0] <= 16:
        kind = "lossless " if marker in _LOSSLESS_FRAMES else ""
        raise UnsupportedImageError(f"{kind}JPEG compression of {precision[0]} bits")


def avif_without_exif(data: bytes) -> bytes:
    """An AVIF whose EXIF blocks are items of an unknown type. Its orientation is that of the image itself.

    Pillow before 13 would allocate the sizes that their tags claim.
    """
    return _AVIF_EXIF.sub(b"none", data)


def check_png(data: bytes) -> None:
    """Refuse a truncated PNG, a wrong checksum of pixels, and very many color profiles.

    Pillow stops reading when it has all rows, and decompresses every profile.
    """
    view, at, profiles = memoryview(data), 8, 0
    for _ in range(MAX_PIECES):
        kind, end = data[at + 4 : at + 8], at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("its end is missing")
        if kind == b"IEND":
            return
        if kind == b"IDAT" and crc32(view[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise ValueError("its pixels have a wrong checksum")
        profiles += kind == b"iCCP"
        if profiles > MAX_PNG_PROFILES:
            raise TooManyPiecesError(f"it has more than {MAX_PNG_PROFILES} color profiles")
        at = end
    raise TooManyPiecesError


def jpeg_xl_size(data: bytes) -> tuple[int, int]:
    """Width and height of a JPEG XL file by its header (ISO/IEC 18181-1 and -2). Its plugin decodes it before it tells them.

    Animations are refused, since the plugin decodes all frames and gives the last one.
    """
    at, start = 0, data[:_JXL_HEADER] if data.startswith(_JXL_MARKER) else b""
    for _ in range(MAX_PIECES):
        if len(start) >= _JXL_HEADER or at >= len(data):
            break
        size, kind, body = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8], at + 8
        if size == 1:
            size, body = int.from_bytes(data[body : body + 8], "big"), at + 16
        end = at + max(size, 8) if size else len(data)
        if kind in {b"jxlc", b"jxlp"}:  # the codestream, or a part of it after its number
            body += 4 * (kind == b"jxlp")
            start += data[body : min(end, body + _JXL_HEADER)]
        at = end
    if not start.startswith(_JXL_MARKER):
        raise ValueError("it has no codestream")
    bits = int.from_bytes(start[2:], "little")

    def number(n_bits: int) -> int:
        nonlocal bits
        bits, value = bits >> n_bits, bits & (1 << n_bits) - 1
        return value

    def side(is_small: int) -> int:
        return 8 * number(5) + 8 if is_small else number(_JXL_BITS[number(2)]) + 1

    def sides() -> tuple[int, int]:
        is_small = number(1)
        height, (times, part) = side(is_small), _JXL_RATIOS[number(3)]
        return (height * times // part if times else side(is_small)), height

    found = sides()
    if not number(1) and number(1):  # other metadata than the defaults, with additional fields
        number(3)  # orientation
        if number(1):
            sides()  # at which it should be shown
        if number(2):
            raise UnsupportedImageError("an animation or a preview")
    return found


def tiff_entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Tag, type and first value of the entries on the first page of a TIFF, or in an EXIF block, if they are small integers.

    The last one is `NEXT_PAGE`, with the position of the second page, 0 without one; it is missing if the file is cut short.
    """
    order: Literal["little", "big"] = "little" if data.startswith(b"II") else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)

    first = number(4, 4) + 2
    end = first + 12 * number(first - 2, 2)
    for entry in range(first, min(end, len(data)), 12):
        kind, at = number(entry + 2, 2), entry + 8
        size = 4 if kind == _LONG else 2
        if kind in {_SHORT, _LONG} and number(entry + 4, 4) * size > 4:
            at = number(at, 4)
        if at + size <= len(data):
            yield number(entry, 2), kind, number(at, size)
    if end <= len(data):
        yield NEXT_PAGE, _LONG, number(end, 4)


def check_tiff(data: bytes, name: str, *, any_values: bool = False) -> dict[int, int]:
    """The tags of a TIFF; refuses previews, as in a camera's raw file, and unless `any_values` what Pillow does not read."""
    tags = {tag: value for tag, _, value in tiff_entries(data)}
    if NEXT_PAGE not in tags:
        raise ValueError("its tags are cut short")
    is_raw = _UNREAD.get(image_suffix(name)) == _CAMERA_RAW or _DNG_VERSION in tags or data[8:11] == b"CR\2"
    is_preview = tags.get(_SUBFILE, 0) & 1 and (tags[NEXT_PAGE] or _SUB_PAGES in tags)
    if is_raw or is_preview:
        raise UnsupportedImageError("raw data of a camera" if is_raw else "a preview as its first page")
    if any_values:
        return tags
    compression, bits = tags.get(_COMPRESSION, 1), tags.get(BITS, 1)
    if compression not in _TIFF_COMPRESSIONS:
        raise UnsupportedImageError(f"TIFF compression {compression}")
    kind = _SAMPLE_FORMATS.get(tags.get(SAMPLE_FORMAT, 1), "integer")
    if kind != "integer" or bits > 16:
        raise UnsupportedImageError(f"{bits}-bit {kind} pixels, whose range is unknown")
    if bits == 12 or tags.get(SAMPLES, 1) > _MOST_CHANNELS:
        raise UnsupportedImageError(TIFF_LAYOUT)
    return tags


def unsafe_in_tiff(data: bytes) -> str | None:
    """What needs Pillow `SAFE_PILLOW` in a TIFF, because older ones decode it beyond their buffers or not at all.

    See TIFF among the security fixes of https://pillow.readthedocs.io/en/stable/releasenotes/13.0.0.html.
    """
    entries = list(tiff_entries(data))
    tags = {tag: value if kind in {_SHORT, _LONG} else None for tag, kind, value in entries}
    compression, colors = tags.get(_COMPRESSION, 1) or 0, tags.get(PHOTOMETRIC)
    if compression not in _BYTE_COMPRESSIONS:
        return f"{_OTHER_COMPRESSIONS.get(compression, 'rare TIFF')} compression"
    found = {
        "tiles": not tags.keys().isdisjoint(_TILES),
        "YCbCr colors": colors == _YCBCR,
        "an unknown PhotometricInterpretation": colors is None,
        "repeated tags": len(tags) < len(entries),  # of which Pillow and libtiff use different ones
    }
    return next((name for name, is_found in found.items() if is_found), None)


def tiff_tile(data: bytes) -> tuple[int, int]:
    """Width and height of the tiles of the first page of a TIFF, or 0 without tiles; libtiff decodes whole tiles.

    The largest value of repeated tags counts, since Pillow and libtiff use different ones.
    """
    sides = {_TILE_WIDTH: 0, _TILE_HEIGHT: 0}
    for tag, kind, value in tiff_entries(data):
        if tag in sides and kind not in {_SHORT, _LONG}:
            raise ValueError(f"a side of its tiles is of type {kind}")
        if tag in sides:
            sides[tag] = max(sides[tag], value)
    return sides[_TILE_WIDTH], sides[_TILE_HEIGHT]
