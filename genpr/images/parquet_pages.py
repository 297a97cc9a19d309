"""The sizes that the pages of a parquet file claim, before pyarrow decompresses any: it decompresses each page as a whole.

Every page, of values or of a dictionary, in any codec, begins with a header in Thrift's compact protocol.

References:
    github.com/apache/parquet-format, src/main/thrift/parquet.thrift; github.com/apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from genpr.errors import DataError, short
from genpr.images.item import printable
from genpr.limits import is_bomb

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3  # fields of a header
_MOST_HEADER_BYTES = 2**24  # as in pyarrow; a header may repeat the least and the largest value
_MOST_DEPTH = 8


def largest_page(file: IO[bytes], group: Any, leaves: list[int], name: str) -> int:  # noqa: ANN401 - pyarrow has no types
    """The bytes of the largest page of some columns, decompressed, as their headers claim.

    Args:
        file: The parquet file; it is left at another place.
        group: Metadata of a row group.
        leaves: Numbers of columns.
        name: Of the file, for messages.

    Raises:
        DataError: A page claims more than a genuine one could hold ("parquet-bomb").
        ValueError: The headers are damaged.
    """
    largest = 0
    for leaf in leaves:
        column = group.column(leaf)
        at = column.data_page_offset
        if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < at:
            at = column.dictionary_page_offset
        end = at + column.total_compressed_size
        while at < end:
            file.seek(at)
            unpacked, packed = _sizes(_Header(file))
            if is_bomb(2 * unpacked, packed):  # the page, and the values that are decoded from it
                raise DataError(
                    f"{printable(name)}: a page of column {short(column.path_in_schema)} claims {unpacked:,} bytes in {packed:,} "
                    "compressed ones, like a decompression bomb; write it with smaller pages, or without compression, if it is "
                    "genuine",
                    code="parquet-bomb",
                    path=name,
                )
            largest = max(largest, unpacked)
            at = file.tell() + packed
    return largest


def _sizes(header: _Header) -> tuple[int, int]:
    """Bytes of a page, decompressed and compressed; the file then stands behind the header."""
    found = {_UNCOMPRESSED_SIZE: -1, _COMPRESSED_SIZE: -1}
    for number, kind in header.fields():
        if number in found and kind == _I32:
            found[number] = header.integer()
        else:
            header.skip(kind)
    if min(found.values()) < 0:
        raise ValueError("a page header has no sizes")
    return found[_UNCOMPRESSED_SIZE], found[_COMPRESSED_SIZE]


class _Header:
    """Reads one structure; only integers are kept."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, _MOST_HEADER_BYTES

    def _byte(self) -> int:
        data = self._file.read(1)
        self._left -= 1
        if not data or self._left < 0:
            raise ValueError("a page header has no end")
        return data[0]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a page header has a number of more than 64 bits")

    def integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field; whoever iterates reads or skips its value."""
        number = 0
        while (head := self._byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass by a value."""
        if depth > _MOST_DEPTH:
            raise ValueError("a page header is nested too deeply")
        if kind in {_TRUE, _FALSE}:
            return
        if kind == _BYTE:
            self._byte()
        elif kind in {_I16, _I32, _I64}:
            self._varint()
        elif kind == _DOUBLE:
            self._pass(8)
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind in {_LIST, _SET}:
            head = self._byte()
            self._skip_all([head & 0x0F], self._varint() if head >> 4 == 15 else head >> 4, depth)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            self._skip_all([kinds >> 4, kinds & 0x0F], count, depth)
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        else:
            raise ValueError(f"a page header has a value of unknown type {kind}")

    def _skip_all(self, kinds: list[int], count: int, depth: int) -> None:
        if count > self._left:
            raise ValueError("a page header claims more values than it can hold")
        for _ in range(count):
            for kind in kinds:
                # In a list a boolean takes a byte.
                self.skip(_BYTE if kind in {_TRUE, _FALSE} else kind, depth + 1)

    def _pass(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError("a page header has no end")
        self._file.seek(size, 1)
