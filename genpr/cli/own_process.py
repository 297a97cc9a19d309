"""What the command line sets up in its process, which is its own, before a command runs; light to import."""

from __future__ import annotations

import io
import os
import sys
import threading
from contextlib import suppress
from typing import TextIO

from genpr.report.drawing import ignore_matplotlib_configuration

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_OWN_THREADS = 2  # beside those of libraries
_MOST_THREADS = 64  # of OpenBLAS as numpy brings it
_NO_RESOURCE = 4


def prepare() -> None:
    """Give this process its standard streams, and let no file in the working directory configure its plots."""
    _open_standard_streams()
    ignore_matplotlib_configuration()


def finish_stdout(code: int) -> int:
    """Write what is left for stdout, and return the exit code: 4 instead of 0 if that is not possible."""
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_stdout()
        if not code:
            sys.stderr.write(f"error: the output cannot be written to stdout ({error.strerror})\n")
            return _NO_RESOURCE
    return code


def drop_stdout() -> None:
    """Let stdout lead nowhere, so that what cannot be written fails only once."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def check_threads() -> None:
    """Raise where the threads that libraries need cannot be started: some of these end the process without a reason.

    Raises:
        RuntimeError: They cannot be started.
    """
    variables = (os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"))
    chosen = [int(value) for value in variables if value.isascii() and value.isdecimal() and len(value) < 5]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    end = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(min([*chosen[:1], cores, _MOST_THREADS]) + _OWN_THREADS):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            threads.append(thread)
    finally:
        end.set()
        for thread in threads:
            thread.join()


class _LenientWriter(io.FileIO):
    """Stderr: a message that cannot be written is lost, and not the result with it."""

    def write(self, data: object) -> int:
        """Write what can be written, and report all of it as written."""
        with suppress(OSError):
            super().write(data)  # type: ignore[arg-type]
        return memoryview(data).nbytes  # type: ignore[arg-type]


def _open_standard_streams() -> None:
    """Open whichever of the three standard streams this process was started without.

    A file that is opened later must not get the number of one, or a library in C would write its messages into it. Stdin is
    then empty, stdout fails when it is written to, and stderr, open or not, never fails.
    """
    modes = {_STDIN: os.O_RDONLY, _STDOUT: os.O_RDONLY, _STDERR: os.O_WRONLY}
    for number, mode in modes.items():
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number
    if sys.stdout is None:
        writer = io.BufferedWriter(io.FileIO(_STDOUT, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(writer, "utf-8")
    if sys.stderr is None or _number_of(sys.stderr) == _STDERR:
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        writer = io.BufferedWriter(_LenientWriter(_STDERR, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(writer, encoding, errors="backslashreplace", line_buffering=True)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _number_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None
