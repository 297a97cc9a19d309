"""Paths on the command line: patterns.

genpr expands patterns, so that thousands of shards can be given as one source in a fixed order.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from genpr.errors import DataError, UsageError

_MAX_PATHS = 1_000_000  # of one pattern
_GROUP = re.compile(r"\{([^{}]*)\}")
_NUMBERS = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")
_WILD = re.compile(r"[*?[]")
_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|pipe:)")


def expand(text: str) -> tuple[Path, ...] | None:
    """The existing paths that match a pattern, ordered by their bytes; None if the text is a path.

    `{000..127}` and `{a,b}` are expanded as in bash; `*`, `?` and `[]` as in `glob`, without hidden files. The name of an
    existing file is always a path. A folder that cannot be listed is an error.
    """
    if not text or os.path.lexists(text):
        return None
    if is_remote(text):
        message = f"{text} is a remote address, and genpr reads files only; download it (`hf download`), or mount it"
        raise UsageError(message, code="remote-source", path=text)
    alternatives = _without_braces(text)
    if len(alternatives) == 1 and not _WILD.search(alternatives[0]):
        return None
    return _existing(alternatives, text)


def is_remote(text: str) -> bool:
    """Whether a text is a remote address, or a command of WebDataset ("pipe:")."""
    return _REMOTE.match(text) is not None


def _without_braces(text: str) -> list[str]:
    """The expansions of braces; braces without a list or range, and outer braces, are kept."""
    pieces = _GROUP.split(text)  # every second piece was inside of braces
    choices, total = list[Sequence[str]](), 1
    for number, piece in enumerate(pieces):
        choices.append(_choices(piece) if number % 2 else [piece])
        total *= len(choices[-1])
        if total > _MAX_PATHS:
            message = f"the pattern {text!r} gives more than {_MAX_PATHS:,} paths; check the ranges"
            raise UsageError(message, code="bad-pattern", path=text)
    return list(map("".join, product(*choices)))


def _choices(inside: str) -> Sequence[str]:
    """The expansions of one pair of braces; the braces themselves if they hold neither a list nor a range."""
    numbers = _NUMBERS.fullmatch(inside)
    if numbers is None:
        return inside.split(",") if "," in inside else [f"{{{inside}}}"]
    first, last = sorted(map(int, numbers.groups()))
    is_padded = any(len(end) > 1 and end.startswith("0") for end in numbers.groups())
    width = max(map(len, numbers.groups())) if is_padded else 0
    values = range(first, last + 1)[: _MAX_PATHS + 1]  # one more, so that it is refused
    return [f"{number:0{width}d}" for number in values]


def _existing(alternatives: Sequence[str], text: str) -> tuple[Path, ...]:
    if any("**" in Path(each).parts for each in alternatives):
        message = f"the pattern {text!r} contains **, which is not expanded; write the levels, as in 'shards/*/*.tar'"
        raise UsageError(message, code="bad-pattern", path=text)
    existing, missing = set[str](), list[str]()
    for each in alternatives:
        matches = [each] if os.path.lexists(each) else _matches(each)
        existing.update(matches)
        if not matches:
            missing.append(each)
    if not existing:
        message = f"nothing matches the pattern {text!r}; check its spelling"
        raise UsageError(message, code="path-not-found", path=text)
    if missing:
        first = min(missing, key=os.fsencode)
        message = f"{len(missing):,} of {len(alternatives):,} paths of the pattern {text!r} do not exist, such as {first!r}"
        raise UsageError(message, code="path-not-found", path=first)
    return tuple(Path(each) for each in sorted(existing, key=os.fsencode))


def _matches(pattern: str) -> list[str]:
    """The paths that match a pattern without braces; a part that exists literally is not a pattern."""
    bases = [""]
    for part in Path(pattern).parts:
        matcher, matching = re.compile(fnmatch.translate(part)), list[str]()
        for base in bases:
            path = os.path.join(base, part)  # noqa: PTH118 - a Path would change the spelling
            if os.path.lexists(path):
                matching.append(path)
            elif _WILD.search(part):
                names = (name for name in _names_in(base) if part[0] == "." or name[0] != ".")
                matching += [os.path.join(base, name) for name in names if matcher.match(name)]  # noqa: PTH118
        bases = matching
    return bases


def _names_in(folder: str) -> list[str]:
    """The names in a folder; empty if it is not a folder."""
    try:
        return os.listdir(folder or ".")  # noqa: PTH208 - names, as they are sorted and joined
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        text = f"{folder}: the folder cannot be listed ({error.strerror}), so what matches would be missing"
        raise DataError(text, code="unreadable", path=folder) from error


def paths_of(text: str) -> tuple[Path, ...]:
    """The paths of a source: those that match a pattern, or a single one."""
    return expand(text) or (Path(text),)


def check_exists(text: str) -> None:
    """Refuse a path or pattern without a match ("path-not-found"), before anything is opened and without importing torch."""
    if expand(text) is None and (not text or not os.path.exists(Path(text))):  # noqa: PTH110 - a Path raises for long names
        raise path_not_found(text)


def path_not_found(text: str) -> UsageError:
    """The error for a path that does not exist."""
    return UsageError(f"{text!r} does not exist; check the spelling", code="path-not-found", path=text)
