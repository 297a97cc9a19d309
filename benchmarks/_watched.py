"""A process whose memory is sampled from outside, and which may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """Result of a process.

    Attributes:
        output: Its stdout; empty if it was killed.
        seconds: From start to end.
        peak_bytes: Peak resident memory, including pages of mapped files, which the system can reclaim.
        anonymous_peak_bytes: The same without those pages.
        killed: Whether it was killed.
    """

    output: str
    seconds: float
    peak_bytes: int
    anonymous_peak_bytes: int
    killed: bool


class FailedError(Exception):
    """The process failed."""


def watch(arguments: Sequence[str], *, kill_when: Callable[[], bool] | None = None) -> Watched:
    """Run this Python with `arguments`; send SIGKILL as soon as `kill_when` returns True.

    Raises:
        FailedError: It failed without being killed.
    """
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    peak = anonymous_peak = 0
    killed = False
    while process.poll() is None:
        resident, anonymous = _resident(process.pid)
        peak, anonymous_peak = max(peak, resident), max(anonymous_peak, anonymous)
        if kill_when is not None and kill_when():
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed = True
        time.sleep(_INTERVAL_SECONDS)
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    if process.returncode and not killed:
        raise FailedError(f"exit code {process.returncode}")
    return Watched(output, time.perf_counter() - started, peak, anonymous_peak, killed)


def _resident(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, and those that do not belong to files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    return sizes.get("VmRSS", 0), sizes.get("RssAnon", 0)
