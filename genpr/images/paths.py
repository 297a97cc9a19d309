"""Paths as the user writes them: patterns, and columns behind "#".

Patterns are expanded by genpr: `{000..127}` and `{a,b}` as shells and WebDataset write them, and `*`, `?`, `[]`.
Quoted from the shell, a pattern is one source, so that thousands of shards fit on a command line and are read in one
order everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from itertools import product
from math import prod
from pathlib import Path

from genpr.errors import DataError, UsageError, printable

STDIN = "-"
_MOST_PATHS = 1_000_000  # of one pattern; more are a slip of the pen, and would fill the memory
_MOST_DIGITS = 18
_LONGEST = 4096  # characters of one path with wildcards, as no system has longer paths; translating them is quadratic
_GROUP = re.compile(r"\{([^{}]*)\}")
_NUMBERS = re.compile(r"([0-9]+)\.\.([0-9]+)(?:\.\.([0-9]+))?")
_LETTERS = re.compile(r"([a-z])\.\.([a-z])|([A-Z])\.\.([A-Z])")
_WILD = re.compile(r"[*?[]")
_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|pipe:)")


def expand(text: str) -> tuple[Path, ...] | None:
    """The paths that a pattern stands for; None if the text is no pattern but a path, whether or not it exists.

    What exists under that very name is a path, whatever is in its name. `*`, `?` and `[]` match within one name and no
    hidden file; links are followed, but nothing below a match is looked into.

    Args:
        text: As the user wrote it.

    Returns:
        Existing files and folders, each once, ordered by the bytes of their paths.

    Raises:
        UsageError: Nothing matches, or braces name what does not exist ("path-not-found"); it is a remote address
            ("remote-source"); or it names too many ("bad-pattern").
        DataError: A folder cannot be listed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b-1.tar", "b-0.tar", "other.txt"):
        ...         _ = Path(folder, name).write_bytes(b"")
        ...     [path.name for path in expand(f"{folder}/b-{{0..1}}.tar") or ()]
        ['b-0.tar', 'b-1.tar']
    """
    if not text or os.path.lexists(text):
        return None
    if is_remote(text):
        how = (
            "download it first with `hf download`"
            if text.startswith("hf://")
            else "download it, or mount where it lies"
        )
        raise UsageError(
            f"{printable(text)} is a remote address, and genpr reads files only; {how}, and give the path",
            code="remote-source",
            path=text,
        )
    alternatives = _without_braces(text)
    if len(alternatives) == 1 and not _WILD.search(alternatives[0]):
        return None
    return _existing(alternatives, text)


def split_choice(text: str) -> tuple[str, str | None]:
    """A path or pattern, and what is written behind "#": a column of parquet or Arrow files; None if nothing is.

    Example:
        >>> split_choice("data/*.parquet#photo"), split_choice("issue#9.zip")
        (('data/*.parquet', 'photo'), ('issue#9.zip', None))
    """
    base, sign, choice = text.rpartition("#")
    if not sign or not base or os.path.lexists(text):
        return text, None
    is_meant = base.lower().endswith((".parquet", ".arrow")) or Path(base).is_dir() or _WILD.search(base)
    return (base, choice) if is_meant else (text, None)


def is_remote(text: str) -> bool:
    """Whether a text is the address of something on another machine, or a command to run."""
    return _REMOTE.match(text) is not None


def _without_braces(text: str) -> list[str]:
    """The texts that braces stand for; those that hold neither list nor range stay as they are, and so do outer ones."""
    pieces = _GROUP.split(text)  # what is inside of braces comes second, fourth and so on
    choices = [
        (_choices(piece, text) or [f"{{{piece}}}"]) if number % 2 else [piece]
        for number, piece in enumerate(pieces)
    ]
    if prod(map(len, choices)) > _MOST_PATHS:
        raise _too_many(text)
    return list(map("".join, product(*choices)))


def _choices(inside: str, text: str) -> Sequence[str] | None:
    """What one pair of braces stands for; None if it is no list and no range."""
    numbers, letters = _NUMBERS.fullmatch(inside), _LETTERS.fullmatch(inside)
    if numbers is not None:
        if max(map(len, numbers.groups(""))) > _MOST_DIGITS:
            raise _too_many(text)
        first, last, step = int(numbers[1]), int(numbers[2]), max(1, int(numbers[3] or 1))
        if abs(last - first) // step >= _MOST_PATHS:
            raise _too_many(text)
        padded = any(len(end) > 1 and end.startswith("0") for end in numbers.group(1, 2))
        width = max(len(numbers[1]), len(numbers[2])) if padded else 0
        way = 1 if first <= last else -1
        return [f"{number:0{width}d}" for number in range(first, last + way, way * step)]
    if letters is not None:
        first, last = sorted(ord(end) for end in letters.groups() if end)
        return [chr(code) for code in range(first, last + 1)]
    return inside.split(",") if "," in inside else None


def _too_many(text: str) -> UsageError:
    return UsageError(
        f"the pattern {printable(text)!r} stands for more than {_MOST_PATHS:,} paths; is a range misspelt?",
        code="bad-pattern",
        path=text,
    )


def _existing(alternatives: Sequence[str], text: str) -> tuple[Path, ...]:
    found, missing = set[str](), list[str]()
    for each in alternatives:
        matches = (
            [each] if os.path.lexists(each) else list(_matches(each, text)) if _WILD.search(each) else []
        )
        found.update(matches)
        if not matches:
            missing.append(each)
    if not found:
        raise UsageError(
            f"nothing matches the pattern {printable(text)!r}; is it misspelt?",
            code="path-not-found",
            path=text,
        )
    if missing:
        first = min(missing, key=os.fsencode)
        raise UsageError(
            f"{len(missing):,} of the {len(alternatives):,} that {printable(text)!r} names do not exist; "
            f"the first: {printable(first)!r}",
            code="path-not-found",
            path=first,
        )
    return tuple(Path(each) for each in sorted(found, key=os.fsencode))


def _matches(pattern: str, text: str) -> Iterator[str]:
    """The paths that match a pattern without braces; a part of it that exists as it is written is no pattern."""
    if len(pattern) > _LONGEST:
        raise UsageError(
            f"a pattern has {len(pattern):,} characters, more than the {_LONGEST:,} of the longest path; make it shorter",
            code="bad-pattern",
            path=text,
        )
    parts = Path(pattern).parts
    if "**" in parts:
        raise UsageError(
            f"{printable(text)!r}: ** is not expanded; name the levels, as in 'shards/*/*.tar', or the folder alone",
            code="bad-pattern",
            path=text,
        )
    bases = [""]
    for part in parts:
        matcher = re.compile(translate(part))
        found = []
        for base in bases:
            if os.path.lexists(os.path.join(base, part)):  # noqa: PTH118 - a Path would lose how it is spelt
                found.append(os.path.join(base, part))  # noqa: PTH118
            elif _WILD.search(part):
                with_hidden = part.startswith(".")
                names = (name for name in _names_in(base) if with_hidden or not name.startswith("."))
                found += [os.path.join(base, name) for name in names if matcher.match(name)]  # noqa: PTH118
        bases = found
    return iter(bases)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")  # noqa: PTH208 - names, as they are sorted and joined
    except NotADirectoryError:
        return []
    except OSError as error:
        raise DataError(
            f"{printable(folder)}: the folder cannot be listed ({error.strerror}), so what matches would be missing",
            code="unreadable",
            path=folder,
        ) from error


def check_there(text: str) -> None:
    """Refuse a path or pattern of nothing, before anything is opened and without importing torch.

    Raises:
        UsageError: There is nothing ("path-not-found").
    """
    text, _ = split_choice(text)
    if text != STDIN and expand(text) is None and (not text or not os.path.exists(Path(text))):  # noqa: PTH110 - a Path raises for long names
        raise nothing_at(text)


def nothing_at(text: str) -> UsageError:
    """The error for a path of nothing."""
    return UsageError(
        f"there is nothing at {printable(text)!r}; check the spelling", code="path-not-found", path=text
    )
