"""Run work in a separate process that is killed before a chosen line of genpr."""

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable


def run_killed(work: Callable[[], None], lines: Iterable[int | None], files: Collection[str]) -> int:
    """Run the work once per entry of `lines`, killed after so many lines of `files`, or to its end for None.

    Forked after the imports, which would take most of the time. Only the files that write should be among `files`;
    tracing makes them slow.
    """
    killed = 0
    for line in lines:
        child = os.fork()
        if child == 0:
            if line is not None:
                _die_before(line, files)
            work()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        if line is None and status:
            raise SystemExit(f"work that was left alone ended with status {status}")
    return killed


def _die_before(line: int, files: Collection[str]) -> None:
    left = line

    def advance(frame, event, _argument):
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return advance

    sys.settrace(advance)
