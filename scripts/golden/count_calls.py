"""Count the genpr functions, files and call depth of one `genpr.score` of 60 + 60 images.

    python scripts/golden/count_calls.py [--list]

Each case is scored twice in one process, and the second call is counted with `sys.setprofile`, so that imports and
tables computed once do not count. A function is a qualified name in a file of the package, in any thread;
comprehensions and lambdas count under their qualified names, and generated methods of dataclasses have no file and do not count. The
depth is the largest number of genpr frames on one stack. GENPR_ROOT counts another checkout.
"""

import argparse
import functools
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(os.environ.get("GENPR_ROOT", Path(__file__).resolve().parents[2]))
PACKAGE = str(ROOT / "genpr") + os.sep
sys.path.insert(0, str(ROOT))

CASES: dict[str, dict[str, Any]] = {
    "precision and recall alone": {
        "metrics": ["precision", "recall"],
        "intervals": False,
        "control": False,
        "cache": False,
    },
    "everything at defaults": {},
}


class Calls:
    """The functions of the package that ran, each with its depth, and the largest depth."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], int] = {}
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count a call, as `sys.setprofile` reports it."""
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        depth = 0
        caller: FrameType | None = frame
        while caller is not None:
            depth += caller.f_code.co_filename.startswith(PACKAGE)
            caller = caller.f_back
        code = frame.f_code
        self.functions.setdefault((code.co_filename.removeprefix(PACKAGE), code.co_qualname), depth)
        self.depth = max(self.depth, depth)


def count_calls(run: Callable[[], object]) -> Calls:
    """The calls of genpr functions that `run` makes, on all threads."""
    calls = Calls()
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def main() -> None:
    """Print the counts of each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extractor", default="gabor")
    parser.add_argument("--list", action="store_true", help="print the functions, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        cache.mkdir(mode=0o700)
        os.environ["GENPR_CACHE"] = str(cache)
        import genpr

        real, fake = (
            write_images(Path(folder, "real"), 0),
            write_images(Path(folder, "fake"), 1),
        )
        for case, options in CASES.items():
            score = functools.partial(genpr.score, real, fake, extractor=arguments.extractor, **options)
            score()
            calls = count_calls(score)
            files = {file for file, _ in calls.functions}
            print(f"{case}: {len(calls.functions)} functions, {len(files)} files, depth {calls.depth}")
            if arguments.list:
                for (file, name), depth in sorted(calls.functions.items()):
                    print(f"  {depth:3} {file} {name}")


def write_images(folder: Path, seed: int) -> Path:
    """Write 60 PNG images of noise, 32 x 32 pixels, and return their folder."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    for index in range(60):
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(f"{folder}/{index:02}.png")
    return folder


if __name__ == "__main__":
    main()
