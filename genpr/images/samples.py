"""WebDataset's samples: files of one key belong together, and beside an image may lie its class.

The key of `train/0007.seg.png` is `train/0007`: the path up to the first dot of the file's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from genpr.errors import DataError
from genpr.images.item import StatedLabels, is_hidden, printable
from genpr.limits import ARCHIVED_PARSED_BYTES, parse_json

_LABEL_KEYS = ("label", "class", "cls")  # of a .json file, the first that is there
_MOST_TEXT = 1000  # characters of the name of a class


def key_of(name: str) -> str:
    """What the files of one sample share.

    Example:
        >>> key_of("train.v1/0007.seg.png"), key_of("0007")
        ('train.v1/0007', '0007')
    """
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"


def is_note(name: str) -> bool:
    """Whether a file may hold the label of a sample."""
    return name.endswith((".cls", ".json")) and not is_hidden(name)


def labels_by_key(notes: Iterable[tuple[str, Callable[[], bytes]]], origin: str) -> dict[str, object]:
    """The labels of samples.

    Args:
        notes: Names of files, and what reads them.
        origin: The archive, for messages.

    Returns:
        An integer, or the name of a class, by key. A `.cls` file counts before a `.json` one.

    Raises:
        DataError: One of them is broken ("labels-damaged").
    """
    found: dict[str, object] = {}
    weak: dict[str, object] = {}
    for name, read in notes:
        if name.endswith(".cls"):
            found[key_of(name)] = _in_cls(read(), name, origin)
        elif (label := _in_json(read(), name, origin)) is not None:
            weak[key_of(name)] = label
    return weak | found


def labels_of(names: Iterable[str], labels: Mapping[str, object], origin: str) -> StatedLabels | None:
    """The label of each image by its key; None where no image has one."""
    found = [labels.get(key_of(name)) for name in names] if labels else []
    if all(label is None for label in found):
        return None
    return StatedLabels(found, f"labels in {origin}")


def _in_cls(data: bytes, name: str, origin: str) -> object:
    text = data[: 4 * _MOST_TEXT + 1].decode("utf-8", "replace").strip()
    if not text or len(text) > _MOST_TEXT or "\ufffd" in text:
        raise _damaged(name, origin, "it holds no integer, and no name of a class")
    try:
        return int(text)
    except ValueError:
        return text


def _in_json(data: bytes, name: str, origin: str) -> object:
    try:
        record = parse_json(data, most=ARCHIVED_PARSED_BYTES)
    except ValueError as error:
        raise _damaged(name, origin, str(error)) from error
    if not isinstance(record, dict):
        return None
    label = next((record[key] for key in _LABEL_KEYS if key in record), None)
    return label if isinstance(label, str | int) and not isinstance(label, bool) else None


def _damaged(name: str, origin: str, reason: str) -> DataError:
    return DataError(
        f"{printable(name)} in {printable(origin)} is no label ({printable(reason)}); was it written by something else?",
        code="labels-damaged",
        path=name,
    )
