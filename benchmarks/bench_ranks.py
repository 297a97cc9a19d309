"""Time of 1, 2 and 4 processes for one score on this machine, separately for each kind of work.

    python benchmarks/bench_ranks.py --rows 20000 --images 4096 --out ranks.jsonl
    python benchmarks/bench_ranks.py --rows 200000 --dim 256 --kinds gather

`gather` brings the rows of one side, of which each rank has a part, to all ranks. `peak_gb_of_one` includes `gb_before`:
Python, libraries and, but for the gathers, all features.

The wall-clock time and the processor time of all ranks are reported. The latter shows the overhead of the division when there are no
more cores. Results of all runs must be equal to the bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _shared import append_record, describe_machine

import genpr
from genpr.distributed import Communicator

_SHAPE = 64, 64, 3
_KINDS = "embed", "score", "gather"


def features(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Reals and fakes like features of networks: non-negative, with 64 leading directions and noise."""
    rng = np.random.default_rng(0)
    directions = 0.3 * rng.normal(size=(64, dim))
    sides = [
        np.maximum(0, rng.normal(size=(rows, 64)) @ directions + rng.normal(size=(rows, dim)))
        for _ in range(2)
    ]
    return sides[0].astype(np.float32), sides[1].astype(np.float32)


_BLOCK = 100  # rows of one seed


def some_features(first: int, last: int, dim: int) -> np.ndarray:
    """Rows `first` to `last`, the same for any division."""
    rows = np.empty((last - first, dim), np.float32)
    for number in range(first // _BLOCK, -(-last // _BLOCK)):
        block = np.random.default_rng(number).normal(size=(_BLOCK, dim))
        start, end = max(first, number * _BLOCK), min(last, (number + 1) * _BLOCK)
        rows[start - first : end - first] = block[start - number * _BLOCK : end - number * _BLOCK]
    return rows


def prepared(kind: str, args: argparse.Namespace, communicator: Communicator) -> Callable[[], bytes]:
    """The work of one rank, which gives the bytes that all ranks must agree on."""
    if kind == "embed":
        pixels = np.random.default_rng(0).integers(0, 256, (args.images, *_SHAPE), dtype=np.uint8)
        extractor = genpr.load_extractor(args.extractor, device=args.device)
        return lambda: genpr.embed(pixels, extractor).numpy().tobytes()
    if kind == "score":
        sides = features(args.rows, args.dim)

        def score() -> bytes:
            record = genpr.score(*sides, device=args.device).to_dict()
            del record["seconds"]
            return json.dumps(record, sort_keys=True).encode()

        return score
    first, last = (args.rows * (communicator.rank + one) // communicator.size for one in (0, 1))
    rows = torch.from_numpy(some_features(first, last, args.dim)).to(args.device)

    def sample() -> bytes:
        """Every 1,000th row of all parts together, whatever their sizes."""
        found, start = [], 0
        for part in communicator.all_gather(rows):
            found.append(bytes(part[-start % 1000 :: 1000].cpu().numpy()))
            start += len(part)
        return b"".join(found)

    return sample


def work(kind: str, args: argparse.Namespace) -> dict[str, object]:
    """One rank: seconds of the clock and of its processor, and a hash of what it found."""
    with genpr.all_ranks(device=args.device) as communicator:  # which chooses the GPU
        run = prepared(kind, args, communicator)
        before = resource.getrusage(resource.RUSAGE_SELF)
        communicator.all_gather_object("ready")
        started = time.perf_counter()
        found = run()
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        own: dict[str, float | str] = {"seconds": seconds, "processor": processor, "peak_kb": after.ru_maxrss}
        own |= {"sha256": hashlib.sha256(found).hexdigest(), "threads": torch.get_num_threads()}
        own |= {"before_kb": before.ru_maxrss}
        results = communicator.all_gather_object(own)
    assert len({each["sha256"] for each in results}) == 1
    return {
        "kind": kind,
        "ranks": len(results),
        "threads_per_rank": own["threads"],
        "seconds": max(each["seconds"] for each in results),
        "processor_seconds": sum(each["processor"] for each in results),
        "gb_before": max(each["before_kb"] for each in results) / 2**20,
        "peak_gb_of_one": max(each["peak_kb"] for each in results) / 2**20,
        "sha256": own["sha256"],
    }


def run(kind: str, ranks: int, argv: list[str]) -> dict[str, object]:
    """Run all ranks of one case."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        processes = []
        for rank in range(ranks):
            launched = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            launched |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            own_argv = ["--as-rank", kind, "--result", str(out)] if rank == 0 else ["--as-rank", kind]
            processes.append(
                subprocess.Popen([sys.executable, __file__, *argv, *own_argv], env=os.environ | launched)
            )
        codes = [process.wait() for process in processes]  # of all, before any is checked
        if any(codes):
            raise SystemExit("a rank failed")
        found: dict[str, object] = json.loads(out.read_text())
    return found


def main() -> None:
    """Run the requested cases, and append a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000, help="Number of rows of each set.")
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--images", type=int, default=4096, help="64 x 64 pixels each; blocks are of 2,048.")
    parser.add_argument("--extractor", default="gabor")
    parser.add_argument("--device", default="cpu", help="Device; with cuda, each rank uses its own GPU.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kinds", nargs="+", default=["embed", "score"], choices=_KINDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as-rank", choices=_KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        found = work(args.as_rank, args)
        if args.result:
            args.result.write_text(json.dumps(found))
        return
    machine = describe_machine(threads=os.cpu_count() or 1, device=args.device)
    for kind in args.kinds:
        seen = set()
        for ranks in args.ranks:
            load = os.getloadavg()[0]
            found = run(kind, ranks, sys.argv[1:])
            seen.add(found["sha256"])
            options = {name: getattr(args, name) for name in ("rows", "dim", "images", "extractor")}
            print(found, flush=True)
            if args.out:
                append_record(args.out, "ranks", machine, options=options, load_before=load, **found)
        assert len(seen) == 1, "results depend on the number of ranks"


if __name__ == "__main__":
    main()
