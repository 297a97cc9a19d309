"""The sizes that compressed buffers of an Arrow file claim, before pyarrow decompresses any.

A message has metadata, which is a FlatBuffers table, and a body. Each compressed buffer in the body begins with its size.

References:
    arrow.apache.org/docs/format/Columnar.html; github.com/apache/arrow, format/{Message,File}.fbs;
    flatbuffers.dev/internals.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

from genpr.errors import DataError
from genpr.images.item import printable
from genpr.limits import is_bomb

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_EXPERIMENTAL = b"ARROW:experimental_compression"  # how Arrow 0.17 marked it


def check_buffers(data: memoryview, name: str) -> None:
    """Refuse an Arrow file, or stream, whose buffers claim more than genuine ones could hold.

    Args:
        data: The whole file.
        name: Of the file, for the message.

    Raises:
        DataError: "arrow-bomb".
        ValueError, struct.error: The file is damaged.
    """
    unpacked = used = 0
    for metadata, body in _of_file(data) if data[:6] == _MAGIC else _of_stream(data):
        used += body - metadata + _body_bytes(data, metadata)
        if used > len(data):
            raise ValueError("its messages overlap")
        unpacked += _claimed(data, metadata, body)
        if is_bomb(unpacked, len(data)):
            raise DataError(
                f"{printable(name)} claims {unpacked:,} bytes or more in {len(data):,} compressed ones, like a decompression "
                "bomb; write it without compression if it is genuine",
                code="arrow-bomb",
                path=name,
            )


def _of_stream(data: memoryview) -> Iterator[tuple[int, int]]:
    """Where the metadata and the body of each message begin."""
    at = 0
    while at + 4 <= len(data):
        metadata, size = _prefix(data, at)
        if not size:
            return
        yield metadata, metadata + size
        at = metadata + size + _body_bytes(data, metadata)


def _of_file(data: memoryview) -> Iterator[tuple[int, int]]:
    """The same, of what the footer lists: dictionaries, then record batches."""
    (size,) = unpack_from("<i", data, len(data) - 10)
    footer = _root(data, len(data) - 10 - size)
    for field in (2, 3):
        start, count = _vector(data, footer, field)
        for number in range(count):
            offset, length = unpack_from("<qi", data, start + 24 * number)
            yield _prefix(data, offset)[0], offset + length


def _body_bytes(data: memoryview, metadata: int) -> int:
    size = _scalar(data, _root(data, metadata), 3, "<q")
    if size < 0:
        raise ValueError("a message claims a negative size")
    return size


def _prefix(data: memoryview, at: int) -> tuple[int, int]:
    """Where the metadata of a message begin, and their size."""
    first, second = unpack_from("<II", data, at) if at + 8 <= len(data) else (0, 0)
    return (at + 8, second) if first == _CONTINUATION else (at + 4, first)


def _claimed(data: memoryview, metadata: int, body: int) -> int:
    """The bytes of all buffers of a message once they are decompressed; 0 where they are not compressed."""
    message = _root(data, metadata)
    kind = _scalar(data, message, 1, "<B")
    if kind not in {_DICTIONARY_BATCH, _RECORD_BATCH}:
        return 0
    batch = _table(data, message, 2)
    if batch is not None and kind == _DICTIONARY_BATCH:
        batch = _table(data, batch, 1)
    if batch is None:
        raise ValueError("a message has no content")
    if _place(data, batch, 3) is None and _EXPERIMENTAL not in bytes(data[metadata:body]):
        return 0
    start, count = _vector(data, batch, 2)
    if 16 * count > body - metadata:
        raise ValueError("a message claims more buffers than it can describe")
    total = 0
    for number in range(count):
        offset, length = unpack_from("<qq", data, start + 16 * number)
        if length >= 8:
            total += max(0, *unpack_from("<q", data, body + offset))
    return total


def _root(data: memoryview, at: int) -> int:
    return at + int(unpack_from("<I", data, at)[0])


def _place(data: memoryview, table: int, field: int) -> int | None:
    """Where a field of a table is; None where it has its default."""
    fields = table - unpack_from("<i", data, table)[0]
    (size,) = unpack_from("<H", data, fields)
    (offset,) = unpack_from("<H", data, fields + 4 + 2 * field) if 6 + 2 * field <= size else (0,)
    return table + int(offset) if offset else None


def _scalar(data: memoryview, table: int, field: int, form: str) -> int:
    place = _place(data, table, field)
    return 0 if place is None else int(unpack_from(form, data, place)[0])


def _table(data: memoryview, table: int, field: int) -> int | None:
    place = _place(data, table, field)
    return None if place is None else _root(data, place)


def _vector(data: memoryview, table: int, field: int) -> tuple[int, int]:
    """Where the entries of a vector begin, and how many there are."""
    start = _table(data, table, field)
    return (0, 0) if start is None else (start + 4, int(unpack_from("<I", data, start)[0]))
