"""The cache folder: where it is, whose, on what disk, whether it can be written, and whether what it holds is whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from genpr.doctor.finding import Finding
from genpr.doctor.machine import mounted_as
from genpr.runtime import folder_risk

if TYPE_CHECKING:
    from genpr.features.cache_files import CacheFile

_LITTLE_DISK = 10**9
_SAMPLE_FILES, _SAMPLE_BYTES = 8, 100_000_000
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "afs",
    "9p",
    "panfs",
    "fuse.sshfs",
    "fuse.gcsfuse",
)
_ELSEWHERE = "set GENPR_CACHE to a folder of your own on a local disk"


def look_at_the_folder(root: Path) -> Iterator[Finding]:
    """Whether features and weights can be kept in `root`; without it genpr scores, and embeds anew each time."""
    there = _nearest(root)
    kind, free = mounted_as(there), shutil.disk_usage(there).free
    facts = {"path": str(root), "exists": root.is_dir(), "file_system": kind, "free": free}
    text = f"{root}, {free / 1e9:.1f} GB free" + ("" if root.exists() else ", not made yet")
    problem = _problem(root, there)
    if problem:
        yield Finding("cache", "warn", f"{text}; {problem}, so nothing is kept there", _ELSEWHERE, facts)
    elif free < _LITTLE_DISK:
        yield Finding(
            "cache", "warn", text, "genpr cache prune --max-size 1GB, or free space otherwise", facts
        )
    elif kind is not None and kind.startswith(_NETWORK):
        yield Finding(
            "cache", "warn", f"{text}; on a network file system ({kind}), which is slow", _ELSEWHERE, facts
        )
    else:
        yield Finding("cache", "ok", text, facts=facts)


def _nearest(path: Path) -> Path:
    """The folder that is, or that would hold it."""
    path = Path(os.path.realpath(path))
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _problem(root: Path, there: Path) -> str:
    """Why nothing can be kept in `root`; empty if something can. What is written to try that is removed."""
    if root.exists() and not root.is_dir():
        return "it is no folder"
    if not root.is_dir():
        return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"
    try:
        if risk := folder_risk(root):
            return risk
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"genpr doctor")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"it cannot be written ({error.strerror or error})"
    return ""


def look_at_shards(root: Path, *, full: bool = False) -> Iterator[Finding]:
    """Whether the files of features match their checksums: a few of them, or all if `full`."""
    from genpr.errors import DataError
    from genpr.features.cache_files import find_folders
    from genpr.storage import load_tensors

    if root.exists() and not root.is_dir():
        yield Finding("cached", "ok", "no features, since the cache is no folder", facts={"files": 0})
        return
    files = [file for folder in find_folders(root) for file in folder.files]
    looked_at = files if full else _sample(files)
    damaged = []
    for file in looked_at:
        try:
            load_tensors(file.path)
        except DataError:
            if file.path.exists():  # and was not pruned meanwhile
                damaged.append(str(file.path))
    size = sum(file.size for file in files)
    facts = {"files": len(files), "size": size, "looked_at": len(looked_at), "damaged": damaged}
    if not files:
        yield Finding("cached", "ok", "no features yet", facts=facts)
    elif damaged:
        yield Finding(
            "cached",
            "warn",
            f"{len(damaged)} of {len(looked_at)} cached files looked at are damaged, such as {Path(damaged[0]).name}; their "
            "images are embedded anew when they are next needed",
            "check the disk; rm the files that --json lists",
            facts,
        )
    else:
        some = "" if len(looked_at) == len(files) else f" of {len(looked_at)} (--full: all)"
        counted = "1 file" if len(files) == 1 else f"{len(files):,} files"
        text = f"{counted}, {size / 1e9:.2f} GB, none damaged{some}"
        yield Finding("cached", "ok", text, facts=facts)


def _sample(files: Sequence[CacheFile]) -> list[CacheFile]:
    """A few, evenly spread from the longest unused to the last used."""
    ordered = sorted(files, key=lambda file: (file.used, file.path))
    step = max(1, -(-len(ordered) // _SAMPLE_FILES))
    chosen: list[CacheFile] = []
    total = 0
    for file in ordered[::-step]:
        total += file.size
        if chosen and total > _SAMPLE_BYTES:
            break
        chosen.append(file)
    return chosen
