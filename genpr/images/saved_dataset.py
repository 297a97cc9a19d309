"""Arrow files, and the folders of them that `datasets.Dataset.save_to_disk` writes: their own bytes, our decoder."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from genpr.errors import DataError, UsageError, short
from genpr.images.arrow import (
    Columns,
    arrow_damage_reported,
    bytes_of,
    columns_of,
    given,
    labels_in,
    load_pyarrow,
)
from genpr.images.arrow_buffers import check_buffers
from genpr.images.item import ImageSource, Item, StatedLabels, names_of_places, printable
from genpr.images.joined import JoinedSource, joined
from genpr.limits import SMALL_TEXT_BYTES, parse_json, read_bytes
from genpr.storage import open_regular

_STATE, _SPLITS = "state.json", "dataset_dict.json"


@dataclass(frozen=True)
class ArrowSource(ImageSource):
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

    def __iter__(self) -> Iterator[Item]:
        return self.pick(range(len(self)))

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places; others are not touched."""
        ends = list(accumulate(map(len, self.images)))
        for place in places:
            number = bisect_right(ends, place)
            piece = self.images[number]
            yield Item(
                f"[{place}]", partial(self._read, piece, place - ends[number] + len(piece), f"[{place}]")
            )

    def _read(self, piece: Any, row: int, name: str) -> bytes:  # noqa: ANN401 - pyarrow has no types
        return given(bytes_of(piece[row], name, is_struct=self.columns.is_struct))

    def names(self) -> Iterator[str]:
        """Row numbers."""
        return names_of_places(len(self))

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
    pa = load_pyarrow(path)
    with arrow_damage_reported(path, "arrow"):
        mapped = pa.memory_map(os.fsencode(path))
        check_buffers(memoryview(mapped.read_buffer()), name)
        mapped.seek(0)
        has_footer = mapped.read(6) == b"ARROW1"
        mapped.seek(0)
        file = pa.ipc.open_file(mapped) if has_footer else pa.ipc.open_stream(mapped)
        columns = columns_of(file.schema, choice, name)
        if has_footer:
            batches = [file.get_batch(number) for number in range(file.num_record_batches)]
        else:
            batches = list(file)
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


def is_saved_dataset(folder: Path) -> bool:
    """Whether a folder is what `save_to_disk` writes, of one data set or of several splits."""
    return any((folder / each).is_file() for each in (_STATE, _SPLITS))


def open_saved_dataset(folder: Path, name: str, choice: str | None = None) -> JoinedSource:
    """Open the Arrow files that a saved data set lists, in its order.

    Raises:
        UsageError: It holds several splits ("several-splits"), or several columns of images.
        DataError: It is damaged, or holds no images.
    """
    if (folder / _SPLITS).is_file() and not (folder / _STATE).is_file():
        splits = sorted(each.name for each in folder.iterdir() if (each / _STATE).is_file())
        if len(splits) == 1:
            return open_saved_dataset(folder / splits[0], name, choice)
        raise several_splits(name, splits, [str(folder / each) for each in splits])
    files = [folder / each for each in _listed(folder / _STATE)]
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        what = (
            f"{len(missing)} of its {len(files)} files are missing, the first {printable(missing[0].name)}"
            if missing
            else "it lists no files"
        )
        raise _damaged(folder, f"{what}; was it copied in part?")
    return joined(name, files, lambda path: open_arrow(path, str(path), choice))


def _listed(state: Path) -> Sequence[str]:
    """The names of the files of a saved data set."""
    with arrow_damage_reported(state, "arrow"):
        with open_regular(state) as file:
            data = read_bytes(
                file, SMALL_TEXT_BYTES, name=str(state), what="the state of a data set", code="arrow-damaged"
            )
        record = parse_json(data)
        if not isinstance(record, dict):
            raise _damaged(state.parent, f"{_STATE} is something else")
        if record.get("_indices_files"):
            raise _damaged(
                state.parent,
                "it selects rows by a file of indices, as `datasets` did before version 2; save it again",
            )
        names = [entry["filename"] for entry in record["_data_files"]]
    strange = [each for each in names if not isinstance(each, str) or Path(each).name != each]
    if strange:
        raise _damaged(state.parent, f"{_STATE} names {short(repr(strange[0]))}, which is no file in it")
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


def _damaged(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{printable(str(folder))} is no intact saved data set ({reason})",
        code="arrow-damaged",
        path=str(folder),
    )
