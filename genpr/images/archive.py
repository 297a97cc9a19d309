"""Images in zip archives, read where they lie and never extracted: member names are only labels. How damage is reported."""

from __future__ import annotations

import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from genpr.errors import DataError, GenprError, ImageError, printable, short
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    OtherFiles,
    is_image_name,
    too_large_to_read,
    unreadable,
)
from genpr.limits import (
    STREAMED_RATIO,
    UNPACKED_RATIO,
    is_bomb,
)

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
    RuntimeError,  # which zipfile raises for encrypted members; includes NotImplementedError
)
_ENCRYPTED = 0x1  # zip flag bit


@contextmanager
def damage_reported(
    path: Path, kind: str, *, code: str, also: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Report damage found while reading `path` as a `DataError` with `code`, and failing to read as "unreadable".

    Args:
        path: The file being read.
        kind: What it should be, for the message ("zip archive").
        code: The code for damage.
        also: What the reader raises on damage besides `DAMAGE`.
    """
    kinds: tuple[type[Exception], ...] = (*DAMAGE, *also, OSError)
    try:
        yield
    except GenprError:
        raise
    except kinds as error:
        shown = printable(str(path))
        # bz2 and gzip raise OSErrors without a number for bad data.
        if isinstance(error, OSError) and error.errno is not None:
            message, code = f"{shown} cannot be read ({error.strerror})", "unreadable"
        else:
            reason = short(str(error).partition("\n")[0], 200) or type(error).__name__
            message = f"{shown} is not an intact {kind} ({reason}); was it cut short or renamed?"
        raise DataError(message, code=code, path=str(path)) from error


def open_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo | str, *, is_streamed: bool = False
) -> IO[bytes]:
    """Open a member to read it forwards: its size is checked against the archive, and memory stays bounded.

    Only stored and deflated members are read. With other compressions `zipfile` decompresses all that it is given, even when
    a few bytes are requested.

    Args:
        archive: The archive.
        member: The member, or its name.
        is_streamed: Whether it is processed in small pieces, so that only the time has to be bounded.

    Raises:
        DataError: It claims more bytes than its compressed ones can honestly stand for ("zip-bomb").
        KeyError: There is no such member.
        NotImplementedError: It is compressed in another way.
        zipfile.BadZipFile, OSError, RuntimeError: As `ZipFile.open`.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    packed = max(0, min(info.compress_size, archive.start_dir - info.header_offset))
    if is_bomb(info.file_size, packed, ratio=STREAMED_RATIO if is_streamed else UNPACKED_RATIO):
        raise DataError(
            f"{info.filename} claims {info.file_size:,} bytes in {packed:,} compressed ones, like a zip bomb; repack the "
            "archive without compression if it is genuine",
            code="zip-bomb",
            path=archive.filename,
        )
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise NotImplementedError(
            f"compression method {info.compress_type} is not supported; repack it with deflate"
        )
    return archive.open(info)


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo | str) -> bytes:
    """All of a member.

    Raises:
        As `open_member`; `genpr.images.archive.DAMAGE` where its data are damaged.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    with open_member(archive, info) as file:
        return file.read(info.file_size)  # without a size, zipfile decompresses whatever is there


@dataclass(frozen=True)
class ZipSource(ImageSource):
    """The images of a zip archive, ordered by the bytes of their names; equal names in archive order.

    Each read opens its own member of one shared `ZipFile`, which serializes file access with its own lock.
    """

    name: str
    archive: zipfile.ZipFile
    members: tuple[zipfile.ZipInfo, ...]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Item]:
        for member in self.members:
            yield Item(member.filename, partial(_read_from_zip, self.archive, member))

    def names(self) -> Iterator[str]:
        """Of the members."""
        return (member.filename for member in self.members)


def open_zip(path: Path, name: str) -> ZipSource:
    """List the images of a zip archive from its directory, without reading any.

    Raises:
        DataError: The archive is damaged or encrypted, or holds no images.
    """
    with damage_reported(path, "zip archive", code="archive-damaged"):
        archive = zipfile.ZipFile(path)
    images, others = list[zipfile.ZipInfo](), OtherFiles()
    for member in archive.infolist():
        # Not `ZipInfo.is_dir`, which fails at a member without a name before Python 3.12.
        if member.filename.endswith("/") or stat.S_ISLNK(member.external_attr >> 16):
            continue
        if is_image_name(member.filename):
            images.append(member)
        else:
            others.add(member.filename)
    images.sort(key=lambda member: member.filename.encode("utf-8", "surrogateescape"))
    try:
        others.report(name, n_images=len(images))
        _check_not_encrypted(name, images)
    except DataError:
        archive.close()
        raise
    return ZipSource(name, archive, tuple(images))


def _check_not_encrypted(name: str, images: list[zipfile.ZipInfo]) -> None:
    if any(member.flag_bits & _ENCRYPTED for member in images):
        raise DataError(
            f"{printable(name)} is encrypted; genpr reads no passwords, so unpack it and repack it without one",
            code="zip-encrypted",
            path=name,
        )


def _read_from_zip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    name, size = member.filename, member.file_size
    if size > MAX_ENCODED_BYTES:
        raise too_large_to_read(name, size)
    try:
        return read_member(archive, member)
    except DataError as error:
        raise ImageError(printable(str(error)), code=error.code, path=name) from error
    except (NotImplementedError, OSError) as error:
        raise unreadable(name, error) from error
    except DAMAGE as error:
        raise ImageError(
            f"{printable(name)}: its data in the archive is damaged ({error})",
            code="image-corrupt",
            path=name,
        ) from error
