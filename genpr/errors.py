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

from collections.abc import Sequence


class GenprError(Exception):
    """Base of all errors that genpr raises on purpose.

    Args:
        message: What was needed, what came, and the likely cause. It is kept in one line: what a file name or another
            library may have put into it and a terminal would obey, line ends among them, is written as its escape.
        code: Stable identifier in kebab-case, for programs.
        path: The file or folder concerned, as text, if there is one.
    """

    exit_code = 1

    def __init__(self, message: str, *, code: str, path: str | None = None) -> None:
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))
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


class BadImagesError(DataError):
    """A source holds images that cannot be used.

    Args:
        message: Summary in one line.
        bad: One `ImageError` per unusable image, in source order; never empty.
    """

    def __init__(self, message: str, *, bad: Sequence[ImageError], path: str | None = None) -> None:
        super().__init__(message, code="bad-images", path=path)
        self.bad = tuple(bad)


class FeatureError(DataError):
    """Feature arrays are malformed or do not belong together."""


class ResourceError(GenprError, RuntimeError):
    """Something around the data is missing or exhausted: a device, memory, disk, network."""

    exit_code = 4


class WeightsError(ResourceError):
    """Extractor weights are missing, damaged, or of a format that could execute code."""
