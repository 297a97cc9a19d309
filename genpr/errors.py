"""Every error a user can meet, each with a stable code and an exit code.

    GenprError (1)
    ├── UsageError (2)          a missing path, an unknown name or option
    ├── DataError (3)           the data cannot be scored
    │   ├── ImageError          one image cannot be used; `path` says which, `code` says why
    │   ├── BadImagesError      a source holds unusable images; `bad` lists all of them
    │   └── FeatureError        feature arrays are malformed or do not belong together
    └── ResourceError (4)       something around the data is missing or exhausted
        └── WeightsError        extractor weights are missing, damaged or unsafe

The number is the exit code of the command line. Exit code 5 (a `--fail-under` threshold was missed) is a
result and not an error; 130 means interrupted, and 143 terminated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

LONGEST_MESSAGE = 1500  # bytes of UTF-8; with what is written around it, a line stays below 2 kB


def printable(name: str) -> str:
    """A name safe for a one-line message: control and undecodable characters as escapes."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def short(name: str, most: int = 40) -> str:
    """A name that fits a message: without what a terminal obeys, and cut in the middle."""
    if len(name) > 2 * most:
        name = f"{name[:most]}{name[-most:]}"  # nothing of the rest is shown
    shown = printable(name)
    if len(shown) <= most:
        return shown
    half = (most - 1) // 2
    return f"{shown[: most - 1 - half]}…{shown[-half:]}"


def some(names: Collection[str], most: int = 3, *, longest: int = 40, between: str = ", ") -> str:
    """The first of many names, each cut to `longest` characters: `a, b, c and 99,997 more`."""
    shown = between.join(short(name, longest) for name in islice(names, most))
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def limited(text: str, most: int = LONGEST_MESSAGE) -> str:
    """`text` without its middle where it has more than `most` bytes of UTF-8; its end often says what to do."""
    head, tail = text[:most], text[-most:]
    if len(text) <= most and len(head.encode("utf-8", "surrogatepass")) <= most:
        return text
    first = head.encode("utf-8", "surrogatepass")[: most * 2 // 3].decode("utf-8", "ignore")
    last = tail.encode("utf-8", "surrogatepass")[-most // 3 :].decode("utf-8", "ignore")
    return f"{first} ... {last}"


class GenprError(Exception):
    """Base of all errors that genpr raises on purpose.

    Args:
        message: What was needed, what came, and the likely cause. It is kept in one line of at most `LONGEST_MESSAGE`
            bytes: what a file name or another library may have put into it and a terminal would obey, line ends among
            them, is written as its escape, and the middle of a longer message is left out.
        code: Stable identifier in kebab-case, for programs.
        path: The file or folder concerned, as text, if there is one.
    """

    exit_code = 1

    def __init__(self, message: str, *, code: str, path: str | None = None) -> None:
        super().__init__(limited(printable(limited(message))))
        self.code = code
        self.path = path


class UsageError(GenprError, ValueError):
    """The call itself is wrong: a missing path, an unknown name, an impossible option."""

    exit_code = 2


class DataError(GenprError, ValueError):
    """The data was found and read, but cannot be scored."""

    exit_code = 3


class ImageError(DataError):
    """One image cannot be used; `path` names it and `code` says why."""

    def detached(self) -> ImageError:
        """The error without its traceback and cause, which would keep the data of its frames in memory."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class BadImagesError(DataError):
    """A source holds images that cannot be used."""

    def __init__(
        self, message: str, *, bad: Sequence[ImageError], path: str | None = None, code: str = "bad-images"
    ) -> None:
        super().__init__(message, code=code, path=path)
        self.bad = tuple(bad)


class FeatureError(DataError):
    """Feature arrays are malformed or do not belong together."""


class ResourceError(GenprError, RuntimeError):
    """Something around the data is missing or exhausted: a device, memory, disk, network."""

    exit_code = 4


class WeightsError(ResourceError):
    """Extractor weights are missing, damaged, or of a format that could execute code."""
