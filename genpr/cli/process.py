"""The process of a command: its standard streams, and how Ctrl-C and SIGTERM end it.

Python looks at signals between its own instructions, which a product of matrices or a large network puts off for minutes. So the
number of a signal is also written to a pipe, by the handler in C, where a thread waits for it: it gives the main thread a
moment to leave in an orderly way, and then ends the process. Files are whole even so: they are moved into place when they are.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

GRACE_S = 1.3  # until the process is ended; what that takes on a busy machine comes on top
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_DEFAULTS: dict[int, signal._HANDLER] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_SHOW_CURSOR = "\x1b[?25h\r\x1b[K"  # which a progress bar hides
_STDOUT, _STDERR = 1, 2
_kept: list[int] = []  # stdout and stderr of a process that is muted


def mute() -> None:
    """Discard all further output of this process, also that of C++ libraries."""
    if not _kept:
        _kept.extend(map(os.dup, (_STDOUT, _STDERR)))
        with Path(os.devnull).open("w") as nowhere:
            for number in (_STDOUT, _STDERR):
                os.dup2(nowhere.fileno(), number)


def unmute() -> None:
    """Write again."""
    while _kept:
        kept = _kept.pop()
        os.dup2(kept, _STDOUT + len(_kept))
        os.close(kept)


class _LenientWriter(io.FileIO):
    """Stderr: a message that cannot be written is lost, and not the result with it."""

    def write(self, data: object) -> int:
        """Write what can be written, and report all of it as written."""
        with contextlib.suppress(OSError):
            super().write(data)  # type: ignore[arg-type]
        return memoryview(data).nbytes  # type: ignore[arg-type]


def open_standard_streams() -> None:
    """Open whichever of the three standard streams this process was started without.

    A file that is opened later must not get the number of one. Stdin is then empty, stdout fails when it is written to, and
    stderr, open or not, never fails.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number
    if sys.stdout is None:
        sys.stdout = os.fdopen(_STDOUT, "w", encoding="utf-8", closefd=False)
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    writer = io.BufferedWriter(_LenientWriter(_STDERR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(writer, encoding, errors="backslashreplace", line_buffering=True)


class SignalError(KeyboardInterrupt):
    """A signal came: what tidies up after Ctrl-C does after SIGTERM, too.

    A class of its own, because Python kills itself after a bare KeyboardInterrupt that passed through `exec`.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def signal_of(error: BaseException) -> int:
    """Which signal ended a command; click turns both into Abort."""
    number: int = getattr(error.__cause__ or error, "number", signal.SIGINT)
    return number


class SignalReport:
    """The message about a signal, on stdout, too, `as_json`; printed once by the main thread or by the one that waits."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_due = threading.Lock()

    def print(self, number: int, *, at_once: bool = False) -> int:
        """Print it, perhaps past all buffers and locks, which a thread that is stuck may hold; and return the exit code."""
        from genpr.cli.console import complain, emit

        word, code = _WORDS[signal.Signals(number)], 128 + number
        record = json.dumps({"error": {"code": word, "message": word, "exit_code": code, "path": None}})
        if not self._is_due.acquire(blocking=False):
            return code
        if at_once:
            obeys = os.isatty(_STDERR) and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}
            _write_at_once(f"{_SHOW_CURSOR * obeys}error: {word}\n", _STDERR)
            _write_at_once(f"{record}\n" * self._as_json, _STDOUT)
        else:
            complain(f"error: {word}")
            if self._as_json:
                with contextlib.suppress(Exception):
                    emit(record)
        return code

    def end_process(self, number: int) -> NoReturn:
        """End the process, whatever its threads do; nothing may be waited for here."""
        with contextlib.suppress(Exception):
            storage = sys.modules.get("genpr.storage")
            if storage is not None:
                storage.remove_unfinished()
            self.print(number, at_once=True)
        os._exit(128 + number)


def _write_at_once(text: str, descriptor: int) -> None:
    """Write `text`, and ignore an output that is closed or full."""
    if select.select([], [descriptor], [], 0)[1]:
        with contextlib.suppress(OSError):
            os.write(descriptor, text.encode())


def install_signal_handlers(report: SignalReport) -> None:
    """Let Ctrl-C and SIGTERM end this process from now on; what others have set, such as `nohup` has, is left.

    The first signal raises SignalError in the main thread. `GRACE_S` seconds later, or at the second signal, the process ends.
    """
    answered = [number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    seen: list[int] = []

    def raise_once(number: int, _frame: FrameType | None) -> None:
        if seen:
            report.end_process(number)
        seen.append(number)
        raise SignalError(number)

    def forget() -> None:  # a process that a user's code forks, such as a loader of data, has its own life
        signal.set_wakeup_fd(-1)
        for number in answered:
            signal.signal(number, _DEFAULTS[number])

    def next_signal() -> int:
        while (number := os.read(reader, 1)[0]) not in answered:
            pass
        return number

    def wait() -> NoReturn:
        number = next_signal()
        if select.select([reader], [], [], GRACE_S)[0]:
            number = next_signal()
        report.end_process(number)

    os.register_at_fork(after_in_child=forget)
    with contextlib.suppress(RuntimeError):  # no thread can be started: a command that needs one reports it
        threading.Thread(target=wait, name="genpr-signals", daemon=True).start()
    for number in answered:
        signal.signal(number, raise_once)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)


def restore_default_handlers() -> None:
    """When all is printed and the process only has to end, a signal ends it without a word."""
    for number in _WORDS:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
