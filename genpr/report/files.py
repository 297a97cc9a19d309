"""Write tables and sweeps to disk atomically.

Names in CSV files come from users, and spreadsheets run a cell that begins with = + - or @ as a formula. Such names get an
apostrophe in front. Unprintable characters and the semicolon, a separator in some spreadsheets, are escaped. `name_in`
reverses both.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.errors import printable
from genpr.evaluation.options import DIVERSITY_METRICS, PAIR_METRICS
from genpr.storage import (
    atomic_path,
    check_output,
    check_outside,
    marked_by,
    replace_file,
    report_write_errors,
)

if TYPE_CHECKING:
    from genpr.checkpoints.sweep import Objective, Sweep, SweepFolder
    from genpr.conditional.prompt_ranking import ImageRank
    from genpr.evaluation.per_image import PerImageScores
    from genpr.evaluation.reconstruction import Reconstructed
    from genpr.evaluation.result import Result

_SCORES = ("inside", "n_balls", "realism", "rarity", "rarity_percentile", "authentic")
_OF_FAKES = (*_SCORES, "requested", "recognized")
_OF_REALS = ("covered", "n_fakes", "radius")
COLUMNS = ("side", "row", "name", *_OF_FAKES, *_OF_REALS, "nearest", "nearest_row", "nearest_distance")
"""Columns of the table of images: the image, values of fakes, values of reals, and the nearest image of the other set."""

# The last four are full-width forms, which East Asian spreadsheets treat like the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_MARK = "'"
_ESCAPED = str.maketrans({"\\": "\\\\", ";": "\\x3b"})
_RANK_COLUMNS = ("row", "name", "prompt", "rank", "pool", "score", "winner", "winner_score")
_PAIR_COLUMNS = ("row", "original", "reconstruction")
_GROUP_COLUMNS = {"group", "images", "pairs", *DIVERSITY_METRICS}
SWEEP_FILES = ("sweep.json", "sweep.png")


@marked_by
def is_own_table(head: bytes) -> bool:
    """Whether a file has the columns of samples, ranks, pairs or groups; with further ones, the table is of the user."""
    columns = tuple(head.partition(b"\n")[0].decode(errors="replace").split(","))
    pairs, values = columns[: len(_PAIR_COLUMNS)], set(columns[len(_PAIR_COLUMNS) :])
    is_of_pairs = pairs == _PAIR_COLUMNS and set() < values <= set(PAIR_METRICS)
    is_of_groups = columns[:3] == ("group", "images", "pairs")
    is_of_groups &= {name.removeprefix("real_") for name in columns} <= _GROUP_COLUMNS
    return is_of_pairs or is_of_groups or columns in {COLUMNS, _RANK_COLUMNS}


def check_sweep(folder: Path, inputs: Iterable[Path] = (), *, overwrite: bool = False) -> None:
    """Refuse a folder in which `write_sweep` would replace other files, or that lies in an input.

    Files of an earlier sweep are recognized by its sweep.json.
    """
    inputs = tuple(inputs)
    check_outside(folder, inputs)
    is_record = marked_by(lambda head: head.startswith(b'{\n "schema": "genpr.sweep/'))
    for name in SWEEP_FILES if folder.is_dir() else ():
        check_output(
            folder / name,
            (),
            lambda path: is_record(path.with_name(SWEEP_FILES[0])),
            inputs=inputs,
            overwrite=overwrite,
        )


def write_sweep(sweep: Sweep, objective: Objective, folder: SweepFolder, *, overwrite: bool = False) -> None:
    """Write sweep.json and sweep.png, each atomically; other files are kept unless `overwrite`."""
    from genpr.report.plots import sweep_plot

    check_sweep(folder.path, overwrite=overwrite)
    with folder.locked():
        replace_file(folder.path / "sweep.json", sweep.to_json(objective=objective, indent=1) + "\n")
        replace_file(folder.path / "sweep.png", sweep_plot(sweep, objective))


def write_samples(path: str | os.PathLike[str], scores: PerImageScores, *, overwrite: bool = False) -> int:
    """Write a CSV file with a row per fake, then a row per real, and return the number of rows.

    Columns that do not apply to a set are empty, so the mean of a column is over the other set only.

    Args:
        path: The file, with suffix .csv, outside of both sets. An earlier table of genpr is replaced.
        scores: From `genpr.Evaluator.evidence`.
        overwrite: Replace any other file, too.

    Raises:
        UsageError: The path is another file, a link, one of the sets or in one, or cannot be written.
    """
    check_outside(Path(path), [scores.result.real.source, scores.result.fake.source])
    _write_table(Path(path), COLUMNS, _sample_rows(scores), overwrite=overwrite)
    return len(scores.fake) + len(scores.real)


def write_ranks(path: Path, ranks: Sequence[ImageRank], *, overwrite: bool = False) -> int:
    """Write a CSV file with the prompt ranks of each image, and return the number of rows.

    `winner` is the best prompt of another image.
    """
    values = attrgetter("row", "image", *_RANK_COLUMNS[2:])
    _write_table(path, _RANK_COLUMNS, map(values, ranks), overwrite=overwrite)
    return len(ranks)


def write_pairs(path: Path, found: Reconstructed, *, overwrite: bool = False) -> int:
    """Write a CSV file with the values of each pair, and return the number of rows; `inf` is the PSNR of identical pairs."""
    names, n = (side.names for side in found.sources), len(found.sources[0])
    rows = zip(range(n), *names, *(column.tolist() for column in found.values.values()), strict=True)
    _write_table(path, [*_PAIR_COLUMNS, *found.values], rows, overwrite=overwrite)
    return n


def write_groups(path: Path, result: Result, *, overwrite: bool = False) -> int:
    """Write a CSV file with the values of each group, and return the number of rows; cells of missing reals are empty."""
    groups = {} if result.diversity is None else result.diversity.groups
    heads = dict.fromkeys(name for row in groups.values() for name in row)
    rows = ([group, *(row.get(name, "") for name in heads)] for group, row in groups.items())
    _write_table(path, ["group", *heads], rows, overwrite=overwrite)
    return len(groups)


def _write_table(
    path: Path, columns: Sequence[str], rows: Iterable[Iterable[object]], *, overwrite: bool
) -> None:
    """Write a CSV file; all texts are written as `cell_of` gives them."""
    check_output(path, (".csv",), is_own_table, overwrite=overwrite)
    with (
        report_write_errors(path),
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell_of(each) if isinstance(each, str) else each for each in row] for row in rows)


def cell_of(name: str) -> str:
    """A name as a cell that spreadsheets neither run, split nor truncate."""
    escaped = printable(name.translate(_ESCAPED))
    is_formula = escaped.lstrip(" ").startswith(_FORMULA_STARTS)  # some programs drop leading spaces
    return _MARK + escaped if is_formula or escaped.startswith(_MARK) else escaped


def name_in(cell: str) -> str:
    """Inverse of `cell_of`."""
    return cell.removeprefix(_MARK).encode("latin-1", "backslashreplace").decode("unicode_escape")


def _sample_rows(scores: PerImageScores) -> Iterator[list[object]]:
    fake, real, labels = scores.fake, scores.real, scores.labels
    for row in range(len(fake)):
        nearest = int(fake.nearest_real[row])
        rarities = (float(each[row]) for each in (fake.rarity, fake.rarity_percentile))
        classes = ("", "") if labels is None else (labels.requested[row] or "", labels.recognized[row] or "")
        own = [
            *(int(fake.inside[row]), int(fake.n_balls[row]), float(fake.realism[row])),
            *("" if math.isnan(each) else each for each in rarities),
            *(int(fake.authentic[row]), *classes),
        ]
        other = [real.names[nearest], nearest, float(fake.nearest_real_distance[row])]
        yield ["fake", row, fake.names[row], *own, *[""] * len(_OF_REALS), *other]
    for row in range(len(real)):
        nearest = int(real.nearest_fake[row])
        own = [int(real.covered[row]), int(real.n_fakes[row]), float(real.radius[row])]
        other = [fake.names[nearest], nearest, float(real.nearest_fake_distance[row])]
        yield ["real", row, real.names[row], *[""] * len(_OF_FAKES), *own, *other]
