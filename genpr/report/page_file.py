"""Pages on disk: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from genpr.errors import UsageError
from genpr.storage import atomic_path, unwritable


def check_page_path(path: Path, *, option: str = "--html") -> None:
    """Refuse a place where no file can be written, before hours are spent on what it should hold.

    Raises:
        UsageError: Its folder does not exist ("path-not-found") or cannot be written ("unwritable"), or it is itself a
            folder ("is-a-folder").
    """
    if path.is_dir():
        raise UsageError(
            f"{option} needs a file, and {path} is a folder; try {path / 'report.html'}",
            code="is-a-folder",
            path=str(path),
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"there is no folder {path.parent} for {option} to write to; is it misspelt, or still to be made?",
            code="path-not-found",
            path=str(path),
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"{option} cannot write to the folder {path.parent}; is it somebody else's?",
            code="unwritable",
            path=str(path),
        )


def write_page(path: Path, page: str) -> None:
    """Write a page; one that was there is replaced at once, or stays as it was.

    Raises:
        ResourceError: It cannot be written.
    """
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
