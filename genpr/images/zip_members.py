"""Members of zip archives, opened in one place: their sizes are checked against the archive, and memory stays bounded.

An archive says twice how large a member is, and may lie both times. `zipfile` decompresses all that it is given before it cuts
the result to the size that was said, and with bzip2 or LZMA it does so even when a few bytes are requested.
"""

from __future__ import annotations

import bz2
import copy
import io
import lzma
import struct
import zipfile
import zlib
from typing import IO, Any, cast

from genpr.errors import DataError
from genpr.limits import STREAMED_RATIO, UNPACKED_RATIO, is_bomb

_LZMA_HEADER = struct.Struct(
    "<2xHBL"
)  # version, size of the properties; literal and position bits, dictionary size


def open_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo | str, *, is_streamed: bool = False
) -> IO[bytes]:
    """Open a member to read it forwards.

    Args:
        archive: The archive.
        member: The member, or its name.
        is_streamed: Whether it is processed in small pieces, so that only the time has to be bounded.

    Raises:
        DataError: It claims more bytes than its compressed ones can honestly stand for ("zip-bomb").
        KeyError: There is no such member.
        zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError: As `ZipFile.open`.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    packed = max(0, min(info.compress_size, archive.start_dir - info.header_offset))
    if is_bomb(info.file_size, packed, ratio=STREAMED_RATIO if is_streamed else UNPACKED_RATIO):
        raise DataError(
            f"{info.filename} claims {info.file_size:,} bytes in {packed:,} compressed ones, like a zip bomb; repack the "
            "archive without compression if it is genuine",
            code="zip-bomb",
            path=archive.filename,
        )
    if info.compress_type not in {zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}:
        return archive.open(info)
    raw = copy.copy(info)
    raw.compress_type, raw.file_size = zipfile.ZIP_STORED, info.compress_size
    del raw.CRC  # of the decompressed data
    return cast("IO[bytes]", _Member(archive.open(raw), info))


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo | str) -> bytes:
    """All of a member.

    Raises:
        As `open_member`; `genpr.images.damage.DAMAGE` where its data are damaged.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    with open_member(archive, info) as file:
        return file.read(info.file_size)  # without a size, zipfile decompresses whatever is there


class _Member(io.RawIOBase):
    """A member that bzip2 or LZMA compressed: never more of it in memory than was requested."""

    def __init__(self, packed: IO[bytes], info: zipfile.ZipInfo) -> None:
        self._packed, self._info = packed, info
        self._stream: Any = (
            bz2.BZ2File(packed) if info.compress_type == zipfile.ZIP_BZIP2 else _lzma(packed, info)
        )
        self._at, self._crc = 0, 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = self._info.file_size - self._at
        data: bytes = self._stream.read(left if size < 0 else min(size, left))
        if not data and left and size:
            raise EOFError(f"{self._info.filename} ends before its last byte")
        self._at += len(data)
        self._crc = zlib.crc32(data, self._crc)
        if self._at == self._info.file_size and self._crc != self._info.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {self._info.filename!r}")
        return data

    def close(self) -> None:
        self._stream.close()
        self._packed.close()
        super().close()


def _lzma(packed: IO[bytes], info: zipfile.ZipInfo) -> lzma.LZMAFile:
    """LZMA as zip archives have it: the properties first, and an end that may be left out."""
    size, bits, dictionary = _LZMA_HEADER.unpack(packed.read(_LZMA_HEADER.size))
    if size != 5 or bits >= 9 * 5 * 5:
        raise zipfile.BadZipFile(f"{info.filename} has unknown LZMA properties")
    chosen = {
        "id": lzma.FILTER_LZMA1,
        "lc": bits % 9,
        "lp": bits // 9 % 5,
        "pb": bits // 45,
        "dict_size": max(4096, min(dictionary, info.file_size)),  # it never needs more than there is to read
    }
    return lzma.LZMAFile(packed, format=lzma.FORMAT_RAW, filters=[chosen])
