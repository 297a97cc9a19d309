"""Images in zip and tar archives, read where they lie and never extracted: member names are only labels."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, cast

from genpr.errors import DataError, ImageError, printable
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    OtherFiles,
    StatedLabels,
    is_hidden,
    is_image_name,
    log_others,
    no_images,
    too_large_to_read,
    unreadable,
)
from genpr.images.tar_headers import TarMember, regular_files
from genpr.limits import (
    ARCHIVED_PARSED_BYTES,
    SMALL_TEXT_BYTES,
    STREAMED_RATIO,
    UNPACKED_RATIO,
    is_bomb,
    parse_json,
)
from genpr.storage import open_regular

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
_ENCRYPTED = 0x1  # zip flag bit
_LABEL_KEYS = ("label", "class", "cls")  # of a .json file, the first that is there
_MOST_TEXT = 1000  # characters of the name of a class
_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


@contextmanager
def damage_reported(path: Path, kind: str, *, code: str) -> Iterator[None]:
    """Report damage found while reading `path` as a `DataError` with `code`, and failing to read as "unreadable".

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
        # bz2 and gzip raise OSErrors without a number for bad data.
        if isinstance(error, OSError) and error.errno is not None:
            message, code = f"{shown} cannot be read ({error.strerror})", "unreadable"
        else:
            reason = printable(str(error)) or type(error).__name__
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
    if not images:
        archive.close()
        raise no_images(name, others)
    if any(member.flag_bits & _ENCRYPTED for member in images):
        archive.close()
        raise DataError(
            f"{printable(name)} is encrypted; genpr reads no passwords, so unpack it and repack it without one",
            code="zip-encrypted",
            path=name,
        )
    log_others(name, others)
    return ZipSource(name, archive, tuple(images))


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


class MemberTable:
    """Names, offsets and sizes, in the order of adding until they are sorted."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._ends = array("q", [0])
        self._offsets = array("q")
        self._sizes = array("q")
        self._order: array[int] | None = None
        self._last = b""
        self._is_sorted = True

    def add(self, name: bytes, offset: int, size: int) -> None:
        """Take one more member."""
        self._is_sorted &= self._last <= name
        self._last = name
        self._names += name
        self._ends.append(len(self._names))
        self._offsets.append(offset)
        self._sizes.append(size)

    def sort(self) -> None:
        """Order them by the bytes of their names, equal ones as they were added."""
        if not self._is_sorted:
            self._order = array("q", sorted(range(len(self)), key=self._name))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> tuple[str, int, int]:
        """Name, offset and size of a member."""
        at = index if self._order is None else self._order[index]
        return self._name(at).decode("utf-8", "surrogateescape"), self._offsets[at], self._sizes[at]

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        return map(self.__getitem__, range(len(self)))

    def _name(self, at: int) -> bytes:
        return bytes(self._names[self._ends[at] : self._ends[at + 1]])


def key_of(name: str) -> str:
    """What the files of one WebDataset sample share: the path up to the first dot of the file's name.

    Example:
        >>> key_of("train.v1/0007.seg.png"), key_of("0007")
        ('train.v1/0007', '0007')
    """
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"


def _is_note(name: str) -> bool:
    """Whether a file may hold the label of a sample."""
    return name.endswith((".cls", ".json")) and not is_hidden(name)


def _labels_by_key(notes: Iterable[tuple[str, Callable[[], bytes]]], origin: str) -> dict[str, object]:
    """The labels of samples.

    Args:
        notes: Names of files, and what reads them.
        origin: The archive, for messages.

    Returns:
        An integer, or the name of a class, by key. A `.cls` file counts before a `.json` one.

    Raises:
        DataError: One of them is broken ("labels-damaged").
    """
    by_cls: dict[str, object] = {}
    by_json: dict[str, object] = {}
    for name, read in notes:
        if name.endswith(".cls"):
            by_cls[key_of(name)] = _in_cls(read(), name, origin)
        elif (label := _in_json(read(), name, origin)) is not None:
            by_json[key_of(name)] = label
    return by_json | by_cls


def _labels_of(names: Iterable[str], labels: Mapping[str, object], origin: str) -> StatedLabels | None:
    """The label of each image by its key; None where no image has one."""
    found = [labels.get(key_of(name)) for name in names] if labels else []
    if all(label is None for label in found):
        return None
    return StatedLabels(found, f"labels in {origin}")


def _in_cls(data: bytes, name: str, origin: str) -> object:
    text = data[: 4 * _MOST_TEXT + 1].decode("utf-8", "replace").strip()
    if not text or len(text) > _MOST_TEXT or "\ufffd" in text:
        raise _damaged(name, origin, "it holds no integer, and no name of a class")
    try:
        return int(text)
    except ValueError:
        return text


def _in_json(data: bytes, name: str, origin: str) -> object:
    try:
        record = parse_json(data, most=ARCHIVED_PARSED_BYTES)
    except ValueError as error:
        raise _damaged(name, origin, str(error)) from error
    if not isinstance(record, dict):
        return None
    label = next((record[key] for key in _LABEL_KEYS if key in record), None)
    return label if isinstance(label, str | int) and not isinstance(label, bool) else None


def _damaged(name: str, origin: str, reason: str) -> DataError:
    return DataError(
        f"{printable(name)} in {printable(origin)} is no label ({printable(reason)}); was it written by something else?",
        code="labels-damaged",
        path=name,
    )


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

    def pick(self, indices: Iterable[int]) -> Iterator[Item]:
        """The images at some indices; the others are not touched."""
        for index in indices:
            name, offset, size = self.members[index]
            yield Item(name, partial(_read_from_tar, self.path, name, offset, size))

    def names(self) -> Iterator[str]:
        """Of the members."""
        return (name for name, _, _ in self.members)

    def stated_labels(self) -> StatedLabels | None:
        """The labels of WebDataset samples, where there are any."""
        with _damage_reported(self.path), open_regular(self.path) as file:
            notes = ((name, partial(_read_note, file, name, at, size)) for name, at, size in self.notes)
            labels = _labels_by_key(notes, self.name)
        return _labels_of(self.names(), labels, self.name)


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
            labels = _labels_by_key(self._notes(stream, names), self.name)
        return _labels_of(names, labels, self.name)

    def _notes(self, stream: IO[bytes], names: list[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """The members that may hold labels, to be read as they come; the names of images go to `names`."""
        for name, member in _files(stream):
            if is_image_name(name):
                names.append(name)
            elif _is_note(name):
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
                if is_plain and (is_image or _is_note(file_name)):
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
    """What undoes the compression of a file, by its first bytes; `None` if there is none."""
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

    def seek(self, offset: int) -> int:
        """Move to an offset, if it may exist."""
        self._check(offset)
        return self._stream.seek(offset)

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
        if member.is_sparse and (is_image_name(name) or _is_note(name)):
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


def _read_from_tar(path: Path, name: str, offset: int, size: int) -> bytes:
    if size > MAX_ENCODED_BYTES:
        raise too_large_to_read(name, size)
    try:
        with open_regular(path) as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        raise unreadable(name, error.strerror) from error
    if len(data) != size:
        raise unreadable(name, f"{len(data):,} of {size:,} bytes are there; did the file change?")
    return data


def _stream_reader(stream: IO[bytes], name: str, member: TarMember) -> Callable[[], bytes]:
    """Read a member's bytes now, while the stream stands there, and hand them out later."""
    if member.size > MAX_ENCODED_BYTES:
        return partial(_raise, too_large_to_read(name, member.size))
    stream.seek(member.offset)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise tarfile.ReadError(f"it ends in the middle of {name!r}")
    return partial(bytes, data)


def _raise(error: ImageError) -> NoReturn:
    raise error
