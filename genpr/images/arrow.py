"""What parquet and Arrow files share: which column holds images and which labels, and the bytes of one value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from genpr.errors import DataError, GenprError, ImageError, ResourceError, UsageError, short, some
from genpr.images.item import MAX_ENCODED_BYTES, Item, StatedLabels, printable, too_large_to_read, unreadable
from genpr.limits import parse_json

_LABEL_NAME = "label"  # of a column of which nothing says that it holds classes
_MOST_TEXT = 1000  # characters of the name of a class


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


def load_pyarrow(path: Path | str) -> Any:  # noqa: ANN401 - it has no types
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


@contextmanager
def arrow_damage_reported(path: Path, kind: str) -> Iterator[None]:
    """Report whatever pyarrow raises on broken bytes as a `DataError` ("{kind}-damaged")."""
    try:
        yield
    except GenprError:
        raise
    except MemoryError as error:
        raise _damaged(path, kind, f"it asks for more memory than there is: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise DataError(
                f"{printable(str(path))} cannot be read ({error.strerror})", code="unreadable", path=str(path)
            ) from error
        raise _damaged(path, kind, error) from error
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        NotImplementedError,
        RuntimeError,
        struct.error,
    ) as error:
        raise _damaged(path, kind, error) from error


def _damaged(path: Path, kind: str, reason: object) -> DataError:
    shown = short(str(reason).strip("'\"").partition("\n")[0], 200)
    return DataError(
        f"{printable(str(path))} is not an intact {kind} file ({shown}); was it cut short or renamed?",
        code=f"{kind}-damaged",
        path=str(path),
    )


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
    for asked in filter(None, (image, label)):
        if asked not in schema.names:
            raise UsageError(
                f"{printable(name)} has no column {short(asked)!r}; {_listed(schema)}",
                code="no-column",
                path=name,
            )
    features = _features(schema.metadata)
    fields = {field.name: field.type for field in schema}
    binary = {
        each: is_struct for each, kind in fields.items() if (is_struct := _holds_bytes(kind)) is not None
    }
    said = [each for each in binary if features.get(each, {}).get("_type") == "Image"]
    wanted = [image] if image else said or [each for each in binary if binary[each]] or list(binary)
    if len(wanted) > 1:
        shown = ", ".join(short(each) for each in wanted)
        raise UsageError(
            f"{printable(name)} has several columns that may be the images: {shown}; name one, as in "
            f"'{printable(base)}#{short(wanted[0])}'",
            code="several-columns",
            path=name,
        )
    if not wanted or wanted[0] not in binary:
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
    return Columns(wanted[0], bool(binary[wanted[0]]), tuple(labels), classes)


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


def item_of(value: Any, name: str, *, is_struct: bool) -> Item:  # noqa: ANN401 - pyarrow has no types
    """One image of a column, with its bytes already in hand."""
    return Item(name, partial(given, bytes_of(value, name, is_struct=is_struct)))


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


def given(data: bytes | ImageError) -> bytes:
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
