"""A folder of parquet files, as `hf download` leaves them: `data/train-00000-of-00005.parquet`."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from genpr.images.folder import walk_files
from genpr.images.joined import JoinedSource, joined
from genpr.images.parquet import open_parquet
from genpr.images.saved_dataset import several_splits

SUFFIX = ".parquet"
_SPLIT = re.compile(r"(.+?)-\d+-of-\d+(?:-[0-9a-f]+)?\.parquet")


def parquet_files(folder: Path) -> list[str]:
    """Relative paths of the parquet files below a folder, ordered by their bytes."""
    return sorted((each for each in walk_files(folder) if each.lower().endswith(SUFFIX)), key=os.fsencode)


def open_parquet_files(folder: Path, files: list[str], name: str, choice: str | None = None) -> JoinedSource:
    """Open the parquet files of a folder as one source, if they are one split of one data set.

    Raises:
        UsageError: They are several splits ("several-splits"), or have several columns of images.
        DataError: One is damaged, or holds no images.
        ResourceError: pyarrow is not installed.
    """
    splits: dict[tuple[str, str], str] = {}
    for each in files:
        path = PurePosixPath(each)
        named = _SPLIT.fullmatch(path.name)
        if named is not None:
            split = named[1]
            pattern = str(folder / path.parent / f"{split}-*{SUFFIX}")
            splits.setdefault((str(path.parent), split), pattern)
    if len(splits) > 1:
        shown = [f"{parent}/{split}".removeprefix("./") for parent, split in splits]
        raise several_splits(name, shown, list(splits.values()))
    return joined(name, [folder / each for each in files], lambda path: open_parquet(path, str(path), choice))
