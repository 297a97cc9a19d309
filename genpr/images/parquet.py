"""Images in a column of parquet files, the format of Hugging Face's data sets; their bytes are decoded by genpr."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from genpr.errors import DataError, ResourceError, UsageError, short, some
from genpr.images.archive import MAX_CLASS_NAME, reraise_corrupt
from genpr.images.item import (
    IndexedSource,
    Item,
    SourceLabels,
    check_encoded_size,
    unreadable_error,
)
from genpr.limits import is_bomb, parse_json
from genpr.storage import open_regular

_LABEL_NAME = "label"  # of a label column without metadata about classes
_ROWS_OF_ANY_FILE = 100_000
_READ_AHEAD = 2**20  # bytes of a column that are read at once, instead of a whole row group
LABELS_AT_ONCE = 8192
_KEEP_ONE = "keep one (pyarrow.parquet.read_table with columns, or select_columns of a datasets.Dataset)"
_BATCH_BYTES = 2**26


@dataclass(frozen=True)
class Columns:
    """The image column, `{bytes, path}` or bytes; candidates for the label column; names of their classes."""

    image: str
    labels: tuple[str, ...]
    classes: dict[str, tuple[str, ...]]


def columns_of(schema: Any, name: str) -> Columns:  # noqa: ANN401 - pyarrow has no types
    """Find the columns of images and labels."""
    fields = {field.name: field.type for field in schema}
    features = _features(schema.metadata)
    kinds = {each: _holds_bytes(kind) for each, kind in fields.items()}
    binary = {each: is_struct for each, is_struct in kinds.items() if is_struct is not None}
    declared = [each for each in binary if features.get(each, {}).get("_type") == "Image"]
    candidates = declared or [each for each in binary if binary[each]] or list(binary)
    if len(candidates) > 1:
        text = f"{name} has several columns that may be the images: {some(candidates, 12)}; {_KEEP_ONE}"
        raise UsageError(text, code="several-columns", path=name)
    if not candidates:
        columns = [f"{short(field.name)} ({short(str(field.type))})" for field in schema]
        text = f"{name} has no column of images, their bytes alone or as {{bytes, path}}"
        text += f"; its columns: {some(columns, 12, longest=90)}"
        raise DataError(text, code="no-images", path=name)
    classes = {each: names for each in fields if (names := _class_names(features.get(each, {}))) is not None}
    labels = [each for each in classes if _is_class(fields[each])]
    if not labels and _LABEL_NAME in fields and _is_class(fields[_LABEL_NAME]):
        labels = [_LABEL_NAME]
    return Columns(candidates[0], tuple(labels), classes)


def _features(metadata: dict[bytes, bytes] | None) -> dict[str, dict[str, Any]]:
    """Hugging Face's metadata of columns; empty if missing or invalid."""
    try:
        features = parse_json((metadata or {})[b"huggingface"])["info"]["features"]
        return {key: value for key, value in features.items() if isinstance(value, dict)}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _class_names(feature: dict[str, Any]) -> tuple[str, ...] | None:
    names = feature.get("names")
    if feature.get("_type") != "ClassLabel" or not isinstance(names, list):
        return None
    return tuple(names) if all(isinstance(each, str) for each in names) else None


def _holds_bytes(kind: Any) -> bool | None:  # noqa: ANN401 - pyarrow has no types
    """Whether a column type is `{bytes, path}` (True) or bytes (False); None for other types."""
    if str(kind) in {"binary", "large_binary"}:
        return False
    is_struct = str(kind).startswith("struct<") and kind.get_field_index("bytes") >= 0
    return True if is_struct and _holds_bytes(kind.field("bytes").type) is False else None


def _is_class(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    name = str(kind.value_type if str(kind).startswith("dictionary<") else kind)
    return name.startswith(("int", "uint")) or name in {"string", "large_string", "string_view"}


def _bytes_of(value: Any, name: str) -> bytes:  # noqa: ANN401 - pyarrow has no types
    """The bytes of a scalar, `{bytes, path}` or bytes."""
    is_struct = _holds_bytes(value.type)
    data = value["bytes"] if is_struct and value.is_valid else value
    if not data.is_valid:
        where = value["path"].as_py() if is_struct and value.is_valid and "path" in value else None
        if not where:
            raise unreadable_error(name, "the value is null")
        raise unreadable_error(
            name, f"the file contains only a path, {short(str(where))}, which is not followed"
        )
    buffer = data.as_buffer()
    check_encoded_size(name, buffer.size)
    return bytes(buffer.to_pybytes())


def labels_in(
    columns: Columns, values: Callable[[str], Iterable[Iterable[object]]], origin: str
) -> SourceLabels | None:
    """The classes in the label column; `values` returns the values of a column in pieces."""
    if not columns.labels:
        return None
    if len(columns.labels) > 1:
        text = f"{origin} has several columns of classes: {some(columns.labels, 12)}; {_KEEP_ONE}"
        raise DataError(text, code="no-labels", path=origin)
    (label,) = columns.labels
    names = columns.classes.get(label)
    classes = [_class_of(value, names, label, origin) for piece in values(label) for value in piece]
    return SourceLabels(classes, f"column {short(label)} of {origin}")


def _class_of(value: object, names: Sequence[str] | None, label: str, origin: str) -> object:
    if isinstance(value, str) and len(value) <= MAX_CLASS_NAME:
        return value
    if value is None or value == -1:  # Hugging Face's mark of an unknown class
        return None
    if isinstance(value, int) and not isinstance(value, bool) and (names is None or 0 <= value < len(names)):
        return value if names is None else names[value]
    known = "an integer or a name" if names is None else f"0 to {len(names) - 1}"
    text = f"{origin}: {short(repr(value))} in column {short(label)} is not a class; needed is {known}"
    raise DataError(text, code="labels-damaged", path=origin)


@dataclass(frozen=True)
class ParquetSource(IndexedSource):
    """The images in one column of a parquet file, in its order; `groups` are the rows of each row group.

    The iterating thread reads row groups in order and page by page; items hold the bytes of their image.
    """

    is_in_files = True

    name: str
    path: Path
    columns: Columns
    groups: tuple[int, ...]

    def __len__(self) -> int:
        return sum(self.groups)

    def select(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; row groups without selected images are not read."""
        ends = list(accumulate(self.groups))
        with _opened(self.path) as file:
            for number, group in groupby(indices, key=partial(bisect_right, ends)):
                # One row at a time: a page may contain one large value and refer to it a million times.
                start = ends[number] - self.groups[number]
                rows = enumerate(_batches(file, self.columns.image, number, 1), start)
                for index in group:
                    batch = next((batch for row, batch in rows if row == index), None)
                    if batch is None:
                        raise ValueError(f"it ends before row {index:,}, which its footer declares")
                    yield Item(f"[{index}]", partial(_bytes_of, batch[0], f"[{index}]"))

    def source_labels(self) -> SourceLabels | None:
        """The values of the label column."""
        with _opened(self.path) as file:

            def values(label: str) -> Iterator[Sequence[object]]:
                for group in range(len(self.groups)):
                    for batch in _batches(file, label, group, LABELS_AT_ONCE):
                        yield batch.to_pylist()

            return labels_in(self.columns, values, self.name)


def open_parquet(path: Path, name: str) -> ParquetSource:
    """Find the images of a parquet file from its footer, without reading any."""
    with _opened(path) as file:
        metadata = file.metadata
        groups = tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        columns = columns_of(file.schema_arrow, name)
        total, size = sum(groups), path.stat().st_size
        if total and (min(groups) < 0 or total > max(_ROWS_OF_ANY_FILE, size)):
            raise ValueError(f"it claims {total:,} images in {size:,} bytes")
    if not total:
        raise DataError(f"{name} has no images (it has no rows)", code="no-images", path=name)
    return ParquetSource(name, path, columns, groups)


def _batches(file: Any, column: str, group: int, rows: int) -> Iterator[Any]:  # noqa: ANN401 - pyarrow has no types
    """One column of a row group, in pieces of at most `rows` rows and of bounded size."""
    names = [column]
    if _holds_bytes(kind := file.schema_arrow.field(column).type):  # other fields of a struct are not read
        names = [f"{column}.{each.name}" for each in kind if each.name in {"bytes", "path"}]
    metadata = file.metadata.row_group(group)
    for part in map(metadata.column, range(metadata.num_columns)):
        unpacked, packed = part.total_uncompressed_size, part.total_compressed_size
        if part.path_in_schema in names and is_bomb(unpacked, packed):
            claim = f"claims {unpacked:,} bytes in {packed:,} compressed ones, like a decompression bomb"
            raise ValueError(f"column {short(column)} {claim}")
        if part.path_in_schema in names:  # all rows may refer to the same long value
            rows = max(1, min(rows, _BATCH_BYTES // max(1, unpacked)))
    for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names, use_threads=False):
        yield batch.column(column)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The pyarrow object of a parquet file; errors of corrupt files are converted."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        text = f'{path} needs pyarrow ({error}); install it with: pip install "genpr[parquet]"'
        raise ResourceError(text, code="no-pyarrow", path=str(path)) from error
    options = {"pre_buffer": False, "buffer_size": _READ_AHEAD, "page_checksum_verification": True}
    also = (MemoryError, TypeError, KeyError, IndexError)  # of pyarrow
    with (
        reraise_corrupt(path, "parquet file", code="parquet-damaged", also=also),
        open_regular(path) as raw,
        parquet.ParquetFile(raw, **options) as file,
    ):
        yield file
