"""Writes an archive of very many tiny images and lists it, or one of shards; prints images, bytes of growth and seconds.

python million_members.py FOLDER IMAGES SHARDS
"""

from __future__ import annotations

import re
import sys
import tarfile
import time
from pathlib import Path

from genpr.images.source import open_source


def write(path: Path, numbers: range) -> None:
    """The images in an order that is not the one of their names, each with its class."""
    data = b"\x89PNG" + bytes(100)
    with path.open("wb", buffering=2**20) as file:
        for number in reversed(numbers):
            for suffix, content in ((".png", data), (".cls", b"7")):
                info = tarfile.TarInfo(f"{number:09d}{suffix}")
                info.size = len(content)
                file.write(info.tobuf(tarfile.USTAR_FORMAT) + content.ljust(512, b"\0"))
        file.write(bytes(1024))


def memory(key: str) -> int:
    """What `resource` tells includes the parent's before it forked."""
    return 1024 * int(re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def main(folder: Path, images: int, shards: int) -> None:
    for shard in range(shards):
        write(folder / f"{shard:03d}.tar", range(shard * images // shards, (shard + 1) * images // shards))
    before = memory("VmRSS")
    started = time.perf_counter()
    source = open_source(str(folder / "*.tar"))
    seconds = time.perf_counter() - started
    print(len(source), memory("VmHWM") - before, seconds, next(iter(source)).name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
