"""Watches that are killed, each before a line of its choice.

    python watch_kills.py REAL '{"FOLDER": [LINE, ...], ...}'

For every LINE a watch starts on FOLDER and is killed before it executes that many lines of the files that write scores;
then one runs to its end. Prints how many were killed.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

from genpr import storage
from genpr.checkpoints import score_log, watch
from genpr.evaluation import evaluator

FILES = {module.__file__ for module in (score_log, storage, watch)}  # only these; tracing makes them slow


def run_watch(real: str, folder: Path, line: int | None) -> bool:
    """Watch in a process that is forked after the imports, which take most of the time; whether it was killed."""
    child = os.fork()
    if child == 0:
        if line is not None:
            die_before(line)
        scores = evaluator.Evaluator(real, control=False, intervals=False)
        with score_log.ScoreLog(folder / "genpr.jsonl") as log:
            watch.Watcher(scores, folder, log, settle=0).run(once=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if line is None and status:
        raise SystemExit(f"work that was left alone ended with status {status}")
    return os.WIFSIGNALED(status)


def die_before(line: int) -> None:
    left = line

    def advance(frame, event, _argument):
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return advance

    sys.settrace(advance)


def main(real: str, plan: dict[str, list[int]]) -> int:
    torch.set_num_threads(1)  # threads do not survive a fork
    evaluator.Evaluator(real, control=False, intervals=False).score(real)  # imports what is loaded late
    return sum(
        run_watch(real, Path(folder), line) for folder, lines in plan.items() for line in [*lines, None]
    )


if __name__ == "__main__":
    print(main(sys.argv[1], json.loads(sys.argv[2])))
