"""Images in a column of parquet files, as Hugging Face's data sets are published: their own bytes, our decoder."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any

from genpr.errors import DataError, printable, short
from genpr.images.arrow import (
    Columns,
    arrow_damage_reported,
    bytes_of,
    columns_of,
    import_pyarrow,
    is_part,
    labels_in,
    require_bytes,
    several_splits,
)
from genpr.images.folder import walk_files
from genpr.images.item import (
    Item,
    JoinedSource,
    NumberedSource,
    StatedLabels,
    joined,
)
from genpr.limits import is_bomb
from genpr.storage import open_regular

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3  # fields of a header
_MOST_HEADER_BYTES = 2**24  # as in pyarrow; a header may repeat the least and the largest value
_MOST_DEPTH = 8
_ROWS_OF_ANY_FILE = 100_000
_READ_AHEAD = 2**20  # bytes of a column that are read at once, not a whole row group of it
_LABELS_AT_ONCE = 8192
_BATCH_BYTES = 2**26
SUFFIX = ".parquet"
_SPLIT = re.compile(r"(.+?)-\d+-of-\d+(?:-[0-9a-f]+)?\.parquet")


@dataclass(frozen=True)
class ParquetSource(NumberedSource):
    """The images in one column of a parquet file, in its order.

    Row groups are read one after another and page by page, by whoever iterates; items carry the bytes of their image.

    Attributes:
        path: The file.
        columns: Where images and classes are.
        groups: Rows of each row group.
    """

    name: str
    path: Path
    columns: Columns
    groups: tuple[int, ...]

    def __len__(self) -> int:
        return sum(self.groups)

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; row groups without any are not read."""
        ends = list(accumulate(self.groups))
        with arrow_damage_reported(self.path, "parquet"), _opened(self.path) as file:
            for number, group in groupby(indices, key=partial(bisect_right, ends)):
                yield from self._in_group(file, number, ends[number] - self.groups[number], group)

    def _in_group(self, file: _File, number: int, start: int, indices: Iterable[int]) -> Iterator[Item]:
        # One row at a time: a page may hold one large value and refer to it a million times.
        rows = enumerate(file.batches(number, self.columns.image, 1), start)
        for index in indices:
            batch = next((batch for row, batch in rows if row == index), None)
            if batch is None:
                raise DataError(
                    f"{printable(str(self.path))} ends before row {index:,}, which it claims to have; was it cut short?",
                    code="parquet-damaged",
                    path=str(self.path),
                )
            name = f"[{index}]"
            data = bytes_of(batch[0], name, is_struct=self.columns.is_struct)
            yield Item(name, partial(require_bytes, data))

    def stated_labels(self) -> StatedLabels | None:
        """The values of the label column."""
        with arrow_damage_reported(self.path, "parquet"), _opened(self.path) as file:
            return labels_in(self.columns, lambda label: self._values(file, label), self.name)

    def _values(self, file: _File, column: str) -> Iterator[Sequence[object]]:
        for number in range(len(self.groups)):
            for batch in file.batches(number, column, _LABELS_AT_ONCE):
                yield batch.to_pylist()


def open_parquet(path: Path, name: str, choice: str | None = None) -> ParquetSource:
    """Find the images of a parquet file from its footer, without reading any.

    Args:
        path: The file.
        name: What to call it.
        choice: Which columns (`genpr.images.arrow.columns_of`).

    Raises:
        UsageError: The columns leave open which holds the images.
        DataError: It is damaged, or holds no images.
        ResourceError: pyarrow is not installed.
    """
    import_pyarrow(path)
    with arrow_damage_reported(path, "parquet"), _opened(path) as file:
        groups = tuple(
            file.parquet.metadata.row_group(number).num_rows
            for number in range(file.parquet.metadata.num_row_groups)
        )
        columns = columns_of(file.parquet.schema_arrow, choice, name)
    total = sum(groups)
    if not total:
        raise DataError(f"{printable(name)} has no images (it has no rows)", code="no-images", path=name)
    if min(groups) < 0 or total > max(_ROWS_OF_ANY_FILE, path.stat().st_size):
        raise DataError(
            f"{printable(name)} claims {total:,} images in {path.stat().st_size:,} bytes; was it tampered with?",
            code="parquet-damaged",
            path=name,
        )
    return ParquetSource(name, path, columns, groups)


@dataclass(frozen=True)
class _File:
    """An open parquet file: pyarrow's reader, and the bytes."""

    name: str
    raw: IO[bytes]
    parquet: Any

    def batches(self, group: int, column: str, rows: int) -> Iterator[Any]:
        """One column of a row group, in pieces of at most so many rows, and of bounded size.

        Raises:
            DataError: A page of it claims more than a genuine one could hold ("parquet-bomb").
        """
        names = _parts(self.parquet.schema_arrow.field(column))
        schema = self.parquet.schema
        leaves = [
            leaf
            for leaf in range(len(schema))
            if any(f"{schema.column(leaf).path}.".startswith(f"{name}.") for name in names)
        ]
        largest = largest_page(self.raw, self.parquet.metadata.row_group(group), leaves, self.name)
        rows = max(1, min(rows, _BATCH_BYTES // max(1, largest)))  # each row may refer to the same long value
        for batch in self.parquet.iter_batches(
            batch_size=rows, row_groups=[group], columns=names, use_threads=False
        ):
            yield batch.column(column)


def _parts(field: Any) -> list[str]:  # noqa: ANN401 - pyarrow has no types
    """What is read of a column: of a struct `{bytes, path}` nothing else that may be in it."""
    if not str(field.type).startswith("struct<"):
        return [field.name]
    return [f"{field.name}.{each.name}" for each in field.type if is_part(each)]


@contextmanager
def _opened(path: Path) -> Iterator[_File]:
    parquet = import_pyarrow(path).parquet
    with (
        open_regular(path) as raw,
        parquet.ParquetFile(
            raw, pre_buffer=False, buffer_size=_READ_AHEAD, page_checksum_verification=True
        ) as file,
    ):
        yield _File(str(path), raw, file)


def parquet_files(folder: Path) -> list[str]:
    """Relative paths of the parquet files below a folder, as `hf download` leaves them, ordered by their bytes."""
    return sorted((each for each in walk_files(folder) if each.lower().endswith(SUFFIX)), key=os.fsencode)


def open_parquet_files(folder: Path, files: list[str], name: str, choice: str | None = None) -> JoinedSource:
    """Open the parquet files of a folder as one source, if they are one split of one data set.

    Raises:
        UsageError: They are several splits ("several-splits"), or have several columns of images.
        DataError: One is damaged, or holds no images.
        ResourceError: pyarrow is not installed.
    """
    splits: dict[tuple[str, str], str] = {}
    for each in files:
        path = PurePosixPath(each)
        named = _SPLIT.fullmatch(path.name)
        if named is not None:
            split = named[1]
            pattern = str(folder / path.parent / f"{split}-*{SUFFIX}")
            splits.setdefault((str(path.parent), split), pattern)
    if len(splits) > 1:
        shown = [f"{parent}/{split}".removeprefix("./") for parent, split in splits]
        raise several_splits(name, shown, list(splits.values()))
    return joined(name, [folder / each for each in files], lambda path: open_parquet(path, str(path), choice))


def largest_page(file: IO[bytes], group: Any, leaves: list[int], name: str) -> int:  # noqa: ANN401 - pyarrow has no types
    """The bytes of the largest page of some columns, decompressed, as their headers claim.

    pyarrow decompresses each page as a whole, so this is called before. Every page, of values or of a dictionary, in any
    codec, begins with a header in Thrift's compact protocol.

    Args:
        file: The parquet file; its position is changed.
        group: Metadata of a row group.
        leaves: Numbers of columns.
        name: Of the file, for messages.

    Raises:
        DataError: A page claims more than a genuine one could hold ("parquet-bomb").
        ValueError: The headers are damaged.

    References:
        github.com/apache/parquet-format, src/main/thrift/parquet.thrift; github.com/apache/thrift,
        doc/specs/thrift-compact-protocol.md.
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
            unpacked, packed = _page_sizes(_PageHeader(file))
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


def _page_sizes(header: _PageHeader) -> tuple[int, int]:
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


class _PageHeader:
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
