"""The headers of a tar archive, one after another: what each regular file is called, where it lies, how long it is.

Faster than the standard library's `tarfile`, and without an object per member, because shards hold millions.
V7, ustar, GNU and PAX are read, as POSIX.1-2017 (pax) and the GNU tar manual describe them. Whatever is no header is
an error: an archive never ends in silence before the block of zeros that marks its end.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple
from zlib import adler32

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_REGULAR = b"0\x007"  # regular, regular as V7 writes it, contiguous; sparse is handled apart
_SPARSE = b"S"
_WITHOUT_DATA = b"123456"  # links, devices, folders, pipes: whatever size they claim
_MOST_EXTRA = 2**20  # bytes of a long name or of PAX records
_MOST_BYTES = 2**62
_ADLER = 65_521


class TarMember(NamedTuple):
    """A regular file in a tar archive.

    Attributes:
        name: Its path, as bytes.
        offset: Where its data begins in the archive.
        size: Of its data, in bytes.
        is_sparse: Whether the data leaves holes out, so that it is not the file.
    """

    name: bytes
    offset: int
    size: int
    is_sparse: bool


@dataclass(slots=True)
class _Extra:
    """What extended headers say of the member that follows them; None where they say nothing."""

    name: bytes | None = None
    size: int | None = None
    is_sparse: bool = False


def regular_files(file: IO[bytes]) -> Iterator[TarMember]:
    """The regular files of an archive in its order, from its headers alone; links, folders and devices are left out.

    Args:
        file: Uncompressed, or decompressing; it is read forwards only.

    Raises:
        tarfile.TarError: It is cut short, or holds something else.
    """
    at, everywhere, extra = 0, _Extra(), _Extra()
    while True:
        file.seek(at)
        header = file.read(_BLOCK)
        if header == _END:
            return
        kind, size = _checked(header, at)
        data = at + _BLOCK
        if kind in b"LKxXg":
            _read_extra(file, kind, size, everywhere if kind == b"g" else extra)
            at = data + _padded(size)
            continue
        if extra.size is not None or everywhere.size is not None:
            size = extra.size if extra.size is not None else everywhere.size or 0
        if kind == _SPARSE:
            data = _behind_sparse_maps(file, header, data)
        name = extra.name or everywhere.name or _name_in(header, kind)
        is_folder = kind == b"\0" and name.endswith(b"/")
        if kind in _REGULAR + _SPARSE and not is_folder:
            yield TarMember(name, data, size, kind == _SPARSE or extra.is_sparse or everywhere.is_sparse)
        at = data if kind in _WITHOUT_DATA else data + _padded(size)
        extra = _Extra()


def _checked(header: bytes, at: int) -> tuple[bytes, int]:
    """The kind and the size in a header.

    Raises:
        tarfile.ReadError: It is none.
    """
    if len(header) < _BLOCK:
        raise tarfile.ReadError("it stops without the mark that ends an archive")
    if not _sums_up(header):
        raise tarfile.ReadError(f"there is no header at byte {at:,}" if at else "it does not begin as one")
    size = _number(header[124:136])
    if not 0 <= size <= _MOST_BYTES:
        raise tarfile.ReadError(f"the header at byte {at:,} claims a size of {size:,} bytes")
    return header[156:157], size


def _sums_up(header: bytes) -> bool:
    """Whether a header has the sum that it says, of its bytes with blanks in place of the sum, some tools take them signed."""
    try:
        claimed = _number(header[148:156])
    except ValueError:
        return False
    # The lower half of Adler-32 is 1 + the sum of bytes modulo 65,521, ten times as fast as a sum in Python.
    own = sum(header[148:156])
    if (adler32(header) & 0xFFFF) == (1 + claimed + own - 8 * 32) % _ADLER:
        return True
    negative = 256 * sum(byte > 127 for byte in header[:148] + header[156:])
    return claimed == sum(header) - own + 8 * 32 - negative


def _number(field: bytes) -> int:
    """Octal digits, or as GNU writes what is too large for them: a mark, then bytes."""
    if field[0] in {0o200, 0o377}:
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0o200 else value - 256 ** (len(field) - 1)
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _name_in(header: bytes, kind: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix and kind != _SPARSE else name


def _read_extra(file: IO[bytes], kind: bytes, size: int, extra: _Extra) -> None:
    """Take over what an extended header says."""
    if size > _MOST_EXTRA:
        raise tarfile.ReadError(f"a name or note in it claims {size:,} bytes")
    data = file.read(size)
    if len(data) < size:
        raise tarfile.ReadError("it ends in the middle of a name")
    if kind == b"L":
        extra.name = data.partition(b"\0")[0]
    elif kind != b"K":  # of a link
        _read_records(data, extra)


def _read_records(data: bytes, extra: _Extra) -> None:
    """PAX records, `<length> <key>=<value>` and a line feed; the length is that of the whole record."""
    at = 0
    while at < len(data) and data[at]:
        digits, blank, _ = data[at : at + 20].partition(b" ")
        end = at + int(digits)
        if not blank or end <= at + len(digits) + 2 or data[end - 1 : end] != b"\n":
            raise tarfile.ReadError("a PAX record in it is broken")
        key, _, value = data[at + len(digits) + 1 : end - 1].partition(b"=")
        if key == b"GNU.sparse.name" or (key == b"path" and not extra.is_sparse):
            extra.name = value.rstrip(b"/")
        elif key == b"size":
            extra.size = int(value)
            if not 0 <= extra.size <= _MOST_BYTES:
                raise tarfile.ReadError(f"a PAX record in it claims a size of {extra.size:,} bytes")
        extra.is_sparse |= key.startswith(b"GNU.sparse.")
        at = end


def _behind_sparse_maps(file: IO[bytes], header: bytes, at: int) -> int:
    """Where the data of GNU's old sparse format begins: behind as many blocks of its map as say that another follows."""
    more = header[482]
    while more:
        block = file.read(_BLOCK)
        if len(block) < _BLOCK:
            raise tarfile.ReadError("it ends in the middle of a map of holes")
        more, at = block[504], at + _BLOCK
    return at
