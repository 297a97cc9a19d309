"""Pages, tables and sweeps on disk, each file whole or not at all.

Names in CSV files come from strangers, and a spreadsheet runs a cell that begins with = + - or @ as a formula. Such names
get an apostrophe in front, and characters that cannot be seen, or at which some spreadsheets split cells, are written as
escapes. `name_in` undoes both.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import UsageError
from genpr.storage import atomic_path, check_place, replace_file, unwritable

if TYPE_CHECKING:
    from genpr.checkpoints.criterion import Objective
    from genpr.checkpoints.sweep import Sweep, SweepFolder
    from genpr.conditional.copies import Copies
    from genpr.conditional.prompt_ranking import ImageRank
    from genpr.evaluation.per_image import PerImageScores

COLUMNS = (
    *("side", "row", "name"),
    *("inside", "n_balls", "realism", "rarity", "rarity_percentile", "authentic", "asked", "recognized"),
    *("covered", "n_fakes", "radius"),
    *("nearest", "nearest_row", "nearest_distance"),
)
"""Of the table of images, in order: the image, what only fakes have, what only reals have, and the nearest image of the
other set."""

RANK_COLUMNS = ("row", "name", "prompt", "rank", "pool", "score", "winner", "winner_score")
"""Of the table of prompt ranks: the image, its own prompt that ranks highest, and the best prompt of another image."""

COPY_COLUMNS = ("nearest_train", "train_similarity")
"""Where training images were given, the nearest one, too."""

# The last four are the full-width forms, which East Asian spreadsheets take for the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_MARK = "'"
# A comma inside quotes is safe anywhere; a semicolon splits cells where commas are decimal points, quotes or not.
_ESCAPED = {"\\": "\\\\", ";": "\\x3b"}
_ONLY_FAKE, _ONLY_REAL = 8, 3


def write_page(path: Path, page: str) -> None:
    """Write a page; an existing one is replaced at once, or stays as it was.

    Raises:
        ResourceError: It cannot be written.
    """
    replace_file(path, page)


def write_sweep(sweep: Sweep, objective: Objective, folder: SweepFolder) -> None:
    """Write sweep.json, sweep.csv, sweep.png and sweep.svg, each whole or not at all.

    Raises:
        ResourceError: They cannot be written.
    """
    from genpr.report.sweep_plot import sweep_plot

    with folder.locked():
        replace_file(folder.path / "sweep.json", sweep.to_json(objective=objective, indent=1) + "\n")
        replace_file(folder.path / "sweep.csv", sweep.to_csv())
        replace_file(folder.path / "sweep.png", sweep_plot(sweep, objective, form="png"))
        replace_file(folder.path / "sweep.svg", sweep_plot(sweep, objective, form="svg"))


def check_table(path: Path) -> None:
    """Refuse a path that a table cannot be written to.

    Raises:
        UsageError: It does not end in .csv, or no file can be written there.
    """
    if path.suffix.lower() != ".csv":
        raise UsageError(
            f"{path} must end in .csv, the only format of the table; pandas.read_csv(...).to_parquet(...) converts it",
            code="output-suffix",
        )
    check_place(path)


def write_samples(path: str | os.PathLike[str], scores: PerImageScores) -> int:
    """Write what is known of each image to a CSV file: a row per fake, then a row per real.

    What a set has no number for stays empty, so that means over a column are means over the set that has it.

    Args:
        path: Ends in .csv; a file of that name is replaced.
        scores: From `genpr.Evaluator.evidence`.

    Returns:
        The number of rows, without the header.

    Raises:
        UsageError: As `check_table`.
        ResourceError: It cannot be written.
    """
    _write_table(Path(path), COLUMNS, chain(_fake_rows(scores), _real_rows(scores)))
    return len(scores.fake) + len(scores.real)


def write_ranks(path: Path, ranks: Sequence[ImageRank], copies: Copies | None = None) -> int:
    """Write the prompt ranks of each image to a CSV file.

    Args:
        path: Ends in .csv; a file of that name is replaced.
        ranks: One per image.
        copies: Which training image is nearest to each; None for no such columns.

    Returns:
        The number of rows, without the header.

    Raises:
        UsageError: As `check_table`.
        ResourceError: It cannot be written.
    """
    _write_table(path, RANK_COLUMNS + COPY_COLUMNS * (copies is not None), _rank_rows(ranks, copies))
    return len(ranks)


def _rank_rows(ranks: Sequence[ImageRank], copies: Copies | None) -> Iterator[list[object]]:
    for each in ranks:
        row = [each.row, cell_of(each.image), cell_of(each.prompt), each.rank, each.pool, each.score]
        row += [cell_of(each.winner), each.winner_score]
        if copies is not None:
            nearest = copies.found.nearest[each.row]
            row += [cell_of(copies.names[nearest]), float(copies.found.similarity[each.row])]
        yield row


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    check_table(path)
    try:
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
    except OSError as error:
        raise unwritable(path, error) from error


def cell_of(name: str) -> str:
    """A name as a cell that no spreadsheet runs, splits or hides a part of."""
    escaped = name
    if not name.isprintable() or any(c in name for c in _ESCAPED):
        escaped = "".join(_ESCAPED.get(c) or (c if c.isprintable() else ascii(c)[1:-1]) for c in name)
    is_formula = escaped.lstrip(" ").startswith(_FORMULA_STARTS)  # some programs drop spaces in front
    return _MARK + escaped if is_formula or escaped.startswith(_MARK) else escaped


def name_in(cell: str) -> str:
    """The name that `cell_of` made a cell of."""
    return cell.removeprefix(_MARK).encode("latin-1", "backslashreplace").decode("unicode_escape")


def _fake_rows(scores: PerImageScores) -> Iterator[list[object]]:
    fake, n = scores.fake, len(scores.fake)
    labels: tuple[Sequence[str | None], ...] = ([None] * n, [None] * n)
    if scores.labels is not None:
        labels = (scores.labels.requested, scores.labels.recognized)
    columns = zip(
        fake.names,
        fake.inside.astype(int).tolist(),
        fake.n_balls.tolist(),
        fake.realism.tolist(),
        *(
            ["" if math.isnan(each) else each for each in column.tolist()]
            for column in (fake.rarity, fake.rarity_percentile)
        ),
        fake.authentic.astype(int).tolist(),
        *([cell_of(label or "") for label in column] for column in labels),
        *_nearest(scores.real.names, fake.nearest_real.tolist()),
        fake.nearest_real_distance.tolist(),
        strict=True,
    )
    for row, (name, *own, nearest, nearest_row, distance) in enumerate(columns):
        yield ["fake", row, cell_of(name), *own, *[""] * _ONLY_REAL, nearest, nearest_row, distance]


def _real_rows(scores: PerImageScores) -> Iterator[list[object]]:
    real = scores.real
    columns = zip(
        real.names,
        real.covered.astype(int).tolist(),
        real.n_fakes.tolist(),
        real.radius.tolist(),
        *_nearest(scores.fake.names, real.nearest_fake.tolist()),
        real.nearest_fake_distance.tolist(),
        strict=True,
    )
    for row, (name, *own, nearest, nearest_row, distance) in enumerate(columns):
        yield ["real", row, cell_of(name), *[""] * _ONLY_FAKE, *own, nearest, nearest_row, distance]


def _nearest(names: Sequence[str], rows: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    return [cell_of(names[row]) for row in rows], rows
