"""Damage that keeps a format's own checksums and lengths right, so that it is met behind the first gate."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib
from random import Random

from fuzz.images import png_of_chunks
from fuzz.raw import INTERESTING, flip_bits, set_bytes, set_number
from fuzz.texts import NASTY, change_json

_BOMB = zlib.compress(bytes(2**24))  # 16 MB of zeros in 16 kB


def _reordered(rng: Random, parts: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """One of the parts is doubled, left out, moved, renamed or changed."""
    parts = list(parts)
    if not parts:
        return parts
    at = rng.randrange(len(parts))
    kind, body = parts[at]
    match rng.randrange(6):
        case 0:
            parts[at:at] = [parts[at]] * rng.choice((1, 1, 100))
        case 1:
            del parts[at]
        case 2:
            parts.insert(rng.randrange(len(parts)), parts.pop(at))
        case 3:
            parts[at] = rng.choice(parts)[0], body
        case 4:
            parts[at] = kind, rng.choice((flip_bits, set_bytes, set_number))(rng, body)
        case _:
            parts[at] = kind, body[: rng.randrange(len(body) + 1)]
    return parts


def png(rng: Random, data: bytes) -> bytes:
    """Chunks with right checksums: reordered, of other sizes, with pixels that are other data, with bombs in text."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    match rng.randrange(5):
        case 0:
            kinds = (b"zTXt", b"key\0\0"), (b"iCCP", b"key\0\0"), (b"iTXt", b"key\0\1\0\0\0"), (b"IDAT", b"")
            kind, head = rng.choice(kinds)
            chunks[1:1] = [(kind, head + _BOMB)] * rng.choice((1, 1, 70))
        case 1:
            sides = [rng.choice((0, 1, 13, 9000, 2**16, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
            rest = bytes(rng.choice((0, 1, 2, 3, 4, 6, 8, 16)) for _ in range(5))
            chunks[:1] = [(b"IHDR", struct.pack(">II", *sides) + rest)]
        case 2:
            body = rng.randbytes(rng.choice((10, 500))) if rng.random() < 0.5 else bytes(3000)
            chunks = [(kind, zlib.compress(body) if kind == b"IDAT" else was) for kind, was in chunks]
        case _:
            chunks = _reordered(rng, chunks)
    return png_of_chunks(chunks)


def jpeg(rng: Random, data: bytes) -> bytes:
    """Segments up to the scan: reordered, and with other sides."""
    parts, at = [], 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        size = int.from_bytes(data[at + 2 : at + 4], "big")
        parts.append((data[at : at + 2], data[at + 4 : at + 2 + size]))
        at += 2 + max(size, 2)
    if rng.random() < 0.3:
        sides = struct.pack(">HH", rng.choice((0, 1, 9000, 65535)), rng.choice((0, 1, 9000, 65535)))
        parts = [
            (mark, body[:1] + sides + body[5:] if mark[1:] in (b"\xc0", b"\xc2") else body)
            for mark, body in parts
        ]
    else:
        parts = _reordered(rng, parts)
    segments = b"".join(mark + struct.pack(">H", (len(body) + 2) % 65536) + body for mark, body in parts)
    return data[:2] + segments + data[at:]


def riff(rng: Random, data: bytes) -> bytes:
    """Chunks of a WebP with right lengths, and canvases of any size."""
    parts, at = [], 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        parts.append((data[at : at + 4], data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    if rng.random() < 0.3:
        sides = [rng.choice((0, 11, 9000, 16383, 2**24 - 1)).to_bytes(3, "little") for _ in range(2)]
        canvas = bytes([rng.choice((0, 2, 16, 18)), 0, 0, 0]) + b"".join(sides)
        parts[:0] = [(b"VP8X", canvas)]
    else:
        parts = _reordered(rng, parts)
    body = b"WEBP" + b"".join(
        kind + struct.pack("<I", len(part)) + part + bytes(len(part) % 2) for kind, part in parts
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tiff(rng: Random, data: bytes) -> bytes:
    """One entry of the first directory: another tag, type, count or value."""
    order = "<" if data[:2] == b"II" else ">"
    if len(data) < 10:
        return data
    (first,) = struct.unpack_from(f"{order}I", data, 4)
    if first + 2 > len(data):
        return data
    (count,) = struct.unpack_from(f"{order}H", data, first)
    at = first + 2 + 12 * rng.randrange(count + 1)
    if at + 12 > len(data):
        return data
    found = bytearray(data)
    width, offset = rng.choice((("H", 0), ("H", 2), ("I", 4), ("I", 8)))
    value = rng.choice((*INTERESTING, 256, 257, 258, 259, 262, 273, 277, 279, 284, 322, 323, 339, first))
    struct.pack_into(f"{order}{width}", found, at + offset, value % (65536 if width == "H" else 2**32))
    return bytes(found)


def boxes(rng: Random, data: bytes) -> bytes:
    """Top-level boxes of an ISO media file, and those within `meta`."""
    parts, at = [], 0
    while at + 8 <= len(data):
        size = max(8, int.from_bytes(data[at : at + 4], "big"))
        parts.append((data[at + 4 : at + 8], data[at + 8 : at + size]))
        at += size
    changed = _reordered(rng, parts)
    return b"".join(struct.pack(">I", len(body) + 8) + kind + body for kind, body in changed)


def zip_fields(rng: Random, data: bytes) -> bytes:
    """A field of the directory or of a member's own header; the data and their checksums stay."""
    places = [
        (at, local) for local, mark in ((True, b"PK\3\4"), (False, b"PK\1\2")) for at in _all(data, mark)
    ]
    if not places or rng.random() < 0.1:
        end = data.rfind(b"PK\5\6")
        return data[: end + 8] + set_number(rng, data[end + 8 :])
    at, local = rng.choice(places)
    offset, size = rng.choice(
        [(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)]
        if local
        else [(6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (38, 4), (42, 4)]
    )
    value = rng.choice((*INTERESTING, 12, 14, 93, 0o120777 << 16)) % 2 ** (8 * size)
    return data[: at + offset] + value.to_bytes(size, "little") + data[at + offset + size :]


def zip_members(rng: Random, data: bytes) -> bytes:
    """An archive whose members have other names or other content, all checksums right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # noqa: BLE001 - damaged already, in one of the many ways that this is about
        return data
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((0, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))) as archive:
        for name, body in members:
            if rng.random() < 0.4:
                name = rng.choice(NASTY).replace("\0", "") + rng.choice(("", "/", ".png", "/dataset.json"))
            if rng.random() < 0.4:
                body = rng.choice((npy_header, change_json, flip_bits, set_number))(rng, body)
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode() or "x")
            info.external_attr = rng.choice((0, 0o120777 << 16, 0o100644 << 16))
            archive.writestr(info, body)
    return file.getvalue()


def tar_header(rng: Random, data: bytes) -> bytes:
    """A field of a member's header, with the checksum made right again."""
    if len(data) < 512:
        return data
    at = 512 * rng.randrange(len(data) // 512)
    header = bytearray(data[at : at + 512])
    start, size = rng.choice(((0, 100), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155)))
    texts = (b"../../x.png", b"/etc/x.png", b"\xff\xfe\n\x1b[2J.png", b"7" * 12, b"\x80" + b"\xff" * 11)
    value = rng.choice((*texts, bytes([rng.choice(b"01234567gxLKSD")]), rng.randbytes(size), b""))
    header[start : start + size] = value[:size].ljust(size, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:at] + bytes(header) + data[at + 512 :]


def tar_packed(rng: Random, data: bytes) -> bytes:
    """Damage within a compressed archive, compressed again."""
    for name, pack, unpack in (
        ("gz", gzip.compress, gzip.decompress),
        ("xz", lzma.compress, lzma.decompress),
    ):
        if data.startswith({"gz": b"\x1f\x8b", "xz": b"\xfd7zXZ"}[name]):
            try:
                inner = unpack(data)
            except Exception:  # noqa: BLE001 - as above
                return data
            return pack(rng.choice((tar_header, flip_bits, set_number))(rng, inner[: 2**20]))
    return data


def npy_header(rng: Random, data: bytes) -> bytes:
    """Another shape, type or order, or no dictionary at all."""
    if not data.startswith(b"\x93NUMPY") or len(data) < 12:
        return set_number(rng, data)
    length = int.from_bytes(data[8:10], "little")
    text = data[10 : 10 + length].decode("latin1")
    shapes = (
        "(-1, 8)",
        "()",
        "(2**40,)",
        "(4611686018427387904, 4)",
        "(0, 3)",
        "(True, 3)",
        "(1e3, 2)",
        "(3, 1, 8)",
    )
    descrs = (
        "'|O'",
        "'<f2'",
        "'<U9'",
        "'>f8'",
        "[('a', '<f4')]",
        "'<M8[ns]'",
        "'|V8'",
        "'<c16'",
        "'" + "f" * 300 + "'",
    )
    match rng.randrange(5):
        case 0:
            text = text[: text.find("'shape'")] + f"'shape': {rng.choice(shapes)}, }}"
        case 1:
            text = "{'descr': " + rng.choice(descrs) + text[text.find(", 'fortran") :]
        case 2:
            text = text.replace("False", rng.choice(("True", "2", "None")))
        case 3:
            text = rng.choice(
                ("(" * 5000, "[" * 200, "-" * 9000 + "1", "{'a': " * 90, "__import__('os')", "{}", "1")
            )
        case _:
            text = flip_bits(rng, text.encode("latin1")).decode("latin1")
    header = text.encode("latin1") + b" " * (-(len(text) + 11) % 64) + b"\n"
    return data[:8] + struct.pack("<H", len(header) % 65536) + header + data[10 + length :]


def safetensors_header(rng: Random, data: bytes) -> bytes:
    """Another header in front of the same data."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError:
        return set_number(rng, data)
    tensors = [key for key in header if key != "__metadata__"]
    metadata = header.get("__metadata__") or {}
    match rng.randrange(6):
        case 0 if tensors:
            header[rng.choice(tensors)]["dtype"] = rng.choice(
                ("F32", "F64", "U8", "BF16", "I64", "BOOL", "X9", "C64")
            )
        case 1 if tensors:
            shape = rng.choice(([], [0, 8], [2**62, 4], [-1], [32], [1, 4, 8], [8, 4], "x", [16, 2]))
            header[rng.choice(tensors)]["shape"] = shape
        case 2 if metadata:
            key = rng.choice(sorted(metadata))
            metadata[key] = change_json(rng, metadata[key].encode()).decode("utf-8", "replace")
        case 3 if metadata:
            metadata.pop(rng.choice(sorted(metadata)))
        case 4 if tensors:
            old = rng.choice(tensors)
            header[rng.choice(("features", "names", "x", ""))] = header.pop(old)
        case _:
            text = change_json(rng, json.dumps(header).encode())
            return struct.pack("<Q", len(text)) + text + data[8 + length :]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _all(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def tar_of(members: dict[str, bytes], mode: str) -> bytes:
    """A tar archive of these files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return file.getvalue()


def zip_of(members: dict[str, bytes], method: int) -> bytes:
    """A zip archive of these files, always the same."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, body in members.items():
            archive.writestr(zipfile.ZipInfo(name), body, compress_type=method)
    return file.getvalue()
