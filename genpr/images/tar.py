"""Images in tar archives, read where they lie: the headers of an archive, its images, and labels in its WebDataset samples.

The headers are read faster than by the standard library's `tarfile`, and without an object per member, because shards hold
millions. V7, ustar, GNU and PAX are read, as POSIX.1-2017 (pax) and the GNU tar manual describe them. Whatever is no header
is an error: an archive never ends in silence before the block of zeros that marks its end.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, NoReturn, cast
from zlib import adler32

from genpr.errors import DataError, ImageError, printable
from genpr.images.archive import damage_reported
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    OtherFiles,
    StatedLabels,
    is_hidden,
    is_image_name,
    too_large_to_read,
    unreadable,
)
from genpr.limits import ARCHIVED_PARSED_BYTES, SMALL_TEXT_BYTES, is_bomb, parse_json
from genpr.storage import open_regular

_LABEL_KEYS = ("label", "class", "cls")  # of a .json file, the first that is there
_MOST_TEXT = 1000  # characters of the name of a class
_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_REGULAR = b"0\x007"  # regular, regular as V7 writes it, contiguous
_SPARSE = b"S"
_WITHOUT_DATA = b"123456"  # links, devices, folders, pipes: whatever size they claim
_MOST_EXTRA = 2**20  # bytes of a long name or of PAX records
_MOST_BYTES = 2**62
_ADLER = 65_521


class TarMember(NamedTuple):
    """A regular file in a tar archive.

    Attributes:
        name: Its path, as bytes.
        offset: Where its data begins in the archive.
        size: Of its data, in bytes.
    """

    name: bytes
    offset: int
    size: int

    @property
    def text(self) -> str:
        """The name as text."""
        return self.name.decode("utf-8", "surrogateescape")


@dataclass(slots=True)
class _Extra:
    """What extended headers say of the member that follows them; None where they say nothing."""

    name: bytes | None = None
    size: int | None = None


def regular_files(file: IO[bytes]) -> Iterator[TarMember]:
    """The regular files of an archive in its order, from its headers alone; links, folders and devices are left out.

    Args:
        file: Uncompressed, or decompressing; it is read forwards only.

    Raises:
        tarfile.TarError: It is cut short, or holds something else.
    """
    at, everywhere, extra = 0, _Extra(), _Extra()
    while True:
        file.seek(at)
        header = file.read(_BLOCK)
        if header == _END:
            return
        kind, size = _checked(header, at)
        data = at + _BLOCK
        if kind in b"LKxXg":
            _read_extra(file, kind, size, everywhere if kind == b"g" else extra)
            at = data + _padded(size)
            continue
        if kind == _SPARSE:
            raise _sparse()
        if extra.size is not None or everywhere.size is not None:
            size = extra.size if extra.size is not None else everywhere.size or 0
        name = extra.name or everywhere.name or _name_in(header)
        is_folder = kind == b"\0" and name.endswith(b"/")
        if kind in _REGULAR and not is_folder:
            yield TarMember(name, data, size)
        at = data if kind in _WITHOUT_DATA else data + _padded(size)
        extra = _Extra()


def _checked(header: bytes, at: int) -> tuple[bytes, int]:
    """The kind and the size in a header.

    Raises:
        tarfile.ReadError: It is none.
    """
    if len(header) < _BLOCK:
        raise tarfile.ReadError("it stops without the mark that ends an archive")
    if not _sums_up(header):
        raise tarfile.ReadError(f"there is no header at byte {at:,}" if at else "it does not begin as one")
    size = _number(header[124:136])
    if not 0 <= size <= _MOST_BYTES:
        raise tarfile.ReadError(f"the header at byte {at:,} claims a size of {size:,} bytes")
    return header[156:157], size


def _sparse() -> tarfile.ReadError:
    return tarfile.ReadError("it stores files without their holes; repack it without --sparse")


def _sums_up(header: bytes) -> bool:
    """Whether a header has the sum that it says, of its bytes with blanks in place of the sum, some tools take them signed."""
    try:
        claimed = _number(header[148:156])
    except ValueError:
        return False
    # The lower half of Adler-32 is 1 + the sum of bytes modulo 65,521, ten times as fast as a sum in Python.
    own = sum(header[148:156])
    if (adler32(header) & 0xFFFF) == (1 + claimed + own - 8 * 32) % _ADLER:
        return True
    negative = 256 * sum(byte > 127 for byte in header[:148] + header[156:])
    return claimed == sum(header) - own + 8 * 32 - negative


def _number(field: bytes) -> int:
    """Octal digits, or as GNU writes what is too large for them: a mark, then bytes."""
    if field[0] in {0o200, 0o377}:
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0o200 else value - 256 ** (len(field) - 1)
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _name_in(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _read_extra(file: IO[bytes], kind: bytes, size: int, extra: _Extra) -> None:
    """Take over what an extended header says."""
    if size > _MOST_EXTRA:
        raise tarfile.ReadError(f"a name or note in it claims {size:,} bytes")
    data = file.read(size)
    if len(data) < size:
        raise tarfile.ReadError("it ends in the middle of a name")
    if kind == b"L":
        extra.name = data.partition(b"\0")[0]
    elif kind != b"K":  # of a link
        _read_records(data, extra)


def _read_records(data: bytes, extra: _Extra) -> None:
    """PAX records, `<length> <key>=<value>` and a line feed; the length is that of the whole record."""
    at = 0
    while at < len(data) and data[at]:
        digits, blank, _ = data[at : at + 20].partition(b" ")
        end = at + int(digits)
        if not blank or end <= at + len(digits) + 2 or data[end - 1 : end] != b"\n":
            raise tarfile.ReadError("a PAX record in it is broken")
        key, _, value = data[at + len(digits) + 1 : end - 1].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            raise _sparse()
        if key == b"path":
            extra.name = value.rstrip(b"/")
        elif key == b"size":
            extra.size = int(value)
            if not 0 <= extra.size <= _MOST_BYTES:
                raise tarfile.ReadError(f"a PAX record in it claims a size of {extra.size:,} bytes")
        at = end


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
            for member in regular_files(stream):
                if is_image_name(member.text):
                    yield Item(member.text, _stream_reader(stream, member))

    def stated_labels(self) -> StatedLabels | None:
        """The labels of WebDataset samples, where there are any; the archive is read once for them."""
        names = list[str]()
        with _damage_reported(self.path), open_regular(self.path) as raw, _decompressed(raw) as stream:
            labels = _labels_by_key(self._notes(stream, names), self.name)
        return _labels_of(names, labels, self.name)

    def _notes(self, stream: IO[bytes], names: list[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """The members that may hold labels, to be read as they come; the names of images go to `names`."""
        for member in regular_files(stream):
            name = member.text
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
            for member in regular_files(stream):
                file_name = member.text
                is_image = is_image_name(file_name)
                count += is_image
                if not is_image:
                    others.add(file_name)
                if is_plain and (is_image or _is_note(file_name)):
                    (images if is_image else notes).add(*member)
    images.sort()
    source = TarSource(name, path, images, notes) if is_plain else CompressedTarSource(name, path, count)
    others.report(name, n_images=len(source))
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


def _stream_reader(stream: IO[bytes], member: TarMember) -> Callable[[], bytes]:
    """Read a member's bytes now, while the stream stands there, and hand them out later."""
    if member.size > MAX_ENCODED_BYTES:
        return partial(_raise, too_large_to_read(member.text, member.size))
    stream.seek(member.offset)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise tarfile.ReadError(f"it ends in the middle of {member.text!r}")
    return partial(bytes, data)


def _raise(error: ImageError) -> NoReturn:
    raise error
