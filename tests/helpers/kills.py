"""Work that is killed: in a process of its own, which gets SIGKILL before a line of genpr of its choice."""

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable


def run_killed(work: Callable[[], None], lines: Iterable[int | None], files: Collection[str]) -> int:
    """Do the work once for each of `lines`, killed before it executes so many lines of `files`; for None, to its end.

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
