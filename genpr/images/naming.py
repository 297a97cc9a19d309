"""What files about images call them: relative paths, or file names alone, in one way of writing them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def plain_path(name: str) -> str:
    r"""With POSIX separators, without "./" in front.

    Example:
        >>> plain_path(r"cats\a.png"), plain_path("./a.png")
        ('cats/a.png', 'a.png')
    """
    return name.replace("\\", "/").removeprefix("./")


def file_of(name: str) -> str:
    """The name of a file without its folders."""
    return plain_path(name).rpartition("/")[2]


def stem_of(name: str) -> str:
    """A relative path without the suffix of its file.

    Example:
        >>> stem_of("v1.2/a.png"), stem_of("v1.2/a"), stem_of(".hidden")
        ('v1.2/a', 'v1.2/a', '.hidden')
    """
    folder, slash, file = plain_path(name).rpartition("/")
    stem = file.rpartition(".")[0]
    return f"{folder}{slash}{stem or file}"


def known_as(names: Sequence[str], known: Collection[str]) -> list[str]:
    """Under which name a file may know each image.

    Args:
        names: Of images, as paths relative to their source or by stems of these.
        known: The names in the file.

    Returns:
        Their paths; or their file names, where no path is known, no known name has a folder, and files differ.
    """
    wanted = [plain_path(name) for name in names]
    if not any(name in known for name in wanted) and not any("/" in name for name in known):
        files = [file_of(name) for name in wanted]
        if len(set(files)) == len(files):
            return files
    return wanted
