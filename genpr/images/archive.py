"""Images in zip and tar archives, read where they lie and never extracted: member names are only labels."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, cast

from genpr.errors import DataError, ImageError
from genpr.images.damage import DAMAGE, damage_reported, is_bomb
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    is_image_name,
    log_others,
    no_images,
    printable,
    read_at,
    too_large_to_read,
    unreadable,
)

_HEADER_BYTES_MAX = 2**20  # of a long name or extended header, which are paths and times
_ENCRYPTED = 0x1  # zip flag bit
_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


@dataclass(frozen=True)
class ZipSource(ImageSource):
    """The images of a zip archive, ordered by the bytes of their names; equal names in archive order.

    Each read opens its own member of one shared `ZipFile`, which serialises file access with its own lock.
    """

    name: str
    archive: zipfile.ZipFile
    members: tuple[zipfile.ZipInfo, ...]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Item]:
        for member in self.members:
            yield Item(member.filename, partial(_read_zip_member, self.archive, member))


def open_zip(path: Path, name: str) -> ZipSource:
    """List the images of a zip archive from its directory, without reading any.

    Raises:
        DataError: The archive is damaged or encrypted, or holds no images.
    """
    with damage_reported(path, "zip archive", code="archive-damaged"):
        archive = zipfile.ZipFile(path)
    files = [member for member in archive.infolist() if not member.is_dir() and not _is_zip_link(member)]
    images = sorted((member for member in files if is_image_name(member.filename)), key=_zip_name_bytes)
    if not images:
        archive.close()
        raise no_images(name, (member.filename for member in files))
    if any(member.flag_bits & _ENCRYPTED for member in images):
        archive.close()
        raise DataError(
            f"{printable(name)} is encrypted; genpr reads no passwords, so unpack it and repack it without one",
            code="zip-encrypted",
            path=name,
        )
    log_others(name, (member.filename for member in files if not is_image_name(member.filename)))
    return ZipSource(name, archive, tuple(images))


def _is_zip_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(member.external_attr >> 16)


def _zip_name_bytes(member: zipfile.ZipInfo) -> bytes:
    return member.filename.encode("utf-8", "surrogateescape")


def _read_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    name, size = member.filename, member.file_size
    packed = min(member.compress_size, archive.start_dir)  # what lies before the directory are the members
    if is_bomb(size, packed):
        raise ImageError(
            f"{printable(name)}: claims {size:,} bytes in {packed:,} compressed ones, "
            "like a zip bomb; repack it without compression if it is genuine",
            code="zip-bomb",
            path=name,
        )
    if size > MAX_ENCODED_BYTES:
        raise too_large_to_read(name, size)
    try:
        with archive.open(member) as file:  # ZipFile.read does the same and nothing faster
            return file.read()
    except (NotImplementedError, OSError) as error:  # a compression that Python lacks
        raise unreadable(name, error) from error
    except MemoryError as error:  # LZMA takes what the member says that it needs
        raise unreadable(name, "its compression asks for more memory than there is") from error
    except DAMAGE as error:
        raise ImageError(
            f"{printable(name)}: its data in the archive is damaged ({error})",
            code="image-corrupt",
            path=name,
        ) from error


@dataclass(frozen=True)
class TarSource(ImageSource):
    """The images of an uncompressed tar archive, ordered by the bytes of their names.

    Attributes:
        members: Name, offset and size of each image's data; each read opens the file anew, so that reads
            from several threads share nothing.
    """

    name: str
    path: Path
    members: tuple[tuple[str, int, int], ...]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Item]:
        for name, offset, size in self.members:
            yield Item(name, partial(_read_tar_member, self.path, name, offset, size))


@dataclass(frozen=True)
class CompressedTarSource(ImageSource):
    """The images of a compressed tar archive, in archive order.

    Compressed data can only be read from its start, so the archive is streamed: sorting would mean holding it.
    Items carry the bytes already read, and each iteration holds one of them; how many stay alive is up to
    whoever iterates.
    """

    name: str
    path: Path
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Item]:
        with _tar_damage_reported(self.path), self.path.open("rb") as raw, _decompressed(raw) as stream:
            for member in _tar_images(stream, self.path):
                yield Item(member.name, _tar_stream_reader(stream, member))


def open_tar(path: Path, name: str) -> TarSource | CompressedTarSource:
    """List the images of a tar archive; one that is compressed is decompressed once to count them.

    Links, devices and everything without an image suffix are ignored.

    Raises:
        DataError: The archive is damaged, or holds no images.
    """
    others: list[str] = []
    with _tar_damage_reported(path), path.open("rb") as raw:
        if _decompressor(raw) is None:
            members = [(m.name, m.offset_data, m.size) for m in _tar_images(raw, path, others)]
            source: TarSource | CompressedTarSource = TarSource(
                name, path, tuple(sorted(members, key=lambda member: os.fsencode(member[0])))
            )
        else:
            with _decompressed(raw) as stream:
                count = sum(1 for _ in _tar_images(stream, path, others))
            source = CompressedTarSource(name, path, count)
    if not len(source):
        raise no_images(name, others)
    log_others(name, others)
    return source


def _tar_damage_reported(path: Path) -> AbstractContextManager[None]:
    return damage_reported(path, "tar archive", code="archive-damaged")


def _decompressor(raw: BinaryIO) -> Callable[[BinaryIO], IO[bytes]] | None:
    """What undoes the compression of a file, told by its first bytes; `None` if there is none."""
    start = raw.read(6)
    raw.seek(0)
    return next((opener for magic, opener in _COMPRESSED.items() if start.startswith(magic)), None)


@contextmanager
def _decompressed(raw: BinaryIO) -> Iterator[IO[bytes]]:
    opener = _decompressor(raw)
    if opener is None:
        raise tarfile.ReadError("the archive is not compressed any more; did the file change?")
    with opener(raw) as stream:
        yield stream


class _LastRead:
    """A binary file that remembers what was read last.

    `tarfile` takes a header it cannot parse for the end of the archive. The end is a block of zeros, so what
    was read last tells one from the other.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.tell, self.seek, self.close = file.tell, file.seek, file.close
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADER_BYTES_MAX:  # tarfile believes what a header says of its own length
            raise tarfile.ReadError(f"a header claims to have {size:,} bytes")
        self.last = self._file.read(size)
        return self.last


def _tar_images(stream: IO[bytes], path: Path, others: list[str] | None = None) -> Iterator[tarfile.TarInfo]:
    """The image members of a tar stream in archive order; the names of other files go to `others`."""
    watched, packed, last = _LastRead(stream), path.stat().st_size, -1
    tar: Any  # the published types lack `members`
    with tarfile.open(fileobj=cast("Any", watched), mode="r:") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # else every header of a long archive stays in memory
            if member.size < 0 or member.offset <= last:  # Python before 3.13.6 would go round and round
                raise tarfile.ReadError("a header leads back to where it came from")
            last = member.offset
            if is_bomb(member.offset_data + member.size, packed):  # told before that is decompressed, by its header
                raise _tar_bomb(member, path, packed)
            if not member.isreg():
                continue
            if is_image_name(member.name):
                if member.issparse():
                    raise tarfile.ReadError(f"{member.name!r} is stored as sparse; repack without --sparse")
                yield member
            elif others is not None:
                others.append(member.name)
    if watched.last != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it stops without the mark that ends an archive")


def _tar_bomb(member: tarfile.TarInfo, path: Path, packed: int) -> DataError:
    return DataError(
        f"{printable(str(path))} has {packed:,} bytes and claims at {printable(member.name)} to hold more than "
        f"{member.offset_data + member.size:,}, like a bomb; repack it without compression if it is genuine",
        code="tar-bomb",
        path=str(path),
    )


def _read_tar_member(path: Path, name: str, offset: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return read_at(file, name, offset=offset, size=size)
    except OSError as error:
        raise unreadable(name, error.strerror) from error


def _tar_stream_reader(stream: IO[bytes], member: tarfile.TarInfo) -> Callable[[], bytes]:
    """Read a member's bytes now, while the stream stands there, and hand them out later."""
    if member.size > MAX_ENCODED_BYTES:
        return partial(_refuse, too_large_to_read(member.name, member.size))
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise tarfile.ReadError(f"it ends in the middle of {member.name!r}")
    return partial(bytes, data)


def _refuse(error: ImageError) -> NoReturn:
    raise error
