"""A process that works through cases and tells of each before and after: `python -m fuzz.worker SEED FIRST LAST KIND...`.

It may die or hang of one: whoever started it then knows of which.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import warnings
from pathlib import Path

from fuzz.case import MOST_BYTES, Case, case_of, outcome_of
from fuzz.kinds import kinds


def main(seed: int, first: int, last: int, names: list[str]) -> None:
    """Cases `first` to `last`, of which each is of the next kind."""
    logging.disable()
    warnings.simplefilter("ignore")
    out = sys.stdout
    for name in names:  # what is imported and reserved once is no input's doing
        for number, data in enumerate(kinds()[name].files):
            finding = outcome_of(Case(name, f"valid/{number}", data, ())).finding
            assert finding is None, f"valid file {number} of {name}: {finding}"
    limit = _virtual_bytes() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in range(first, last):
        case = case_of(seed, names[number % len(names)], number)
        print(json.dumps({"begin": case.name, "number": number, "kind": case.kind}), file=out, flush=True)
        outcome = outcome_of(case)
        told = {"result": outcome.result, "seconds": outcome.seconds, "finding": outcome.finding}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**told, "peak": peak, "bytes": len(case.data)}), file=out, flush=True)


def _virtual_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
