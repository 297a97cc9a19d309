"""What broken archives and array files raise, turned into one error with one code."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genpr.errors import DataError
from genpr.images.item import printable

# Everything that the readers of zip, tar, gzip, bzip2, xz and npy raise on bytes they did not expect.
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OverflowError,
    SyntaxError,
    ValueError,
    RuntimeError,  # zipfile's word for encrypted, and NotImplementedError
)


@contextmanager
def damage_reported(path: Path, kind: str, *, code: str) -> Iterator[None]:
    """Report damage met while reading `path` as a `DataError` with `code`, and failing to read as "unreadable".

    Args:
        path: The file being read.
        kind: What it should be, for the message ("zip archive").
        code: The code for damage.
    """
    try:
        yield
    except DataError:
        raise
    except (*DAMAGE, OSError) as error:
        shown = printable(str(path))
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # bz2 and gzip raise bare ones for bad data
            message, code = f"{shown} cannot be read ({error.strerror})", "unreadable"
        else:
            reason = printable(str(error)) or type(error).__name__
            message = f"{shown} is not an intact {kind} ({reason}); was it cut short or renamed?"
        raise DataError(message, code=code, path=str(path)) from error
