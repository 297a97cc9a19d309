"""Cache writes that are killed, each before a line of its choice.

    python cache_kills.py FOLDER

Fifty caches in FOLDER get eight images in four shards; each of their writers is killed before it executes a random number of
lines of the files that write. Prints how many were killed.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from kills import run_killed

from genpr import storage
from genpr.features import cache
from genpr.features.extractor import ExtractorInfo

INFO = ExtractorInfo("toy", 3, "none", None, comparable=False, cache_key="a" * 64)


def write(root: Path) -> None:
    cache.SHARD_ROWS = 2
    found = cache.FeatureCache(root, INFO, "cpu")
    for number in range(1, 9):
        image = cache.CachedImage(torch.full((3,), float(number)))
        found.add([number.to_bytes(32, "big")], [image])
    found.flush()


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    write(folder / "0")  # imports what writing needs
    draw, killed = random.Random(0), 0
    for trial in range(50):
        lines = [draw.randint(1, 420)]
        killed += run_killed(
            partial(write, folder / f"{trial + 1}"), lines, {storage.__file__, cache.__file__}
        )
    return killed


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
