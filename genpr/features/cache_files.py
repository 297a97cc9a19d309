"""List and prune the feature cache on disk; the least recently used files are removed first.

Only files that genpr wrote are counted or removed. Other processes may use the folder at the same time; the images of a
removed shard are embedded again. Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genpr.errors import DataError, ResourceError, UsageError, some
from genpr.limits import SMALL_TEXT_BYTES, parse_json, read_bytes
from genpr.storage import open_regular, read_header

_FOLDER = re.compile(r".*-[0-9a-f]{16}")
# Also temporary files.
_SHARD = re.compile(r"[0-9a-f]{32}\.safetensors|\.[0-9a-f]{32}\.safetensors\.[^.]+\.tmp")
_OTHER_PARTS = ("weights", "scratch")  # other folders in the cache


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One file of the cache: its size in bytes and the time of its last use, in seconds since 1970."""

    path: Path
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """The cached features of one function; `key` has its extractor, weights, resize rule, decoder and device."""

    path: Path
    extractor: str
    key: dict[str, Any]
    files: tuple[CacheFile, ...]  # shards, and temporary files of killed processes

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(file.size for file in self.files)

    @property
    def used(self) -> float | None:
        """Time of the last use of any file, in seconds since 1970; None if it is empty."""
        return max((file.used for file in self.files), default=None)

    def count_rows(self) -> int:
        """The number of images, by the headers of the files; damaged or removed files count as empty."""
        n = 0
        for file in self.files:
            with contextlib.suppress(DataError, OSError, LookupError):
                n += read_header(file.path)[1]["identities"][0]
        return n


def find_folders(root: Path) -> list[CacheFolder]:
    """All folders of the feature cache below `root`, sorted by name."""
    try:
        entries = sorted(path.name for path in root.iterdir()) if root.exists() else []
        inside = sorted((root / "features").iterdir()) if "features" in entries else []
    except OSError as error:
        raise _unusable(root, "read", error) from error
    folders = [folder for path in inside if (folder := _folder_at(path)) is not None]
    if not folders and (inside or (entries and not {"features", *_OTHER_PARTS} & set(entries))):
        text = f"{root} is not a cache of genpr (it has {some(entries, 3)}); give the folder of --cache-dir or GENPR_CACHE"
        raise UsageError(text, code="not-a-cache", path=str(root))
    return folders


def choose_files(
    folders: Sequence[CacheFolder], *, max_size: int | None = None, used_before: float | None = None
) -> list[CacheFile]:
    """Files that were last used before `used_before`, and the least recently used ones beyond `max_size` bytes."""
    every = [file for folder in folders for file in folder.files]
    files = sorted(every, key=lambda file: (file.used, file.path))
    left, chosen = sum(file.size for file in files), []
    for file in files:
        is_old = used_before is not None and file.used < used_before
        if not is_old and (max_size is None or left <= max_size):
            break  # all others were used later
        chosen.append(file)
        left -= file.size
    return chosen


def remove_files(files: Sequence[CacheFile]) -> list[CacheFile]:
    """Remove the files that were not used since they were listed, and return them."""
    removed = []
    for file in files:
        try:
            if file.path.lstat().st_mtime > file.used:
                continue  # in use again
            file.path.unlink()
        except FileNotFoundError:
            continue  # another process prunes
        except OSError as error:
            raise _unusable(file.path, "removed", error) from error
        removed.append(file)
    return removed


def _folder_at(path: Path) -> CacheFolder | None:
    """The cache folder at `path`; None if its name or its description is not that of one."""
    if not _FOLDER.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return None
    try:
        with open_regular(path / "key.json") as file:
            text = read_bytes(file, SMALL_TEXT_BYTES, name=path.name, what="a key", code="not-a-cache")
        key = parse_json(text)
        extractor = str(key["extractor"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return CacheFolder(path, extractor, key, tuple(_files_in(path)))


def _files_in(folder: Path) -> Iterator[CacheFile]:
    """Regular files with names of shards, without links, whose targets may be anywhere."""
    for path in sorted(folder.iterdir()):
        if _SHARD.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield CacheFile(path, status.st_size, status.st_mtime)


def _unusable(path: Path, what: str, error: OSError) -> ResourceError:
    text = f"{path} cannot be {what} ({error.strerror or error}); check its owner and permissions"
    return ResourceError(text, code="cache-unusable", path=str(path))
