"""Tables about images: text files within limits, one reader of .csv, .tsv, .jsonl and .json, and values by image."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from genpr.errors import DataError, UsageError, printable, short, some
from genpr.images.archive import reraise_corrupt
from genpr.images.item import file_of, plain_path, stem_of
from genpr.limits import TEXT_BYTES, parse_json, read_bytes, unique_keys
from genpr.notices import Notice, notice
from genpr.storage import open_regular

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
_MAX_CELL = 2**20
_SKIPPED = re.compile(r"[\s_-]+")
_DIGITS = re.compile("[0-9]+")
_INDEX = re.compile(r"\[[0-9]+\]\Z")  # of an image in an array or a table, which is in numeric order


def is_file(path: Path) -> bool:
    """Whether a file exists; False for invalid names."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for some names


def is_folder(path: Path) -> bool:
    """Whether a folder exists; False for invalid names."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for some names


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """The format of one kind of table.

    Attributes:
        what: Name of the content for messages ("prompts").
        code: Error code for a damaged file.
        fields: Names of the column or key of each field in order of preference, separated by spaces. Case, spaces, "_" and "-"
            in a table do not matter.
        main: The field of values in a mapping from ids; `text` is that of values that are text.
        id: The field with the names of images.
        headless: Fields of the two columns of a CSV without a header; empty if a header is required.
        any_names: Whether bytes that are not UTF-8 are kept, since file names may be any bytes.
    """

    what: str
    code: str
    fields: Mapping[str, str]
    main: str
    text: str = ""
    id: str = "id"
    headless: tuple[str, ...] = ()
    any_names: bool = False

    def field_of(self, value: object) -> str:
        """The field of a value in a mapping or in a sequence."""
        return self.text if self.text and isinstance(value, str) else self.main

    def error(self, origin: str, reason: str, *, code: str | None = None) -> DataError:
        """The error for an unusable file."""
        message = f"{printable(origin)} cannot be used as {self.what}: {reason}"
        return DataError(message, code=code or self.code, path=origin)

    def parsed(self, text: bytes | str, origin: str, where: str = "it") -> Any:  # noqa: ANN401 - as JSON gives it
        """The value of a JSON text; duplicate keys in an object are an error."""
        try:
            return parse_json(text, pairs=unique_keys)
        except ValueError as error:
            raise self.error(origin, f"{where} is not valid JSON ({printable(str(error))})") from error

    def fields_in(self, names: Iterable[object]) -> dict[str, Any]:
        """The name of the column or key of each field."""
        by_form: dict[str, object] = {}
        for name in names:
            by_form.setdefault(_SKIPPED.sub("", str(name).casefold()), name)
        known = {
            field: [each for each in forms.split() if each in by_form] for field, forms in self.fields.items()
        }
        return {field: by_form[forms[0]] for field, forms in known.items() if forms}


class TableRow(NamedTuple):
    """One row: its position for messages ("line 3"), and its values by field."""

    where: str
    values: Mapping[str, Any]


def read_text(
    path: Path, what: str, *, code: str = "not-text", most: int = TEXT_BYTES, any_bytes: bool = False
) -> str:
    """The text of a UTF-8 file of at most `most` bytes, without a byte order mark; `any_bytes` decodes others to surrogates."""
    if not is_file(path):
        text = f"there is no file {short(str(path), 60)!r} with {what}"
        raise UsageError(text, code="path-not-found", path=str(path))
    with reraise_corrupt(path, f"file with {what}", code=code), open_regular(path) as file:
        data = read_bytes(file, most, name=printable(str(path)), what=what, code=code)
    try:
        return data.decode("utf-8-sig", "surrogateescape" if any_bytes else "strict")
    except UnicodeDecodeError as error:
        text = f"{path} is not UTF-8 (byte {error.start + 1:,} is {data[error.start]:#04x}); save it as UTF-8"
        raise DataError(text, code="not-text", path=str(path)) from error


def read_csv(text: str, origin: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV text without empty lines, each with the number of its last line."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    limit = csv.field_size_limit(_MAX_CELL)
    try:
        yield from ((lines.line_num, row) for row in lines if row)
    except csv.Error as error:
        message = f"{printable(origin)} is not valid CSV ({error}, in line {lines.line_num:,}); check for a missing quotation mark"
        raise DataError(message, code="bad-csv", path=origin) from error
    finally:
        csv.field_size_limit(limit)


def delimiter_of(path: Path) -> str:
    """The delimiter of a .csv or .tsv file."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def read_table(path: Path, form: TableFormat) -> Iterator[TableRow]:
    """Iterate over the rows of a .csv, .tsv, .jsonl or .json file; files with another suffix are read as .jsonl.

    A JSON file has a list of objects, or an object of id -> value.

    Raises:
        UsageError: The file does not exist ("path-not-found").
        DataError: The file is damaged, too large or empty, or its lines have different numbers of columns.
    """
    text = read_text(path, form.what, code=form.code, any_bytes=form.any_names)
    origin, suffix = str(path), path.suffix.lower()
    if "\0" in text:
        raise form.error(origin, "it has NUL characters; expected a text file")
    if suffix in {".csv", ".tsv"}:
        rows = _csv_table(text, origin, delimiter_of(path), form)
    elif suffix == ".json":
        rows = _json_table(text, origin, form)
    else:
        rows = _json_lines_table(text, origin, form)
    first = next(rows, None)
    if first is None:
        raise form.error(origin, "it has no entries")
    yield from chain([first], rows)


def _csv_table(text: str, origin: str, delimiter: str, form: TableFormat) -> Iterator[TableRow]:
    rows = read_csv(text, origin, delimiter)
    first = next(rows, None)
    if first is None:
        return
    names = first[1]
    columns = {field: names.index(name) for field, name in form.fields_in(names).items()}
    main = columns.get(form.main)
    is_heading = not form.headless or (
        main is not None and (form.id in columns or main == 0 or len(names) != 2)
    )
    width, needed = len(names), "as in the header"
    if not is_heading:
        columns = {field: index for index, field in enumerate(form.headless)}
        width, needed = len(columns), f"{' and '.join(form.headless)}, or a header with these"
    for number, row in rows if is_heading else chain([first], rows):
        if not (row[0] or any(map(str.strip, row))):
            continue
        if len(row) != width:
            raise form.error(
                origin,
                f"line {number:,} has {len(row)} columns, expected {width} {needed}; cells with the separator need "
                "quotation marks",
            )
        yield TableRow(f"line {number:,}", {field: row[index] for field, index in columns.items()})


def _json_lines_table(text: str, origin: str, form: TableFormat) -> Iterator[TableRow]:
    # Not splitlines, since JSON may contain other Unicode line separators.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"line {number:,}"
            yield _json_row(form.parsed(line, origin, where), where, origin, form)


def _json_table(text: str, origin: str, form: TableFormat) -> Iterator[TableRow]:
    value = form.parsed(text, origin)
    if isinstance(value, dict):
        for key, each in value.items():
            yield TableRow(repr(short(key)), {form.id: key, form.field_of(each): each})
        return
    if not isinstance(value, list):
        raise form.error(origin, "expected a list of objects, or an object with an entry for each id")
    for number, each in enumerate(value, 1):
        yield _json_row(each, f"entry {number:,}", origin, form)


def _json_row(value: object, where: str, origin: str, form: TableFormat) -> TableRow:
    if not isinstance(value, dict):
        raise form.error(origin, f"{where} has {short(repr(value))}, expected an object with keys")
    return TableRow(where, {field: value[key] for field, key in form.fields_in(value).items()})


def read_records(source: object, form: TableFormat, hint: str = "") -> tuple[list[TableRow], str]:
    """Rows of a file, of a mapping of id -> value, or of values in order, and the name of their source."""
    origin = f"<{form.what}>"
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if (not path.suffix or path.suffix.lower() in _SUFFIXES) and not is_folder(path):
            return list(read_table(path, form)), str(source)
    elif isinstance(source, Mapping):
        values = [(f"[{key!r}]", {"id": str(key), form.field_of(each): each}) for key, each in source.items()]
        return [TableRow(*each) for each in values], origin
    elif isinstance(source, Iterable) and not isinstance(source, bytes) and getattr(source, "ndim", 1) == 1:
        return [TableRow(f"[{i}]", {form.field_of(each): each}) for i, each in enumerate(source)], origin
    given = source if isinstance(source, str | os.PathLike) else type(source).__name__
    needed = (
        "a .csv, .tsv, .jsonl or .json file with a record per image, a dictionary by id, or a list in order"
    )
    raise UsageError(f"{given} cannot be read as {form.what}; expected {needed}{hint}", code="records-kind")


def names_like(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names of images in the form with most matches in a table; the first of equally good forms.

    Forms are paths relative to the source, paths without suffix, and file names or stems if these are unique.
    """
    in_table, most, found = set(known), -1, list(names)
    for form in (plain_path, stem_of, file_of, lambda name: stem_of(file_of(name))):
        formed = [form(name) for name in names]
        n_known = len(in_table.intersection(formed))
        # Ambiguous forms would assign one value to two images.
        if n_known > most and (form is plain_path or len(set(formed)) == len(formed)):
            most, found = n_known, formed
        if most == len(formed):
            break
    return found


def unlike_numbers(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two sorted names that differ only in numbers, which have the other order, such as 10.png and 2.png.

    None if there are none, or if the names are not sorted, since somebody chose their order then. Names of one length, such as
    digests or padded numbers, are not compared.
    """
    last, found = dict[str, tuple[str, list[tuple[int, str]]]](), None
    for name in (_INDEX.sub("", each) for each in names):
        digits = [each.lstrip("0") for each in _DIGITS.findall(name)]
        form, numbers = _DIGITS.sub("0", name), list(zip(map(len, digits), digits, strict=True))
        before, least = last.get(form, ("", []))
        if name < before:
            return None
        if numbers < least and len(name) != len(before):
            found = found or (before, name)
        last[form] = name, numbers
    return found


T = TypeVar("T")


@dataclass(frozen=True)
class ImageValues(Generic[T]):
    """A value per image: by its name relative to the source, or in the order of the source, used images or not.

    `origin` is where they come from and `noun` what one is ("label"), for messages and codes. With `from_source`, the source itself
    has assigned them to its images.
    """

    values: Mapping[str, T] | Sequence[T]
    origin: str
    noun: str
    from_source: bool = False

    @property
    def by_name(self) -> Mapping[str, T] | None:
        """The values by name; None if they are in order."""
        return self.values if isinstance(self.values, Mapping) else None

    def match(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[T | None]:
        """The value of each image, by its name or by its row in a source of `total`; None for unknown names."""
        if isinstance(self.values, Mapping):
            return [self.values.get(key) for key in names_like(names, self.values)]
        needed = total if total is not None else max(rows, default=-1) + 1
        if len(self.values) < needed or (total is not None and len(self.values) != needed):
            raise DataError(
                f"{printable(self.origin)} has {len(self.values):,} {self.noun}s, but there are {needed:,} images, such as "
                f"{short(names[0] if names else 'none')!r}; expected one {self.noun} per image, in their order",
                code=f"{self.noun}-count",
                path=self.origin,
            )
        return [self.values[row] for row in rows]

    def match_all(self, names: Sequence[str], rows: Sequence[int], total: int | None) -> list[T]:
        """The same, or an error for images without a value ("prompts-missing")."""
        values = self.match(names, rows, total)
        missing = [name for name, value in zip(names, values, strict=True) if value is None]
        if missing:
            unused = min(set(self.by_name or ()) - set(names_like(names, self.by_name or ())), default=None)
            hint = f"; a {self.noun} without an image is of {short(unused)!r}" if unused is not None else ""
            raise DataError(
                f"{len(missing):,} of {len(names):,} images have no {self.noun} in {printable(self.origin)}: "
                f"{some(missing)}{hint}; names must be relative to the source of the images",
                code=f"{self.noun}s-missing",
                path=self.origin,
            )
        return [value for value in values if value is not None]

    def order_notices(self, names: Sequence[str]) -> tuple[Notice, ...]:
        """The notice of values in order for images with these names, whose numbers have another order, if they have."""
        pair = None if self.by_name is not None or self.from_source else unlike_numbers(names)
        if pair is None:
            return ()
        facts = {"what": f"{self.noun}s of {short(self.origin, 60)}", "noun": self.noun}
        return (notice("name-order", first=short(pair[0]), second=short(pair[1]), **facts),)

    def check_used(self, names: Sequence[str]) -> None:
        """Raise an error for values of images that are not among all `names` of the source ("prompts-unused")."""
        keys = set(names_like(names, self.by_name or ()))
        unused = [name for name in self.by_name or () if name not in keys]
        if unused:
            raise DataError(
                f"{printable(self.origin)} has {self.noun}s of {len(unused):,} images that are not in the source: "
                f"{some(unused)}; its images have names such as {short(names[0] if names else 'none')!r}",
                code=f"{self.noun}s-unused",
                path=self.origin,
            )


def values_by_id(ids: Sequence[str] | None, values: Sequence[T], origin: str, noun: str) -> ImageValues[T]:
    """Values of images by their ids, or in order where there are none."""
    by_name = None if ids is None else dict(zip(map(plain_path, ids), values, strict=True))
    return ImageValues(values if by_name is None else by_name, origin, noun)
