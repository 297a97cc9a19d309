"""Images whose own prompt was not ranked first, as text; and every image's ranks as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.evaluation.result import AlignmentSummary
from genpr.report.text.layout import WIDTH, shortened
from genpr.report.text.sample_table import cell_of, check_table
from genpr.storage import atomic_path, unwritable

if TYPE_CHECKING:
    from genpr.conditional.copies import Copies
    from genpr.conditional.prompt_ranking import ImageRank

COLUMNS = ("row", "name", "prompt", "rank", "pool", "score", "winner", "winner_score")
"""Of the file: the image, its own prompt that it ranked highest, and the prompt of another image that it did."""

COPY_COLUMNS = ("nearest_train", "train_similarity")
"""Where training images were given, the nearest one, too."""

_FEW = 8


def failures_list(found: AlignmentSummary) -> str:
    """The worst images, each with its prompt and the one that it ranked first; empty where there are none."""
    if not found.failures:
        return ""
    few = found.failures[:_FEW]
    more = found.n_failures - len(few)
    lines = [f"worst images by the rank of their own prompt among {found.pool:,}"]
    for each in few:
        lines += [
            f"{each.rank:>7g}  {shortened(each.image, WIDTH - 9)}",
            _line("asked", each.score, each.prompt),
            _line("first", each.winner_score, each.winner),
        ]
    if more:
        lines.append(f"{'':9}and {more:,} more that do not rank their own first")
    return "\n".join(lines)


def _line(what: str, cosine: float, prompt: str) -> str:
    start = f"{'':9}{what} {cosine:6.3f}  "
    return start + shortened(prompt, WIDTH - len(start))


def write_ranks(path: Path, ranks: Sequence[ImageRank], copies: Copies | None = None) -> int:
    """Write what each image ranked to a CSV file, whole or not at all.

    Args:
        path: Ends in .csv; a file of that name is replaced.
        ranks: One per image.
        copies: Which training image is nearest to each; None for no such columns.

    Returns:
        How many rows it has, without the header.

    Raises:
        UsageError: As `check_table`.
        ResourceError: It cannot be written.
    """
    check_table(path)
    try:
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMNS, *(COPY_COLUMNS if copies else ())])
            for each in ranks:
                own = each.row, cell_of(each.image), cell_of(each.prompt), each.rank, each.pool, each.score
                writer.writerow([*own, cell_of(each.winner), each.winner_score, *_nearest(copies, each.row)])
    except OSError as error:
        raise unwritable(path, error) from error
    return len(ranks)


def _nearest(copies: Copies | None, row: int) -> tuple[object, ...]:
    if copies is None:
        return ()
    return cell_of(copies.names[copies.found.nearest[row]]), float(copies.found.similarity[row])
