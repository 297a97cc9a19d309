"""What is known of each image as a CSV file, for pandas and for spreadsheets.

One file: a row per fake, then a row per real. What a side has no number for stays empty, so that means over a column are
means over the side that has it. Names come from strangers, and a spreadsheet runs a cell that begins with = + - or @ as a
formula; such names get an apostrophe in front, and characters that cannot be seen, or that some spreadsheets split cells
at, are written as escapes. `name_in` undoes both.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import UsageError
from genpr.storage import atomic_path, check_place, unwritable

if TYPE_CHECKING:
    from genpr.evaluation.per_image import PerImageScores

COLUMNS = (
    *("side", "row", "name"),
    *("inside", "n_balls", "realism", "rarity", "rarity_percentile", "authentic", "asked", "recognised"),
    *("covered", "n_fakes", "radius"),
    *("nearest", "nearest_row", "nearest_distance"),
)
"""Of the file, in order: the image, what only fakes have, what only reals have, and the nearest image of the other side."""

# The last four are the full-width forms, which East Asian spreadsheets take for the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_MARK = "'"
# A comma inside quotes is safe anywhere; a semicolon splits cells where commas are decimal points, quotes or not.
_ESCAPED = {"\\": "\\\\", ";": "\\x3b"}
_ONLY_FAKE, _ONLY_REAL = 8, 3


def check_table(path: Path) -> None:
    """Refuse a path that the table cannot be written to.

    Raises:
        UsageError: It does not end in .csv, or no file can be written there.
    """
    if path.suffix.lower() != ".csv":
        raise UsageError(
            f"{path} must end in .csv, the only form of the table; pandas.read_csv(...).to_parquet(...) makes others of it",
            code="output-suffix",
        )
    check_place(path)


def write_samples(path: str | os.PathLike[str], evidence: PerImageScores) -> int:
    """Write what is known of each image to a CSV file, whole or not at all.

    Args:
        path: Ends in .csv; a file of that name is replaced.
        evidence: From `genpr.Evaluator.evidence`.

    Returns:
        How many rows it has, without the header.

    Raises:
        UsageError: As `check_table`.
        ResourceError: It cannot be written.
    """
    path = Path(path)
    check_table(path)
    try:
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(_fake_rows(evidence))
            writer.writerows(_real_rows(evidence))
    except OSError as error:
        raise unwritable(path, error) from error
    return len(evidence.fake) + len(evidence.real)


def cell_of(name: str) -> str:
    """A name as a cell that no spreadsheet runs, splits or hides a part of."""
    if name.isprintable() and not any(c in name for c in _ESCAPED):
        escaped = name
    else:
        escaped = "".join(_ESCAPED.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in name)
    is_formula = escaped.lstrip(" ").startswith(_FORMULA_STARTS)  # some programs drop spaces in front
    return _MARK + escaped if is_formula or escaped.startswith(_MARK) else escaped


def name_in(cell: str) -> str:
    """The name that `cell_of` made a cell of."""
    return cell.removeprefix(_MARK).encode("latin-1", "backslashreplace").decode("unicode_escape")


def _fake_rows(evidence: PerImageScores) -> Iterator[Sequence[object]]:
    fake = evidence.fake
    numbers = zip(
        fake.inside.astype(int).tolist(),
        fake.n_balls.tolist(),
        fake.realism.tolist(),
        map(_number, fake.rarity.tolist()),
        map(_number, fake.rarity_percentile.tolist()),
        fake.authentic.astype(int).tolist(),
        *_labels(evidence),
        strict=True,
    )
    nearest = _nearest(evidence.real.names, fake.nearest_real.tolist(), fake.nearest_real_distance.tolist())
    nothing = ("",) * _ONLY_REAL
    for row, (name, own, other) in enumerate(zip(fake.names, numbers, nearest, strict=True)):
        yield "fake", row, cell_of(name), *own, *nothing, *other


def _labels(evidence: PerImageScores) -> tuple[list[str], list[str]]:
    """What each fake was asked to be, and seen as; empty where that is not known."""
    if evidence.labels is None:
        return [""] * len(evidence.fake), [""] * len(evidence.fake)
    asked, recognised = (
        [cell_of(label or "") for label in labels]
        for labels in (evidence.labels.requested, evidence.labels.recognized)
    )
    return asked, recognised


def _real_rows(evidence: PerImageScores) -> Iterator[Sequence[object]]:
    real = evidence.real
    numbers = zip(real.covered.astype(int).tolist(), real.n_fakes.tolist(), real.radius.tolist(), strict=True)
    nearest = _nearest(evidence.fake.names, real.nearest_fake.tolist(), real.nearest_fake_distance.tolist())
    nothing = ("",) * _ONLY_FAKE
    for row, (name, own, other) in enumerate(zip(real.names, numbers, nearest, strict=True)):
        yield "real", row, cell_of(name), *nothing, *own, *other


def _nearest(
    names: Sequence[str], rows: Sequence[int], distances: Sequence[float]
) -> Iterator[tuple[str, int, float]]:
    for row, distance in zip(rows, distances, strict=True):
        yield cell_of(names[row]), row, distance


def _number(value: float) -> float | str:
    """Empty where there is none."""
    return "" if math.isnan(value) else value
