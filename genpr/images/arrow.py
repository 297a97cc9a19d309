"""Arrow files and saved data sets, and what they share with parquet: the columns of images and labels."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from struct import unpack_from
from typing import Any, cast

from genpr.errors import DataError, ImageError, ResourceError, UsageError, printable, short, some
from genpr.images.archive import damage_reported
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    Item,
    JoinedSource,
    NumberedSource,
    StatedLabels,
    joined,
    too_large_to_read,
    unreadable,
)
from genpr.limits import SMALL_TEXT_BYTES, is_bomb, parse_json, read_bytes
from genpr.storage import open_regular

_LABEL_NAME = "label"  # of a column of which nothing says that it holds classes
_MOST_TEXT = 1000  # characters of the name of a class
_MAGIC = b"ARROW1"
_EXPERIMENTAL = b"ARROW:experimental_compression"  # how Arrow 0.17 marked it
STATE_FILE, SPLITS_FILE = "state.json", "dataset_dict.json"


@dataclass(frozen=True)
class Columns:
    """Where images and their classes are.

    Attributes:
        image: Name of the column of images.
        is_struct: Whether each is `{bytes, path}`, as Hugging Face stores them, and not the bytes alone.
        labels: Names of the columns that may be the label.
        classes: Names of the classes, by label column, where these are numbers.
    """

    image: str
    is_struct: bool
    labels: tuple[str, ...]
    classes: dict[str, tuple[str, ...]]


def import_pyarrow(path: Path | str) -> Any:  # noqa: ANN401 - it has no types
    """The library that reads parquet and Arrow files.

    Raises:
        ResourceError: It is not installed, or cannot be imported ("no-pyarrow").
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise ResourceError(
            f'{printable(str(path))} needs pyarrow ({error}); install it with: pip install "genpr[parquet]"',
            code="no-pyarrow",
            path=str(path),
        ) from error
    return pa


def arrow_damage_reported(path: Path, kind: str) -> AbstractContextManager[None]:
    """Report whatever pyarrow raises on broken bytes as a `DataError` ("{kind}-damaged")."""
    also = (MemoryError, TypeError, KeyError, IndexError)
    return damage_reported(path, f"{kind} file", code=f"{kind}-damaged", also=also)


def columns_of(schema: Any, choice: str | None, name: str) -> Columns:  # noqa: ANN401 - pyarrow has no types
    """Find the column of images and those of labels.

    Args:
        schema: Of pyarrow, with the metadata that Hugging Face's tools write, if they did.
        choice: What the user wrote behind "#": a column of images, a column of labels behind a comma, or both.
        name: Of the source, for messages.

    Raises:
        UsageError: There is no such column ("no-column"), or several may hold the images ("several-columns").
        DataError: None can ("no-images").
    """
    image, _, label = (choice or "").partition(",")
    base = name.removesuffix(f"#{choice}")
    for column in filter(None, (image, label)):
        if column not in schema.names:
            raise UsageError(
                f"{printable(name)} has no column {short(column)!r}; {_listed(schema)}",
                code="no-column",
                path=name,
            )
    features = _features(schema.metadata)
    fields = {field.name: field.type for field in schema}
    binary = {
        each: is_struct for each, kind in fields.items() if (is_struct := _holds_bytes(kind)) is not None
    }
    said = [each for each in binary if features.get(each, {}).get("_type") == "Image"]
    candidates = [image] if image else said or [each for each in binary if binary[each]] or list(binary)
    if len(candidates) > 1:
        shown = ", ".join(short(each) for each in candidates)
        raise UsageError(
            f"{printable(name)} has several columns that may be the images: {shown}; name one, as in "
            f"'{printable(base)}#{short(candidates[0])}'",
            code="several-columns",
            path=name,
        )
    if not candidates or candidates[0] not in binary:
        raise DataError(
            f"{printable(name)} has no column of images (needed: their bytes, alone or as {{bytes, path}}); {_listed(schema)}",
            code="no-images",
            path=name,
        )
    classes = {each: names for each in fields if (names := _class_names(features.get(each, {}))) is not None}
    guessed = [each for each in fields if each == _LABEL_NAME and _is_class(fields[each])]
    if label and not _is_class(fields[label]):
        raise DataError(
            f"{printable(name)}: column {short(label)} is of type {short(str(fields[label]))}; classes are integers or strings",
            code="labels-damaged",
            path=name,
        )
    labels = [label] if label else [each for each in classes if _is_class(fields[each])] or guessed
    return Columns(candidates[0], bool(binary[candidates[0]]), tuple(labels), classes)


def _features(metadata: dict[bytes, bytes] | None) -> dict[str, dict[str, Any]]:
    """What Hugging Face's tools say of columns; nothing where they did not, or where it is broken."""
    try:
        features = parse_json((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return (
        {key: value for key, value in features.items() if isinstance(value, dict)}
        if isinstance(features, dict)
        else {}
    )


def _class_names(feature: dict[str, Any]) -> tuple[str, ...] | None:
    names = feature.get("names")
    if feature.get("_type") != "ClassLabel" or not isinstance(names, list):
        return None
    return tuple(names) if all(isinstance(each, str) for each in names) else None


def _holds_bytes(kind: Any) -> bool | None:  # noqa: ANN401 - pyarrow has no types
    """Whether a column of a type holds `{bytes, path}` (True) or bytes (False); None for other types."""
    if str(kind) in {"binary", "large_binary"}:
        return False
    is_struct = str(kind).startswith("struct<") and kind.get_field_index("bytes") >= 0
    return True if is_struct and _holds_bytes(kind.field("bytes").type) is False else None


def is_part(field: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    """Whether a field of a struct is of an image as Hugging Face stores them."""
    is_path = field.name == "path" and str(field.type) in {"string", "large_string"}
    return is_path or (field.name == "bytes" and _holds_bytes(field.type) is False)


def _is_class(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    name = str(kind.value_type if str(kind).startswith("dictionary<") else kind)
    return name.startswith(("int", "uint")) or name in {"string", "large_string", "string_view"}


def _listed(schema: Any) -> str:  # noqa: ANN401 - pyarrow has no types
    columns = [f"{short(field.name)} ({short(str(field.type))})" for field in schema]
    return f"its columns: {some(columns, 12, longest=90)}"


def bytes_of(value: Any, name: str, *, is_struct: bool) -> bytes | ImageError:  # noqa: ANN401 - pyarrow has no types
    """The bytes of a scalar, or why there are none."""
    data = value["bytes"] if is_struct and value.is_valid else value
    if not data.is_valid:
        where = value["path"].as_py() if is_struct and value.is_valid and "path" in value else None
        if not where:
            return unreadable(name, "the value is null")
        return ImageError(
            f"{printable(name)}: its bytes are not in the file, only a path ({short(str(where))}), which is not followed; "
            "store the images themselves",
            code="image-elsewhere",
            path=name,
        )
    buffer = data.as_buffer()
    return (
        too_large_to_read(name, buffer.size)
        if buffer.size > MAX_ENCODED_BYTES
        else bytes(buffer.to_pybytes())
    )


def require_bytes(data: bytes | ImageError) -> bytes:
    """The bytes, where there are some.

    Raises:
        ImageError: It is what there is instead.
    """
    if isinstance(data, ImageError):
        raise data
    return data


def labels_in(
    columns: Columns, values: Callable[[str], Iterable[Iterable[object]]], origin: str
) -> StatedLabels | None:
    """The classes in the label column.

    Args:
        columns: What is known of them.
        values: Gives the values of a column, piece by piece.
        origin: The source, for people.

    Raises:
        DataError: There are several such columns ("no-labels"), or values that are no classes ("labels-damaged").
    """
    if not columns.labels:
        return None
    if len(columns.labels) > 1:
        shown = ", ".join(short(each) for each in columns.labels)
        raise DataError(
            f"{printable(origin)} has several columns of classes: {shown}; name one, as in "
            f"'{printable(origin)}#{short(columns.image)},{short(columns.labels[0])}'",
            code="no-labels",
            path=origin,
        )
    (label,) = columns.labels
    names = columns.classes.get(label)
    found = [_class_of(value, names, label, origin) for piece in values(label) for value in piece]
    return StatedLabels(found, f"column {short(label)} of {origin}")


def _class_of(value: object, names: Sequence[str] | None, label: str, origin: str) -> object:
    if isinstance(value, str) and len(value) <= _MOST_TEXT:
        return value
    if value is None or value == -1:  # Hugging Face's mark of an unknown class
        return None
    if isinstance(value, int) and not isinstance(value, bool) and (names is None or 0 <= value < len(names)):
        return value if names is None else names[value]
    known = "an integer or a name" if names is None else f"0 to {len(names) - 1}"
    raise DataError(
        f"{printable(origin)}: {short(repr(value))} in column {short(label)} is no class; needed is {known}",
        code="labels-damaged",
        path=origin,
    )


@dataclass(frozen=True)
class ArrowSource(NumberedSource):
    """The images in one column of an Arrow file, in its order.

    The file is mapped, so that an image is in memory while it is read.

    Attributes:
        columns: Where images and classes are.
        images: The pieces of the column of images.
        labels: The pieces of each column that may be the label.
    """

    name: str
    columns: Columns
    images: tuple[Any, ...]
    labels: dict[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return sum(map(len, self.images))

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; others are not touched."""
        ends = list(accumulate(map(len, self.images)))
        for index in indices:
            number = bisect_right(ends, index)
            piece = self.images[number]
            yield Item(
                f"[{index}]", partial(self._read, piece, index - ends[number] + len(piece), f"[{index}]")
            )

    def _read(self, piece: Any, row: int, name: str) -> bytes:  # noqa: ANN401 - pyarrow has no types
        return require_bytes(bytes_of(piece[row], name, is_struct=self.columns.is_struct))

    def stated_labels(self) -> StatedLabels | None:
        """The values of the label column."""
        return labels_in(
            self.columns,
            lambda label: map(_values, self.labels[label]),
            self.name,
        )


def _values(piece: Any) -> Iterable[object]:  # noqa: ANN401 - pyarrow has no types
    """Of a column; texts one after another and not as a list, because many rows may share a long one."""
    if str(piece.type).startswith(("int", "uint")):
        return cast("Iterable[object]", piece.to_pylist())
    return (value.as_py() for value in piece)


def open_arrow(path: Path, name: str, choice: str | None = None) -> ArrowSource:
    """Map an Arrow file, a stream as `datasets` writes it or one with a footer, and find its images.

    Raises:
        UsageError: The columns leave open which holds the images.
        DataError: It is damaged, or holds no images.
        ResourceError: pyarrow is not installed.
    """
    pa = import_pyarrow(path)
    with arrow_damage_reported(path, "arrow"):
        mapped = pa.memory_map(os.fsencode(path))
        start = _start_of_messages(mapped)
        _check_buffers(pa.ipc.MessageReader.open_stream(mapped), mapped.size(), name)
        mapped.seek(start)
        stream = pa.ipc.open_stream(mapped)
        columns = columns_of(stream.schema, choice, name)
        batches = list(stream)
        for batch in batches:
            batch.validate()  # that its columns are of one length
        kept = {
            column: tuple(batch.column(column) for batch in batches)
            for column in (columns.image, *columns.labels)
        }
        for pieces in kept.values():
            for piece in pieces:
                piece.validate(full=True)  # whoever wrote it may have pointed outside
    if not sum(map(len, kept[columns.image])):
        raise DataError(f"{printable(name)} has no images (it has no rows)", code="no-images", path=name)
    return ArrowSource(name, columns, kept[columns.image], {label: kept[label] for label in columns.labels})


def open_saved_dataset(folder: Path, name: str, choice: str | None = None) -> JoinedSource:
    """Open the Arrow files that a saved data set lists, in its order.

    Raises:
        UsageError: It holds several splits ("several-splits"), or several columns of images.
        DataError: It is damaged, or holds no images.
    """
    if (folder / SPLITS_FILE).is_file() and not (folder / STATE_FILE).is_file():
        splits = sorted(each.name for each in folder.iterdir() if (each / STATE_FILE).is_file())
        if len(splits) == 1:
            return open_saved_dataset(folder / splits[0], name, choice)
        raise several_splits(name, splits, [str(folder / each) for each in splits])
    files = [folder / each for each in _listed_files(folder / STATE_FILE)]
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        what = (
            f"{len(missing)} of its {len(files)} files are missing, the first {printable(missing[0].name)}"
            if missing
            else "it lists no files"
        )
        raise _damaged_dataset(folder, f"{what}; was it copied in part?")
    return joined(name, files, lambda path: open_arrow(path, str(path), choice))


def _listed_files(state: Path) -> Sequence[str]:
    """The names of the files of a saved data set."""
    with arrow_damage_reported(state, "arrow"):
        with open_regular(state) as file:
            data = read_bytes(
                file, SMALL_TEXT_BYTES, name=str(state), what="the state of a data set", code="arrow-damaged"
            )
        record = parse_json(data)
        if not isinstance(record, dict):
            raise _damaged_dataset(state.parent, f"{STATE_FILE} is something else")
        if record.get("_indices_files"):
            raise _damaged_dataset(
                state.parent,
                "it selects rows by a file of indices, as `datasets` did before version 2; save it again",
            )
        names = [entry["filename"] for entry in record["_data_files"]]
    strange = [each for each in names if not isinstance(each, str) or Path(each).name != each]
    if strange:
        raise _damaged_dataset(
            state.parent, f"{STATE_FILE} names {short(repr(strange[0]))}, which is no file in it"
        )
    return names


def several_splits(name: str, splits: Sequence[str], paths: Sequence[str]) -> UsageError:
    """The error for several splits where one is needed."""
    shown = ", ".join(short(split) for split in splits[:8]) or "none"
    example = f"; name one, as in {printable(paths[0])!r}" if paths else ""
    return UsageError(
        f"{printable(name)} holds several splits of a data set ({shown}), and one source is one of them{example}",
        code="several-splits",
        path=name,
    )


def _damaged_dataset(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{printable(str(folder))} is no intact saved data set ({reason})",
        code="arrow-damaged",
        path=str(folder),
    )


def _start_of_messages(mapped: Any) -> int:  # noqa: ANN401 - pyarrow has no types
    """Move to the first message, and return where it is. A file with a footer is a stream between two marks."""
    has_footer = mapped.read(len(_MAGIC)) == _MAGIC
    if has_footer:
        mapped.seek(mapped.size() - len(_MAGIC))
        if mapped.read() != _MAGIC:
            raise ValueError("it has no footer")
    start = len(_MAGIC) + 2 if has_footer else 0
    mapped.seek(start)
    return start


def _check_buffers(messages: Iterable[Any], size: int, name: str) -> None:
    """Refuse messages whose compressed buffers claim more than genuine ones could hold, before pyarrow decompresses any.

    A message has metadata, which is a FlatBuffers table, and a body. Each compressed buffer in the body begins with its size.

    Args:
        messages: Of an Arrow stream.
        size: Bytes of the file.
        name: Of the file, for the message.

    Raises:
        DataError: "arrow-bomb".
        ValueError, struct.error: The file is damaged.

    References:
        arrow.apache.org/docs/format/Columnar.html; github.com/apache/arrow, format/Message.fbs; flatbuffers.dev/internals.
    """
    unpacked = 0
    for message in messages:
        if message.type != "schema":
            unpacked += _claimed(memoryview(message.metadata), memoryview(message.body), message.type)
        if is_bomb(unpacked, size):
            raise DataError(
                f"{printable(name)} claims {unpacked:,} bytes or more in {size:,} compressed ones, like a decompression "
                "bomb; write it without compression if it is genuine",
                code="arrow-bomb",
                path=name,
            )


def _claimed(metadata: memoryview, body: memoryview, kind: str) -> int:
    """The bytes of all buffers of a message once they are decompressed; 0 where they are not compressed."""
    batch = _table(metadata, _root(metadata, 0), 2)
    if batch is not None and kind == "dictionary":
        batch = _table(metadata, batch, 1)
    if batch is None:
        raise ValueError("a message has no content")
    if _field(metadata, batch, 3) is None and _EXPERIMENTAL not in bytes(metadata):
        return 0
    buffers = _table(metadata, batch, 2)
    if buffers is None:
        return 0
    (count,) = unpack_from("<I", metadata, buffers)
    if 16 * count > len(metadata):
        raise ValueError("a message claims more buffers than it can describe")
    total = 0
    for number in range(count):
        offset, length = unpack_from("<qq", metadata, buffers + 4 + 16 * number)
        if length >= 8:
            total += max(0, *unpack_from("<q", body, offset))
    return total


def _root(data: memoryview, at: int) -> int:
    return at + int(unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, field: int) -> int | None:
    """Where a field of a table is; None where it has its default."""
    fields = table - unpack_from("<i", data, table)[0]
    (size,) = unpack_from("<H", data, fields)
    (offset,) = unpack_from("<H", data, fields + 4 + 2 * field) if 6 + 2 * field <= size else (0,)
    return table + int(offset) if offset else None


def _table(data: memoryview, table: int, field: int) -> int | None:
    at = _field(data, table, field)
    return None if at is None else _root(data, at)
