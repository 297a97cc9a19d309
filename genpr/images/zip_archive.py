"""Images in zip archives, read where they lie and never extracted: member names are only labels."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from genpr.errors import DataError, ImageError
from genpr.images.damage import DAMAGE, damage_reported
from genpr.images.item import (
    MAX_ENCODED_BYTES,
    ImageSource,
    Item,
    is_image_name,
    printable,
    too_large_to_read,
    unreadable,
)
from genpr.images.others import OtherFiles, log_others, no_images
from genpr.images.zip_members import read_member

_ENCRYPTED = 0x1  # zip flag bit


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
    files = [member for member in archive.infolist() if not _is_folder(member) and not _is_zip_link(member)]
    images = sorted((member for member in files if is_image_name(member.filename)), key=_zip_name_bytes)
    others = OtherFiles(member.filename for member in files if not is_image_name(member.filename))
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


def _is_folder(member: zipfile.ZipInfo) -> bool:
    """As `ZipInfo.is_dir`, which fails at a member without a name before Python 3.12."""
    return member.filename.endswith("/")


def _is_zip_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(member.external_attr >> 16)


def _zip_name_bytes(member: zipfile.ZipInfo) -> bytes:
    return member.filename.encode("utf-8", "surrogateescape")


def _read_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    name, size = member.filename, member.file_size
    if size > MAX_ENCODED_BYTES:
        raise too_large_to_read(name, size)
    try:
        return read_member(archive, member)
    except DataError as error:
        raise ImageError(printable(str(error)), code=error.code, path=name) from error
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
