"""What users give as labels, as numbers: one class per image, or the pairs of image and class of a set per image."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from genpr.errors import DataError, UsageError

Label = str | int
"""A class."""

Codes = NDArray[np.int64]
_SETS = (list, tuple, AbstractSet)


@dataclass(frozen=True, slots=True)
class Coded:
    """Labels of both sides as places in a list of classes.

    Attributes:
        classes: The classes, in order.
        n: Images.
        single: Whether each image has one label on either side.
        expected: For single labels the class of each image, (n,); else image times number of classes plus class, of each
            label once, ascending.
        predicted: The same.
    """

    classes: tuple[Label, ...]
    n: int
    single: bool
    expected: Codes
    predicted: Codes

    def part(self, inside: NDArray[np.bool_]) -> Coded:
        """The same of the images that (n,) bool `inside` names."""
        if self.single:
            both = self.expected[inside], self.predicted[inside]
        else:
            count, place = len(self.classes), np.cumsum(inside) - 1
            kept = [each[inside[each // count]] for each in (self.expected, self.predicted)]
            both = (
                place[kept[0] // count] * count + kept[0] % count,
                place[kept[1] // count] * count + kept[1] % count,
            )
        return Coded(self.classes, int(inside.sum()), self.single, *both)


def coded(expected: object, predicted: object, classes: Iterable[Label] | None) -> Coded:
    """Check and encode labels, as `genpr.metrics.label.labels.label_metrics` takes them.

    Raises:
        UsageError: One side is no sequence, or the classes are impossible.
        DataError: The sides do not fit each other, or hold what is no label.
    """
    sides = {"expected": _listed(expected, "expected"), "predicted": _listed(predicted, "predicted")}
    sizes = {name: len(side) for name, side in sides.items()}
    if sizes["expected"] != sizes["predicted"]:
        raise DataError(
            f"expected holds labels of {sizes['expected']:,} images and predicted of {sizes['predicted']:,}; needed is an "
            "entry for each image on both sides, in the same order",
            code="label-count",
        )
    n = sizes["expected"]
    if not n:
        raise DataError("there are no labels: expected and predicted are empty", code="no-labels")
    is_set = {name: _holds_sets(side, name) for name, side in sides.items()}
    single = not any(is_set.values())
    flat = {name: list(chain.from_iterable(side)) if is_set[name] else side for name, side in sides.items()}
    kinds = {kind for name, labels in flat.items() for kind in _kinds(labels, name)}
    given = None if classes is None else _given(classes)
    kinds |= set() if given is None else _kinds(given, "classes")
    if len(kinds) > 1:
        raise DataError(
            "labels are integers in one place and text in another, so that none would agree; give both the same",
            code="label-kind",
        )
    known, places = _places(flat, given)
    if not known:
        raise DataError(
            "there is no label on either side; give the classes that there could be", code="no-labels"
        )
    if single:
        return Coded(known, n, True, places["expected"], places["predicted"])
    pairs = {
        name: np.unique(_images(side, is_set=is_set[name]) * len(known) + places[name])
        for name, side in sides.items()
    }
    return Coded(known, n, False, pairs["expected"], pairs["predicted"])


def _listed(side: object, name: str) -> Sequence[Any] | NDArray[Any]:
    """A sequence with an entry per image; arrays of integers stay what they are."""
    if hasattr(side, "detach"):
        side = side.detach().cpu().numpy()
    if isinstance(side, np.ndarray):
        if side.ndim != 1:
            raise UsageError(
                f"{name} is an array of shape {side.shape}; needed is a label per image, or a set of labels per image. "
                "For one-hot rows pass x.argmax(axis=1), for indicator rows [np.flatnonzero(row).tolist() for row in x]",
                code="label-kind",
            )
        return side.astype(np.int64) if side.dtype.kind in "iu" and _fits(side) else side.tolist()
    if isinstance(side, str | bytes | Mapping | AbstractSet) or not isinstance(side, Collection):
        cause = (
            "which has no order of images"
            if isinstance(side, Mapping | AbstractSet)
            else "and not one label alone"
        )
        raise UsageError(
            f"{name} is a {type(side).__name__}; needed is a list with a label, or a set of labels, for each image, {cause}",
            code="label-kind",
        )
    return list(side)


def _fits(array: NDArray[Any]) -> bool:
    return array.dtype != np.uint64 or not len(array) or int(array.max()) < 2**63


def _holds_sets(side: Sequence[Any] | NDArray[Any], name: str) -> bool:
    """Whether the entries are sets of labels, and not labels."""
    if isinstance(side, np.ndarray):
        return False
    kinds = {kind: issubclass(kind, _SETS) for kind in set(map(type, side))}
    if len(set(kinds.values())) > 1:
        row = next(row for row, entry in enumerate(side) if not isinstance(entry, _SETS))
        raise DataError(
            f"{name} holds sets of labels, but {_shown(side[row])} at place {row}; write {{{_shown(side[row])}}}, a set of one, "
            "or a label alone for every image",
            code="label-kind",
        )
    return any(kinds.values())


def _kinds(labels: Sequence[Any] | NDArray[Any], name: str) -> set[str]:
    """Of which kinds the labels are: "integer", "text"."""
    if isinstance(labels, np.ndarray):
        return {"integer"} if len(labels) else set()
    found = set()
    for kind in set(map(type, labels)):
        if issubclass(kind, str):
            found.add("text")
        elif issubclass(kind, int | np.integer) and not issubclass(kind, bool | np.bool_):
            found.add("integer")
        else:
            _refuse(next(label for label in labels if type(label) is kind), name)
    if "text" in found and "" in labels:
        _refuse("", name)
    return found


def _refuse(label: object, name: str) -> NoReturn:
    if isinstance(label, float) and label != label:
        cause = "NaN is no class; leave the image out of both sides"
    elif label is None or label == "":
        cause = "an image without a label has the empty set, where the others have sets, or is left out of both sides"
    elif isinstance(label, bool | np.bool_):
        cause = "give the classes that are true as a set"
    else:
        cause = "round or rename it"
    raise DataError(
        f"{name} holds {_shown(label)}, and labels are text or integers; {cause}", code="label-kind"
    )


def _given(classes: Iterable[Label]) -> list[Label]:
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise UsageError(f"classes must be a list of labels, not {_shown(classes)}", code="bad-option")
    given = list(classes)
    if not given:
        raise UsageError("classes is empty; leave it out to take the labels that occur", code="bad-option")
    _kinds(given, "classes")
    seen = set[Label]()
    for label in given:
        if label in seen:
            raise UsageError(f"classes holds {_shown(label)} twice", code="bad-option")
        seen.add(label)
    return given


def _places(
    flat: Mapping[str, Sequence[Any] | NDArray[Any]], given: list[Label] | None
) -> tuple[tuple[Label, ...], dict[str, Codes]]:
    """The classes, and the place of each label among them."""
    # Whole columns of integers are looked up at once; a dictionary serves for everything else.
    counted = {
        name: np.unique(labels, return_inverse=True) if isinstance(labels, np.ndarray) else None
        for name, labels in flat.items()
    }
    distinct = {
        name: set(flat[name]) if found is None else set(found[0].tolist()) for name, found in counted.items()
    }
    classes = sorted(set().union(*distinct.values())) if given is None else given
    place = {label: number for number, label in enumerate(classes)}
    for name, labels in distinct.items():
        unknown = sorted(labels - place.keys())
        if unknown:
            shown = ", ".join(_shown(label) for label in unknown[:3]) + ("" if len(unknown) < 4 else ", ...")
            raise DataError(
                f"{name} holds {shown}, not among the {len(classes):,} classes given; add what is missing to classes",
                code="unknown-label",
            )
    places = {}
    for name, found in counted.items():
        if found is None:
            places[name] = np.fromiter((place[label] for label in flat[name]), np.int64, len(flat[name]))
        else:
            table = np.fromiter((place[label] for label in found[0].tolist()), np.int64, len(found[0]))
            places[name] = table[found[1]]
    return tuple(label if isinstance(label, str) else int(label) for label in classes), places


def _images(side: Sequence[Any] | NDArray[Any], *, is_set: bool) -> Codes:
    """The image that each label of a side belongs to."""
    rows = np.arange(len(side), dtype=np.int64)
    return np.repeat(rows, np.fromiter(map(len, side), np.int64, len(side))) if is_set else rows


def _shown(label: object) -> str:
    text = repr(label)
    return text if len(text) <= 40 else f"{text[:37]}..."
