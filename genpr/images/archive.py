"""Images in zip and tar archives, read in place without extraction, and errors for corrupt files.

Tar headers are read without an object per member, several times faster than by the standard library's `tarfile`, because
shards hold millions of members. The formats V7, ustar, GNU and PAX are read, as described in POSIX.1-2017 (pax) and the GNU
tar manual. An archive that ends before its end-of-archive block is an error.
"""

from __future__ import annotations

import io
import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import IO

from genpr.errors import DataError, GenprError, ImageError, short
from genpr.images.folder import MemberSource
from genpr.images.formats import START
from genpr.images.item import (
    SourceLabels,
    check_encoded_size,
    count_suffixes,
    filter_images,
    is_hidden,
    is_image,
    unreadable_error,
)
from genpr.limits import SMALL_TEXT_BYTES, STREAMED_RATIO, UNPACKED_RATIO, is_bomb
from genpr.storage import open_regular

CORRUPT_FILE_ERRORS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OverflowError, SyntaxError, ValueError),
    RuntimeError,  # which zipfile raises for encrypted members; includes NotImplementedError
)
"""All errors that the readers of zip, tar and npy raise for corrupt files."""

_BLOCK = tarfile.BLOCKSIZE
_REST_BYTES = 2**20  # read at once after the end
_END = bytes(_BLOCK)
_REGULAR = b"0\x007"  # regular, regular as V7 writes it, contiguous
_SPARSE = b"S"
_LINKS = b"12"
_WITHOUT_DATA = b"123456"  # links, devices, folders and pipes have none, whatever size they claim
_MAX_EXTRA_BYTES = 2**20  # bytes of a long name or of PAX records
_MAX_MEMBER_BYTES = 2**62
_ADLER = 65_521
MAX_CLASS_NAME = 1000  # characters of the name of a class


@contextmanager
def reraise_corrupt(
    path: Path, kind: str, *, code: str, also: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise a `DataError` with `code` if `path` is corrupt, and with "unreadable" if it cannot be read.

    `kind` names the expected kind of file; `also` are errors of its reader besides `CORRUPT_FILE_ERRORS`.
    """
    kinds: tuple[type[Exception], ...] = (*CORRUPT_FILE_ERRORS, *also, OSError)
    try:
        yield
    except GenprError:
        raise
    except kinds as error:
        if isinstance(error, OSError) and error.errno is not None:
            message, code = f"{path} cannot be read ({error.strerror})", "unreadable"
        else:
            reason = short(str(error).partition("\n")[0], 200) or type(error).__name__
            message = f"{path} is not an intact {kind} ({reason}); check that it is complete and not renamed"
        raise DataError(message, code=code, path=str(path)) from error


# --- zip ------------------------------------------------------------------------------------------------------------


_EMPTY_ZIP = b"PK\5\6" + bytes(18)


class _ZipFile(zipfile.ZipFile):
    """A zip archive that can be pickled, to read members in another process without its directory."""

    def __reduce__(self) -> tuple[object, ...]:
        return _zip_without_directory, (self.filename, self.start_dir)


@lru_cache(maxsize=8)
def _zip_without_directory(path: str, start_dir: int) -> zipfile.ZipFile:
    """An archive that can read the members given to it."""
    archive = zipfile.ZipFile(io.BytesIO(_EMPTY_ZIP))
    archive.fp, archive.start_dir = open_regular(Path(path)), start_dir
    return archive


def open_npz(path: Path) -> zipfile.ZipFile:
    """An .npz file; BadZipFile if several arrays have one name, since readers differ in which of them they use."""
    archive = zipfile.ZipFile(path)
    names = archive.namelist()
    if len(set(names)) < len(names):
        archive.close()
        raise zipfile.BadZipFile("two arrays in it have the same name")
    return archive


def open_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo | str, *, is_streamed: bool = False
) -> IO[bytes]:
    """Open a member for sequential reading, or refuse it if it claims too many bytes ("zip-bomb").

    Only stored and deflated members are read. For other compressions `zipfile` decompresses all input at once, even
    if a few bytes are requested. With `is_streamed` only time is limited, not memory.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    packed = max(0, min(info.compress_size, archive.start_dir - info.header_offset))
    if is_bomb(info.file_size, packed, ratio=STREAMED_RATIO if is_streamed else UNPACKED_RATIO):
        facts = f"{info.filename} claims {info.file_size:,} bytes in {packed:,}, like a zip bomb"
        raise DataError(f"{facts}; repack it without compression", code="zip-bomb", path=archive.filename)
    if info.flag_bits & 1:
        raise NotImplementedError("it is encrypted; extract the archive, or pack it without a password")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise NotImplementedError(f"compression method {info.compress_type}; repack it with deflate")
    return archive.open(info)


def open_zip(path: Path, name: str) -> MemberSource[zipfile.ZipInfo]:
    """List the images of a zip archive from its central directory, and the first bytes of members of unknown suffix.

    They are ordered by the bytes of their names; equal names in archive order. Each read opens its own member of one shared
    `ZipFile`, which serializes file access with its own lock.
    """
    with reraise_corrupt(path, "zip archive", code="archive-damaged"):
        archive = _ZipFile(path)
    others, name_of = Counter[str](), attrgetter("filename")
    images = filter_images(
        _regular_members(archive, others), name_of, partial(_start_in_zip, archive), name, others
    )
    ordered = sorted(images, key=lambda member: member.filename.encode("utf-8", "surrogateescape"))
    return MemberSource(name, ordered, name_of, partial(_read_from_zip, archive), count_suffixes(others))


def _regular_members(archive: zipfile.ZipFile, others: Counter[str]) -> Iterator[zipfile.ZipInfo]:
    for member in archive.infolist():
        if stat.S_ISLNK(member.external_attr >> 16):
            others["link"] += 1
        # Not `ZipInfo.is_dir`, which fails at a member without a name before Python 3.12.
        elif not member.filename.endswith("/"):
            yield member


def _start_in_zip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        with open_member(archive, member) as file:
            return file.read(START)
    except CORRUPT_FILE_ERRORS:
        return b""


def _read_from_zip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    name = member.filename
    check_encoded_size(name, member.file_size)
    try:
        with open_member(archive, member) as file:
            return file.read(member.file_size)  # without a size, zipfile would decompress all that follows
    except DataError as error:
        raise ImageError(str(error), code=error.code, path=name) from error
    except (NotImplementedError, OSError) as error:
        raise unreadable_error(name, error) from error
    except CORRUPT_FILE_ERRORS as error:
        text = f"{name}: its data in the archive is damaged ({error})"
        raise ImageError(text, code="image-corrupt", path=name) from error


# --- headers of tar -------------------------------------------------------------------------------------------------


def regular_files(file: IO[bytes], others: Counter[str] | None = None) -> Iterator[tuple[bytes, int, int]]:
    """Name, offset and size of the regular files of an uncompressed tar archive, read sequentially.

    Links are counted in `others`. Raises `tarfile.TarError` or `ValueError` if the archive is truncated or corrupt.
    """
    at, long_name, long_size = 0, b"", -1
    while True:
        file.seek(at)
        header = file.read(_BLOCK)
        if header == _END:
            if any(part.strip(b"\0") for part in iter(partial(file.read, _REST_BYTES), b"")):
                raise tarfile.ReadError(
                    "data follow its end; join archives with tar --concatenate, not with cat"
                )
            return
        kind, size = _checked(header, at)
        data = at + _BLOCK
        if kind in b"LKxXg":
            if size > _MAX_EXTRA_BYTES:
                raise tarfile.ReadError(f"a name or note in it claims {size:,} bytes")
            extra = _read_fully(file, size)
            if kind == b"L":
                long_name = extra.partition(b"\0")[0]
            elif kind in b"xX":
                long_name, long_size = _read_records(extra, long_name, long_size)
            at = data + _padded(size)
            continue
        if kind == _SPARSE:
            raise tarfile.ReadError("it stores files without their holes; repack it without --sparse")
        size = size if long_size < 0 else long_size
        name = long_name or _name_in(header)
        if kind in _REGULAR and not (kind == b"\0" and name.endswith(b"/")):
            yield name, data, size
        elif others is not None and kind in _LINKS:
            others["link"] += 1
        at = data if kind in _WITHOUT_DATA else data + _padded(size)
        long_name, long_size = b"", -1


def _checked(header: bytes, at: int) -> tuple[bytes, int]:
    """The kind and the size in a header, after a check of its checksum."""
    if len(header) < _BLOCK:
        raise tarfile.ReadError("it ends without the end-of-archive block")
    try:
        stored = _number(header[148:156])
    except ValueError:
        stored = -1
    # The lower half of Adler-32 is 1 + the sum of bytes modulo 65,521, ten times as fast as a sum in Python.
    checksum = zlib.adler32(header[:148] + b" " * 8 + header[156:]) & 0xFFFF
    if checksum != (1 + stored) % _ADLER:
        raise tarfile.ReadError(
            f"there is no header at byte {at:,}; it may be compressed, or of another kind"
        )
    size = _number(header[124:136])
    if not 0 <= size <= _MAX_MEMBER_BYTES:
        raise tarfile.ReadError(f"the header at byte {at:,} claims a size of {size:,} bytes")
    return header[156:157], size


def _number(field: bytes) -> int:
    """A number in octal digits, or in the base-256 format of GNU tar for large numbers."""
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


def _read_fully(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise tarfile.ReadError("it ends in the middle of a member")
    return data


def _read_records(data: bytes, name: bytes, size: int) -> tuple[bytes, int]:
    """The name and the size in PAX records, `<length> <key>=<value>` and a line feed, if present."""
    at = 0
    while at < len(data) and data[at]:
        digits, blank, _ = data[at : at + 20].partition(b" ")
        end = at + int(digits)
        if not blank or end <= at + len(digits) + 2 or data[end - 1 : end] != b"\n":
            raise tarfile.ReadError("a PAX record in it is broken")
        key, _, value = data[at + len(digits) + 1 : end - 1].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            raise tarfile.ReadError("it stores files without their holes; repack it without --sparse")
        if key == b"path":
            name = value.rstrip(b"/")
        elif key == b"size":
            size = int(value)
            if not 0 <= size <= _MAX_MEMBER_BYTES:
                raise tarfile.ReadError(f"a PAX record in it claims a size of {size:,} bytes")
        at = end
    return name, size


# --- tar ------------------------------------------------------------------------------------------------------------


class MemberTable(Sequence[tuple[str, int, int]]):
    """Compact table of names, offsets and sizes, in the order of insertion until it is sorted."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._ends, self._offsets, self._sizes = array("q", [0]), array("q"), array("q")
        self._order: array[int] | None = None
        self._last, self._is_sorted = b"", True

    def add(self, name: bytes, offset: int, size: int) -> None:
        """Add a member."""
        self._is_sorted &= self._last <= name
        self._last = name
        self._names += name
        self._ends.append(len(self._names))
        self._offsets.append(offset)
        self._sizes.append(size)

    def sort(self) -> None:
        """Sort by the bytes of the names; the sort is stable."""
        if not self._is_sorted:
            self._order = array("q", sorted(range(len(self)), key=self._name))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> tuple[str, int, int]:  # type: ignore[override] # no slices
        """Name, offset and size of a member."""
        at = index if self._order is None else self._order[index]
        return _text(self._name(at)), self._offsets[at], self._sizes[at]

    def _name(self, at: int) -> bytes:
        return bytes(self._names[self._ends[at] : self._ends[at + 1]])


@dataclass(frozen=True)
class TarSource(MemberSource[tuple[str, int, int]]):
    """The images of a tar archive, ordered by the bytes of their names; equal names in archive order."""

    path: Path = field(kw_only=True)

    def source_labels(self) -> SourceLabels | None:
        """The labels of WebDataset samples: the `.cls` file next to each image."""
        label_at: dict[int, object] = {}  # by offset of the image
        with _opened_tar(self.path) as file:
            for key, sample in _samples(file):
                own = [name for name in sample if name.endswith(".cls")]
                labels = {_label_in(file, name, *sample[name], self.name) for name in own}
                images = [offset for name, (offset, _) in sample.items() if name not in own]
                if len(labels) > 1 or (labels and not images):
                    text = f"{self.name} has no image next to the label of the key {short(key)!r} (the name up to its first dot), or "
                    text += "several labels; write each image next to its .cls file, with a key of its own"
                    raise DataError(text, code="label-conflict", path=self.name)
                label_at |= dict.fromkeys(images, *labels)
        by_image = [label_at.get(self.members[row][1]) for row in range(len(self))]
        return SourceLabels(by_image, f"labels in {self.name}") if set(by_image) != {None} else None


def open_tar(path: Path, name: str) -> TarSource:
    """List the images of an uncompressed tar archive; links, devices and what is no image are left out."""
    images, others = MemberTable(), Counter[str]()
    with _opened_tar(path) as file:
        files, start_of = regular_files(file, others), partial(_start_in_tar, file)
        for member in filter_images(files, lambda each: _text(each[0]), start_of, name, others):
            images.add(*member)
    images.sort()
    read = partial(_read_from_tar, path)
    return TarSource(name, images, itemgetter(0), read, count_suffixes(others), path=path)


def _start_in_tar(file: IO[bytes], member: tuple[bytes, int, int]) -> bytes:
    _, offset, size = member
    file.seek(offset)
    return file.read(min(START, size))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


@contextmanager
def _opened_tar(path: Path) -> Iterator[IO[bytes]]:
    with reraise_corrupt(path, "tar archive", code="archive-damaged"), open_regular(path) as file:
        yield file


def _read_from_tar(path: Path, member: tuple[str, int, int]) -> bytes:
    name, offset, size = member
    check_encoded_size(name, size)
    try:
        with open_regular(path) as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        raise unreadable_error(name, error.strerror) from error
    if len(data) != size:
        raise unreadable_error(
            name, f"{len(data):,} of {size:,} bytes are there; check that the file does not change"
        )
    return data


# --- labels of WebDataset samples -----------------------------------------------------------------------------------


def key_of(name: str) -> str:
    """The key of a WebDataset sample: the path up to the first dot of the file name."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.partition('.')[0]}"


def _samples(file: IO[bytes]) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Key, and offset and size by name, of consecutive images and labels of one key, as WebDataset reads them.

    A repeated name begins another sample, since archives may be joined.
    """
    key, sample = "", dict[str, tuple[int, int]]()
    for raw, offset, size in regular_files(file):
        name = _text(raw)
        is_label = name.endswith(".cls") and not is_hidden(name)
        if not is_label and not is_image(name, partial(_start_in_tar, file, (raw, offset, size))):
            continue
        if key_of(name) != key or name in sample:
            yield key, sample
            key, sample = key_of(name), {}
        sample[name] = offset, size
    yield key, sample


def _label_in(file: IO[bytes], name: str, offset: int, size: int, archive: str) -> int | str:
    """The class in a `.cls` member."""
    if size > SMALL_TEXT_BYTES:
        raise tarfile.ReadError(f"{name!r} has {size:,} bytes, more than a label needs")
    file.seek(offset)
    label = _read_fully(file, size)[: 4 * MAX_CLASS_NAME + 1].decode(errors="replace").strip()
    if not 0 < len(label) <= MAX_CLASS_NAME or "\ufffd" in label:
        text = f"{name} in {archive} is not a label (it is neither an integer nor a class name)"
        raise DataError(text, code="labels-damaged", path=name)
    return int(label) if re.fullmatch("[+-]?[0-9]+", label) else label
