"""Images in a column of a parquet file, as Hugging Face's data sets are published: their own bytes, our decoder."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import IO, Any

from genpr.errors import DataError
from genpr.images.arrow import (
    Columns,
    arrow_damage_reported,
    columns_of,
    is_part,
    item_of,
    labels_in,
    load_pyarrow,
)
from genpr.images.item import ImageSource, Item, StatedLabels, names_of_places, printable
from genpr.images.parquet_pages import largest_page
from genpr.storage import open_regular

_ROWS_OF_ANY_FILE = 100_000
_READ_AHEAD = 2**20  # bytes of a column that are read at once, not a whole row group of it
_LABELS_AT_ONCE = 8192
_BATCH_BYTES = 2**26


@dataclass(frozen=True)
class ParquetSource(ImageSource):
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

    def __iter__(self) -> Iterator[Item]:
        return self.pick(range(len(self)))

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places; row groups without any are not read."""
        ends = list(accumulate(self.groups))
        with arrow_damage_reported(self.path, "parquet"), _opened(self.path) as file:
            for number, wanted in groupby(places, key=partial(bisect_right, ends)):
                yield from self._in_group(file, number, ends[number] - self.groups[number], wanted)

    def _in_group(self, file: _File, number: int, start: int, places: Iterable[int]) -> Iterator[Item]:
        # One row at a time: a page may hold one large value and refer to it a million times.
        rows = enumerate(file.batches(number, self.columns.image, 1), start)
        for place in places:
            batch = next((batch for row, batch in rows if row == place), None)
            if batch is None:
                raise DataError(
                    f"{printable(str(self.path))} ends before row {place:,}, which it claims to have; was it cut short?",
                    code="parquet-damaged",
                    path=str(self.path),
                )
            yield item_of(batch[0], f"[{place}]", is_struct=self.columns.is_struct)

    def names(self) -> Iterator[str]:
        """Row numbers."""
        return names_of_places(len(self))

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
    load_pyarrow(path)
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
            place
            for place in range(len(schema))
            if any(f"{schema.column(place).path}.".startswith(f"{name}.") for name in names)
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
    parquet = load_pyarrow(path).parquet
    with (
        open_regular(path) as raw,
        parquet.ParquetFile(
            raw, pre_buffer=False, buffer_size=_READ_AHEAD, page_checksum_verification=True
        ) as file,
    ):
        yield _File(str(path), raw, file)
