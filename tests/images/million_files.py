"""Lists a folder of a million images that no disk holds, and prints the peak memory in bytes, seconds, and the first name.

python million_files.py IMAGES OTHERS
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from genpr.images.folder import open_folder

PER_FOLDER = 1000


class Entry:
    """A directory entry, as much as listing looks at."""

    __slots__ = ("is_folder", "name")

    def __init__(self, name: str, *, is_folder: bool) -> None:
        self.name, self.is_folder = name, is_folder

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        return self.is_folder

    def is_file(self, *, follow_symlinks: bool) -> bool:
        return not self.is_folder


def folder_of(images: int, others: int):
    """What stands in for `os.scandir`."""

    @contextmanager
    def scan(path):
        if Path(path) == Path("root"):
            yield (
                Entry(f"n{number:08d}", is_folder=True) for number in reversed(range(images // PER_FOLDER))
            )
            return
        name = Path(path).name
        images_here = (f"{name}_{number:06d}.JPEG" for number in range(PER_FOLDER))
        others_here = (f"{name}_{number:06d}.txt" for number in range(others * PER_FOLDER // images))
        yield (Entry(each, is_folder=False) for names in (images_here, others_here) for each in names)

    return scan


def main(images: int, others: int) -> None:
    os.scandir = folder_of(images, others)
    started = time.perf_counter()
    source = open_folder(Path("root"), "root")
    seconds = time.perf_counter() - started
    assert len(source) == images
    status = Path(
        "/proc/self/status"
    ).read_text()  # what `resource` tells includes the parent's before it forked
    peak = 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])
    print(peak, seconds, next(iter(source)).name)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
