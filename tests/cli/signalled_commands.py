"""Commands that get signals, each forked from one process that has imported what they need, which takes most of the time.

    python signalled_commands.py < CASES

Each line of CASES is a JSON object: `args`, the command line; `signals`, a list of [seconds to wait, name]; `ready`, a file
that the command makes when the waiting begins, or null; `env`, what to add to the environment. Prints a JSON line for each:
`code`, `out`, `err`, and `seconds` from the last signal to the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from genpr.__main__ import main
from genpr.cli import ranks, score  # noqa: F401
from genpr.evaluation import evaluator  # noqa: F401

_LONGEST_S = 60


def play(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one case."""
    out, err = folder / "out", folder / "err"
    child = os.fork()
    if child == 0:
        for path, descriptor in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.environ.update(case["env"])
        # Both may be ignored where the tests run in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.argv = ["genpr", *case["args"]]
        try:
            main()
        except SystemExit as left:
            sys.stdout.flush()
            os._exit(left.code)
    deadline = time.monotonic() + _LONGEST_S
    while case["ready"] and not Path(case["ready"]).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for wait, name in case["signals"]:
        time.sleep(wait)
        os.kill(child, getattr(signal, name))
    sent = time.monotonic()
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - sent
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "out": out.read_text(), "err": err.read_text(), "seconds": seconds}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        with TemporaryDirectory() as name:
            print(json.dumps(play(json.loads(line), Path(name))), flush=True)
