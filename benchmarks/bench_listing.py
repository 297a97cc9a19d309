"""Cost of listing a million images in tar shards and other sources, compared with `tarfile` of the standard library.

    python benchmarks/bench_listing.py                     # 100 shards of 10,000 images 8 x 8; 2 GB of disk
    python benchmarks/bench_listing.py --images 100000 --shards 10 --only genpr

Each method runs in a separate process, which reports how many seconds it took, how many of them it computed (the rest waited, for
the disk or for others on the machine), and by how much its memory grew. The files are in the page cache.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from _shared import describe_machine, kib_line
from PIL import Image

_SIDE = 8
_STATUS = "/proc/self/status"


def main() -> None:
    """Write the images, list them in each way, print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="keeps the files, and finds those of the last run")
    parser.add_argument("--only", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--list", dest="way", choices=list(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(_listed(WAYS[options.way], options.folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        _write(folder, options.images, options.shards)
        print(
            json.dumps(
                {
                    "machine": asdict(describe_machine(threads=1, device="cpu")),
                    "images": options.images,
                    "shards": options.shards,
                }
            )
        )
        for way in options.only:
            command = [sys.executable, __file__, "--list", way, "--folder", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(json.dumps({"way": way, **json.loads(done.stdout)}), flush=True)


def _write(folder: Path, images: int, shards: int) -> None:
    """Tar shards as WebDataset's tools write them: an image and its class, one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for shard in range(shards):
        path = folder / f"train-{shard:06d}.tar"
        if path.exists():
            continue
        with path.open("wb", buffering=2**20) as file:
            for number in range(shard * images // shards, (shard + 1) * images // shards):
                encoded = io.BytesIO()
                Image.fromarray(rng.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)).save(encoded, "PNG")
                for suffix, data in ((".png", encoded.getvalue()), (".cls", str(number % 1000).encode())):
                    info = tarfile.TarInfo(f"{number:09d}{suffix}")
                    info.size = len(data)
                    file.write(
                        info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)
                    )
            file.write(bytes(2 * tarfile.BLOCKSIZE))


def _listed(way: Callable[[Path], tuple[int, object]], folder: Path) -> dict[str, object]:
    before, started, used = kib_line(_STATUS, "VmRSS"), time.perf_counter(), time.process_time()
    count, kept = way(folder)
    return {
        "images": count,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "peak_growth_mb": (kib_line(_STATUS, "VmHWM") - before) // 2**20,
        "kept_growth_mb": (kib_line(_STATUS, "VmRSS") - before) // 2**20,
        "kept": type(kept).__name__,
    }


def _genpr(folder: Path) -> tuple[int, object]:
    """All shards as one source."""
    from genpr.images.source import open_source

    source = open_source(f"{folder}/*.tar")
    return len(source), source


def _genpr_labels(folder: Path) -> tuple[int, object]:
    """All shards as one source, with the class of each image in the next member."""
    from genpr.images.source import open_source

    source = open_source(f"{folder}/*.tar")
    stated = source.source_labels()
    assert stated is not None
    return len(stated.labels), (source, stated)


def _tarfile(folder: Path) -> tuple[int, object]:
    """Every header, as `TarFile.getmembers` keeps them."""
    kept = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path, "r:") as archive:
            kept += [member for member in archive.getmembers() if member.name.endswith(".png")]
    return len(kept), kept


def _tarfile_names(folder: Path) -> tuple[int, object]:
    """Headers are dropped as they come; a tuple of name, offset and size is kept of each image."""
    kept = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path, "r:") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]
                if member.name.endswith(".png"):
                    kept.append((member.name, member.offset_data, member.size))
    return len(kept), kept


WAYS: dict[str, Callable[[Path], tuple[int, object]]] = {
    "genpr": _genpr,
    "genpr with labels": _genpr_labels,
    "tarfile, names kept": _tarfile_names,
    "tarfile, getmembers": _tarfile,
}


if __name__ == "__main__":
    main()
