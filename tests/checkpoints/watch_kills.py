"""Watches that are killed, each before a line of its choice.

    python watch_kills.py REAL '{"FOLDER": [LINE, ...], ...}'

For every LINE a watch starts on FOLDER and is killed before it executes that many lines of the files that write scores;
then one runs to its end. Prints how many were killed.
"""

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import torch
from kills import run_killed

from genpr import storage
from genpr.checkpoints import score_log, watch
from genpr.evaluation import evaluator

FILES = {module.__file__ for module in (score_log, storage, watch)}


def run_watch(real: str, folder: Path) -> None:
    scores = evaluator.Evaluator(real, control=False, intervals=False)
    with score_log.ScoreLog(folder / "genpr.jsonl") as log:
        watch.Watcher(scores, folder, log, settle=0).run(once=True)


def main(real: str, plan: dict[str, list[int]]) -> int:
    torch.set_num_threads(1)  # threads do not survive a fork
    evaluator.Evaluator(real, control=False, intervals=False).score(real)  # imports what is loaded late
    return sum(
        run_killed(partial(run_watch, real, Path(folder)), [*lines, None], FILES)
        for folder, lines in plan.items()
    )


if __name__ == "__main__":
    print(main(sys.argv[1], json.loads(sys.argv[2])))
