"""Feed genpr with damaged files and command lines, and keep what it should not have done.

    python scripts/fuzz.py --seed 1 --inputs 100000 --out fuzzed/
    python scripts/fuzz.py --seed 1 --kind png --kind command --minutes 5
    python scripts/fuzz.py --again fuzzed/1-png-4711.json

Only a score or a GenprError may come out: no other exception, no crash, no input of more than 5 s or 1 GB, no program
started, nothing written elsewhere. Every input follows from the seed, its kind and its number; each finding is kept
in --out, with the input itself. Exits 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # this script is called as the package that it drives

HANG_S = 60.0  # of wall-clock time; the limit of processor time is the worker's
START_S = 300.0


@dataclass
class Tally:
    """What came of one kind."""

    inputs: int = 0
    results: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    slowest_name: str = ""
    peak: int = 0


def main() -> int:
    """Run, print a table, and say by the exit code whether anything was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=10_000, help="over all kinds together")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input, to go on from an earlier run"
    )
    parser.add_argument("--kind", action="append", default=[], help="only this kind; may be repeated")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument(
        "--out", type=Path, default=Path("fuzzed"), help="folder of findings and of tally.json"
    )
    parser.add_argument("--again", type=Path, help="a finding, to be given to genpr once more")
    args = parser.parse_args()
    from fuzz.kinds import kinds

    if args.again:
        return again(args.again)
    names = args.kind or list(kinds())
    args.out.mkdir(parents=True, exist_ok=True)
    tallies = {name: Tally() for name in names}
    deadline, done, number_of_findings = time.monotonic() + 60 * args.minutes, 0, 0
    for record in records(args.seed, args.first, args.first + args.inputs, names):
        tally = tallies[record["kind"]]
        tally.inputs, done = tally.inputs + 1, done + 1
        tally.results[record["result"]] += 1
        tally.peak = max(tally.peak, record["peak"])
        if record["seconds"] > tally.slowest:
            tally.slowest, tally.slowest_name = record["seconds"], record["begin"]
        if record["finding"]:
            number_of_findings += 1
            keep(args.out, args.seed, record)
        if done % 1000 == 0:
            write_tally(args, tallies)
            print(f"{done:,} inputs, {number_of_findings} findings", file=sys.stderr)
        if time.monotonic() > deadline:
            break
    write_tally(args, tallies)
    print(table(tallies))
    return int(number_of_findings > 0)


def records(seed: int, first: int, last: int, names: list[str]) -> Iterator[dict[str, Any]]:
    """One record per case; a worker that dies or hangs is replaced by another, which goes on behind the case."""
    while first < last:
        command = [sys.executable, "-m", "fuzz.worker", str(seed), str(first), str(last), *names]
        paths = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])
        # Every thread that ever ran would else keep 64 MB of addresses, which the worker's limit counts.
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as worker:
            begun: dict[str, Any] | None = None
            for line in lines(worker):
                told = json.loads(line)
                if "begin" in told:
                    begun = told
                elif begun is not None:
                    yield {**begun, **told}
                    first, begun = begun["number"] + 1, None
            worker.kill()
            code = worker.wait()
        if begun is not None:
            how = "hung" if code == -9 else f"died ({code})"
            yield {**begun, "result": "finding", "seconds": HANG_S, "peak": 0, "finding": f"the worker {how}"}
            first = begun["number"] + 1
        elif first < last and code not in {0, -9}:
            raise SystemExit(f"the worker ended with {code} before its first case")


def lines(worker: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Its lines, until it ends or is silent for too long."""
    assert worker.stdout is not None
    selector = selectors.DefaultSelector()
    selector.register(worker.stdout, selectors.EVENT_READ)
    rest, patience = b"", START_S
    while selector.select(patience):
        patience = HANG_S
        chunk = os.read(worker.stdout.fileno(), 1 << 16)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def keep(folder: Path, seed: int, record: dict[str, Any]) -> None:
    """The finding, and the input that made it."""
    from fuzz.case import case_of

    case = case_of(seed, record["kind"], record["number"])
    path = folder / f"{case.name.replace('/', '-')}.json"
    facts = {"seed": seed, "kind": case.kind, "number": record["number"], "steps": case.steps}
    path.write_text(json.dumps({**facts, "finding": record["finding"]}, indent=1) + "\n")
    path.with_suffix(".input").write_bytes(case.data)
    print(f"finding {case.name}: {record['finding'].strip().splitlines()[-1][:200]}", file=sys.stderr)


def again(path: Path) -> int:
    """The same input once more, in this process."""
    from fuzz.case import Case, outcome_of

    record = json.loads(path.read_text())
    data = path.with_suffix(".input").read_bytes()
    outcome = outcome_of(Case(record["kind"], str(path), data, tuple(record["steps"])))
    print(outcome.finding or f"{outcome.result}, {outcome.seconds:.3f} s")
    return int(outcome.finding is not None)


def write_tally(args: argparse.Namespace, tallies: dict[str, Tally]) -> None:
    """The numbers so far, for whoever looks at a long run."""
    found = {name: vars(tally) for name, tally in tallies.items()}
    (args.out / "tally.json").write_text(
        json.dumps({"seed": args.seed, "first": args.first, "kinds": found}, indent=1)
    )


def table(tallies: dict[str, Tally]) -> str:
    """As Markdown."""
    rows = [
        "| kind | inputs | scores | errors, by code | slowest, s | findings |",
        "|---|---|---|---|---|---|",
    ]
    for name, tally in tallies.items():
        rest = Counter(tally.results)
        scores, found = rest.pop("score", 0) + rest.pop("exit 0", 0), rest.pop("finding", 0)
        codes = ", ".join(f"{code} {count:,}" for code, count in rest.most_common())
        rows.append(f"| {name} | {tally.inputs:,} | {scores:,} | {codes} | {tally.slowest:.2f} | {found} |")
    total = sum(tally.inputs for tally in tallies.values())
    peak = max((tally.peak for tally in tallies.values()), default=0)
    return "\n".join([*rows, "", f"{total:,} inputs; peak memory of a worker {peak / 2**20:,.0f} MB"])


if __name__ == "__main__":
    raise SystemExit(main())
