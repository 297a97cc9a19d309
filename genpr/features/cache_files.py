"""What the feature cache holds on disk, and how it is made smaller: the longest unused files go first.

Only files that genpr wrote are counted or removed. A running genpr may share the folder: a shard is one file that is
there or not, and one that goes is embedded again. Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genpr.errors import ResourceError, UsageError
from genpr.limits import SMALL_TEXT_BYTES, parse_json, read_bytes
from genpr.storage import open_regular, read_metadata

SHARD_FORMAT = "genpr.cache/1"
_FOLDER = re.compile(r"(?P<slug>.*)-[0-9a-f]{16}")
_SHARD = re.compile(r"[0-9a-f]{32}\.safetensors")
_LEFT_OVER = re.compile(
    r"\.[0-9a-f]{32}\.safetensors\.[^.]+\.tmp"
)  # of a process that was killed while it wrote
_OTHER_PARTS = ("weights", "scratch")  # what genpr keeps beside the features
_ABANDONED_S = 3600.0  # a shard is written in seconds


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One file of the cache.

    Attributes:
        path: Where it is.
        size: In bytes.
        used: When it was last read or written, in seconds since 1970.
    """

    path: Path
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """The features that one function made: extractor, weights, resize rule, decoder and device.

    Attributes:
        path: Where they are.
        extractor: Its name; the start of the folder's name where its description is missing.
        key: All that chooses the folder, as its description says; empty where that is missing.
        files: Shards, the longest unused first.
    """

    path: Path
    extractor: str
    key: dict[str, Any]
    files: tuple[CacheFile, ...]

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(file.size for file in self.files)

    @property
    def used(self) -> float | None:
        """When any of it was last read or written, in seconds since 1970; None if it is empty."""
        return max((file.used for file in self.files), default=None)

    def count_rows(self) -> int:
        """Images whose features it holds, by the headers of its files; of damaged or vanished ones none."""
        return sum(map(_rows_in, self.files))


def find_folders(root: Path) -> list[CacheFolder]:
    """Everything in the feature cache below `root`, by name; nothing where no cache was ever made.

    Raises:
        UsageError: `root` is a folder, but no cache of genpr ("not-a-cache").
        ResourceError: It cannot be read.
    """
    try:
        entries = sorted(path.name for path in root.iterdir()) if root.exists() else []
        inside = sorted((root / "features").iterdir()) if "features" in entries else []
    except OSError as error:
        raise _unusable(root, "read", error) from error
    folders = [folder for path in inside if (folder := _folder_at(path)) is not None]
    if not folders and (inside or (entries and not {"features", *_OTHER_PARTS} & set(entries))):
        raise UsageError(
            f"{root} is no cache of genpr: it holds {', '.join(entries[:3])}{', ...' * (len(entries) > 3)} and no "
            "features that genpr wrote; give the folder that --cache-dir or GENPR_CACHE named when they were made",
            code="not-a-cache",
            path=str(root),
        )
    return folders


def shards_in(folder: Path) -> list[Path]:
    """The shards in the folder of one function, by name.

    Raises:
        ResourceError: It cannot be listed ("cache-unusable").
    """
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".safetensors")
    except OSError as error:
        raise _unusable(folder, "listed", error) from error


def choose_files(
    folders: Sequence[CacheFolder],
    *,
    max_size: int | None = None,
    older_than: float | None = None,
    now: float | None = None,
) -> list[CacheFile]:
    """The files that have to go, the longest unused first.

    Args:
        folders: Where from.
        max_size: Bytes that may stay in all of `folders` together.
        older_than: Seconds; what was not used for so long goes, whatever the size.
        now: Seconds since 1970; None for the clock's.

    Returns:
        With neither limit, all of them.
    """
    files = sorted(
        (file for folder in folders for file in folder.files), key=lambda file: (file.used, file.path)
    )
    if max_size is None and older_than is None:
        return files
    before = -float("inf") if older_than is None else (time.time() if now is None else now) - older_than
    left = sum(file.size for file in files)
    chosen = []
    for file in files:
        if file.used >= before and (max_size is None or left <= max_size):
            break  # so are all that were used later
        chosen.append(file)
        left -= file.size
    return chosen


def remove_files(files: Sequence[CacheFile]) -> list[CacheFile]:
    """Remove those that were not used since they were listed.

    Returns:
        What was removed.

    Raises:
        ResourceError: One cannot be removed ("cache-unusable").
    """
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


def abandoned_files(folders: Sequence[CacheFolder], *, now: float | None = None) -> list[CacheFile]:
    """What killed processes left half-written, an hour ago or longer."""
    before = (time.time() if now is None else now) - _ABANDONED_S
    return [file for folder in folders for file in _files_in(folder.path, _LEFT_OVER) if file.used < before]


def _folder_at(path: Path) -> CacheFolder | None:
    """The folder of one function, if it is one: by its name, and by what describes it or the shards in it."""
    match = _FOLDER.fullmatch(path.name)
    if match is None or path.is_symlink() or not path.is_dir():
        return None
    key: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        with open_regular(path / "key.json") as file:
            read = parse_json(
                read_bytes(file, SMALL_TEXT_BYTES, name=path.name, what="a key", code="not-a-cache")
            )
        key = read if isinstance(read, dict) and "feature_version" in read else {}
    files = tuple(sorted(_files_in(path, _SHARD), key=lambda file: (file.used, file.path)))
    if not key and not any(map(_is_shard, files)):
        return None
    return CacheFolder(path, str(key.get("extractor", match["slug"])), key, files)


def _files_in(folder: Path, pattern: re.Pattern[str]) -> Iterator[CacheFile]:
    """Regular files of a name; not links, which may lead anywhere."""
    for path in folder.iterdir():
        if pattern.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield CacheFile(path, status.st_size, status.st_mtime)


def _is_shard(file: CacheFile) -> bool:
    try:
        return read_metadata(file.path).get("format") == SHARD_FORMAT
    except ValueError:  # damaged
        return False


def _rows_in(file: CacheFile) -> int:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="numpy") as shard:
            return int(shard.get_slice("identities").get_shape()[0])
    except (SafetensorError, OSError, ValueError):
        return 0


def _unusable(path: Path, what: str, error: OSError) -> ResourceError:
    return ResourceError(
        f"{path} cannot be {what} ({error.strerror or error}); does it belong to somebody else?",
        code="cache-unusable",
        path=str(path),
    )
