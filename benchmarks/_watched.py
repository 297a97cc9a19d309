"""A process whose memory is watched from outside, and which may be killed on the way."""

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
    """What a process did.

    Attributes:
        output: What it wrote to stdout; empty if it was killed.
        seconds: From start to end.
        peak_bytes: Highest resident memory, pages of mapped files included, which the system may take back.
        anonymous_peak_bytes: The same without those pages.
        killed: Whether it was killed.
    """

    output: str
    seconds: float
    peak_bytes: int
    anonymous_peak_bytes: int
    killed: bool


class FailedError(Exception):
    """The process ended with an error of its own."""


def watch(arguments: Sequence[str], *, kill_when: Callable[[], bool] | None = None) -> Watched:
    """Run this Python with `arguments`; SIGKILL it as soon as `kill_when` says so.

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
    """Resident bytes of a process, and of these what is no file."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    return sizes.get("VmRSS", 0), sizes.get("RssAnon", 0)
