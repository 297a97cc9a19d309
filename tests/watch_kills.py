"""Watches that are killed: each runs in a process of its own, and gets SIGKILL before a line of genpr of its choice.

    python watch_kills.py REAL '{"FOLDER": [LINE, ...], ...}'

For every LINE a watch starts on FOLDER and is killed before it executes that many lines of the files that write scores;
then one runs to its end. Forked after the imports, which would take most of the time. Prints how many were killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from genpr import evaluator, score_log, storage, watching

FILES = {module.__file__ for module in (score_log, storage, watching)}
"""Where scores are written; `settrace` would make the others slow."""


def watch(real: str, folder: Path, killed_before: int | None) -> None:
    left = killed_before

    def tick(frame, event, _argument):
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return tick

    scores = evaluator.Evaluator(real, control=False, intervals=False)
    if left is not None:
        sys.settrace(tick)
    with score_log.ScoreLog(folder / "genpr.jsonl", stylegan=True) as log:
        watching.Watcher(scores, folder, log, settle=0, give_up=0).run(once=True)


def main(real: str, plan: dict[str, list[int]]) -> int:
    killed = 0
    for folder, lines in plan.items():
        for line in [*lines, None]:
            child = os.fork()
            if child == 0:
                watch(real, Path(folder), line)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            killed += os.WIFSIGNALED(status)
            if line is None and status:
                raise SystemExit(f"the last watch on {folder} ended with status {status}")
    return killed


if __name__ == "__main__":
    print(main(sys.argv[1], json.loads(sys.argv[2])))
