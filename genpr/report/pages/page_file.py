"""Pages on disk: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from genpr.storage import atomic_path, unwritable


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
