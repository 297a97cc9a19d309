"""Images in tar archives, read where they lie and never extracted: member names are only labels."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, cast

from genpr.errors import DataError, ImageError
from genpr.images.damage import damage_reported
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    StatedLabels,
    is_image_name,
    read_at,
    too_large_to_read,
    unreadable,
)
from genpr.images.member_table import MemberTable
from genpr.images.others import OtherFiles, log_others, no_images
from genpr.images.samples import is_note, labels_by_key, labels_of
from genpr.images.tar_headers import TarMember, regular_files
from genpr.limits import SMALL_TEXT_BYTES, is_bomb
from genpr.storage import open_regular

_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


@dataclass(frozen=True)
class TarSource(ImageSource):
    """The images of an uncompressed tar archive, ordered by the bytes of their names; equal names in archive order.

    Attributes:
        members: Name, offset and size of each image's data; each read opens the file anew, so that reads
            from several threads share nothing.
        notes: The same of the members that may hold labels, in archive order.
    """

    name: str
    path: Path
    members: MemberTable
    notes: MemberTable

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Item]:
        return self.pick(range(len(self)))

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places; others are not looked at."""
        for place in places:
            name, offset, size = self.members[place]
            yield Item(name, partial(_read_member, self.path, name, offset, size))

    def names(self) -> Iterator[str]:
        """Of the members."""
        return (name for name, _, _ in self.members)

    def stated_labels(self) -> StatedLabels | None:
        """The labels of WebDataset samples, where there are any."""
        with _damage_reported(self.path), open_regular(self.path) as file:
            notes = ((name, partial(_read_note, file, name, at, size)) for name, at, size in self.notes)
            labels = labels_by_key(notes, self.name)
        return labels_of(self.names(), labels, self.name)


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
        with _damage_reported(self.path), open_regular(self.path) as raw, _decompressed(raw) as stream:
            for name, member in _files(stream):
                if is_image_name(name):
                    yield Item(name, _stream_reader(stream, name, member))

    def stated_labels(self) -> StatedLabels | None:
        """The labels of WebDataset samples, where there are any; the archive is read once for them."""
        names = list[str]()
        with _damage_reported(self.path), open_regular(self.path) as raw, _decompressed(raw) as stream:
            labels = labels_by_key(self._notes(stream, names), self.name)
        return labels_of(names, labels, self.name)

    def _notes(self, stream: IO[bytes], names: list[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """The members that may hold labels, to be read as they come; the names of images go to `names`."""
        for name, member in _files(stream):
            if is_image_name(name):
                names.append(name)
            elif is_note(name):
                yield name, partial(_read_note, stream, name, member.offset, member.size)


def open_tar(path: Path, name: str) -> TarSource | CompressedTarSource:
    """List the images of a tar archive; one that is compressed is decompressed once to count them.

    Links, devices and everything without an image suffix are ignored.

    Raises:
        DataError: The archive is damaged, or holds no images.
    """
    others = OtherFiles()
    images, notes = MemberTable(), MemberTable()
    with _damage_reported(path), open_regular(path) as raw:
        is_plain = _decompressor(raw) is None
        count = 0
        with nullcontext(raw) if is_plain else _decompressed(raw) as stream:
            for file_name, member in _files(stream):
                is_image = is_image_name(file_name)
                count += is_image
                if not is_image:
                    others.add(file_name)
                if is_plain and (is_image or is_note(file_name)):
                    (images if is_image else notes).add(member.name, member.offset, member.size)
    images.sort()
    source = TarSource(name, path, images, notes) if is_plain else CompressedTarSource(name, path, count)
    if not len(source):
        raise no_images(name, others)
    log_others(name, others)
    return source


def _damage_reported(path: Path) -> AbstractContextManager[None]:
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
        yield cast("IO[bytes]", _Unpacked(stream, os.fstat(raw.fileno()).st_size))


class _Unpacked:
    """A stream that is decompressed only as far as no bomb could hold.

    Args:
        stream: What is decompressed.
        packed: Bytes of the file.
    """

    def __init__(self, stream: IO[bytes], packed: int) -> None:
        self._stream, self._packed = stream, packed

    def seek(self, place: int) -> int:
        """Go on to a place, if it may exist."""
        self._check(place)
        return self._stream.seek(place)

    def read(self, size: int) -> bytes:
        """The next bytes, if there may be so many."""
        self._check(self._stream.tell() + size)
        return self._stream.read(size)

    def _check(self, end: int) -> None:
        if is_bomb(end, self._packed):
            raise DataError(
                f"a tar archive of {self._packed:,} bytes claims to hold {end:,} or more, like a bomb; repack it without "
                "compression if it is genuine",
                code="tar-bomb",
            )


def _files(stream: IO[bytes]) -> Iterator[tuple[str, TarMember]]:
    """The regular files of a tar stream in archive order, each with its name as text."""
    for member in regular_files(stream):
        name = member.name.decode("utf-8", "surrogateescape")
        if member.is_sparse and (is_image_name(name) or is_note(name)):
            raise tarfile.ReadError(f"{name!r} is stored as sparse; repack without --sparse")
        yield name, member


def _read_note(file: IO[bytes], name: str, offset: int, size: int) -> bytes:
    """The bytes of a member that may hold a label.

    Raises:
        tarfile.TarError: It is not there in full, or too large to be one.
    """
    if size > SMALL_TEXT_BYTES:
        raise tarfile.ReadError(f"{name!r} has {size:,} bytes, more than a label needs")
    file.seek(offset)
    data = file.read(size)
    if len(data) < size:
        raise tarfile.ReadError(f"it ends in the middle of {name!r}")
    return data


def _read_member(path: Path, name: str, offset: int, size: int) -> bytes:
    try:
        with open_regular(path) as file:
            return read_at(file, name, offset=offset, size=size)
    except OSError as error:
        raise unreadable(name, error.strerror) from error


def _stream_reader(stream: IO[bytes], name: str, member: TarMember) -> Callable[[], bytes]:
    """Read a member's bytes now, while the stream stands there, and hand them out later."""
    if member.size > MAX_ENCODED_BYTES:
        return partial(_refuse, too_large_to_read(name, member.size))
    stream.seek(member.offset)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise tarfile.ReadError(f"it ends in the middle of {name!r}")
    return partial(bytes, data)


def _refuse(error: ImageError) -> NoReturn:
    raise error
