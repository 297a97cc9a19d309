"""All errors of genpr, each with a stable code and an exit code.

    GenprError (1)
    ├── UsageError (2)          a missing path, an unknown name or option
    ├── DataError (3)           data that cannot be scored
    │   ├── ImageError          an image that cannot be used, with its `path` and the reason as `code`
    │   ├── BadImagesError      a source with unusable images; `bad` lists all of them
    │   └── FeatureError        feature arrays that are malformed or do not match
    └── ResourceError (4)       a missing or exhausted device, memory, disk or network
        └── WeightsError        extractor weights that are missing, damaged or unsafe

The number is the exit code of the command line. Exit code 5 (a `--fail-under` threshold was missed) is a
result and not an error; 130 means interrupted, and 143 terminated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

LONGEST_MESSAGE = 1500  # bytes of UTF-8; the whole line stays below 2 kB


def printable(name: str) -> str:
    """Escape control and undecodable characters of a name, for a message in one line."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def short(name: str, most: int = 40) -> str:
    """Shorten a name in the middle for a message, and escape control characters."""
    if len(name) > 2 * most:
        name = f"{name[:most]}{name[-most:]}"  # the rest is not shown
    shown = printable(name)
    if len(shown) <= most:
        return shown
    half = (most - 1) // 2
    return f"{shown[: most - 1 - half]}…{shown[-half:]}"


def some(names: Collection[str], most: int = 3, *, longest: int = 40, between: str = ", ") -> str:
    """Join the first of many names, each cut to `longest` characters: `a, b, c and 99,997 more`."""
    shown = between.join(short(name, longest) for name in islice(names, most))
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def count_of(n: int, noun: str) -> str:
    """A number with its noun: `1 image` or `2,000 images`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def similar(name: object, known: Iterable[str]) -> str:
    """The known names that resemble a wrong one, as ` (similar: a, b)` for a message; empty without any."""
    from difflib import get_close_matches

    matches = get_close_matches(str(name)[:100], list(known))
    return f" (similar: {some(matches)})" if matches else ""


def get_named(entries: Mapping[K, V], key: K, what: str) -> V:
    """`entries[key]`; the KeyError without such an entry names similar keys."""
    if key in entries:
        return entries[key]
    known = list(map(str, entries))
    raise KeyError(f"no {what} {short(repr(key))}{similar(key, known)}; found {some(known, 20) or 'none'}")


def limited(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Remove the middle of a text of more than `most` bytes of UTF-8; its end often has the suggested action.

    A text that was shortened stays as it is.
    """
    head, tail = text[:most], text[-most:]
    if len(text) <= most and len(head.encode("utf-8", "surrogatepass")) <= most:
        return text
    omitted, last = " ... ", tail.encode("utf-8", "surrogatepass")[-most // 3 :]
    first = head.encode("utf-8", "surrogatepass")[: most - len(last) - len(omitted)]
    return first.decode("utf-8", "ignore") + omitted + last.decode("utf-8", "ignore")


class GenprError(Exception):
    """Base class of all errors of genpr.

    Args:
        message: What was expected, what was found, and what to do. Control characters and line ends, which may come from
            file names or other libraries, are escaped. The middle of a message of more than `LONGEST_MESSAGE` bytes is
            left out.
        code: Stable identifier in kebab-case, for programs.
        path: The file or folder, as text, if there is one.
    """

    exit_code = 1

    def __init__(self, message: str, *, code: str, path: str | None = None) -> None:
        super().__init__(limited(printable(limited(message))))
        self.code = code
        self.path = path


class UsageError(GenprError, ValueError):
    """The call is wrong: a missing path, an unknown name, an impossible option."""

    exit_code = 2


class DataError(GenprError, ValueError):
    """Data that cannot be scored."""

    exit_code = 3


class ImageError(DataError):
    """An image that cannot be used, with its `path` and the reason as `code`."""

    def detached(self) -> ImageError:
        """Remove traceback and cause, which would keep the data of their frames in memory."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class BadImagesError(DataError):
    """A source with images that cannot be used."""

    def __init__(
        self, message: str, *, bad: Sequence[ImageError], path: str | None = None, code: str = "bad-images"
    ) -> None:
        super().__init__(message, code=code, path=path)
        self.bad = tuple(bad)


class FeatureError(DataError):
    """Feature arrays that are malformed or do not match."""


class ResourceError(GenprError, RuntimeError):
    """A missing or exhausted resource: device, memory, disk, network."""

    exit_code = 4


class WeightsError(ResourceError):
    """Extractor weights that are missing, damaged, or in a format that could execute code."""
