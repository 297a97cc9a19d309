"""Ctrl-C and SIGTERM: an orderly way out, and within two seconds a way out in any case.

Python looks at signals between its own instructions, which a product of matrices, a search or a large network in C++ puts off
for minutes. So the number of a signal is also written to a pipe, by the handler in C, where a thread waits for it: it gives
the main thread a moment to leave in an orderly way, and then ends the process. Files are whole even so, because they are
moved into place when they are. Only the standard library is imported here, so that signals are answered from the start.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

GRACE_S = 1.3  # until the process is ended; what that takes on a busy machine comes on top
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_SHOW_CURSOR = "\x1b[?25h\r\x1b[K"  # which a progress bar hides


class SignalError(KeyboardInterrupt):
    """A signal came: whatever tidies up after Ctrl-C does after SIGTERM, as schedulers send it, too.

    A class of its own, because Python kills itself after a bare KeyboardInterrupt that passed through `exec`.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Farewell:
    """What is said of a signal, once, by whoever is first: the main thread or the one that waits for signals.

    Args:
        as_json: Whether stdout gets an object that says so, too.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_unsaid = threading.Lock()

    def say(self, number: int) -> int:
        """Say it in the main thread, after what was printed before, and return the exit code."""
        from genpr.cli.console import complain, emit_error

        if self._is_unsaid.acquire(blocking=False):
            complain(self._line(number))
            if self._as_json:
                emit_error(self._record(number))
        return 128 + number

    def say_at_once(self, number: int) -> int:
        """Say it past all buffers and locks, which a thread that is stuck may hold."""
        if self._is_unsaid.acquire(blocking=False):
            _write_at_once(_restored_terminal() + self._line(number) + "\n", 2)
            if self._as_json:
                _write_at_once(self._record(number) + "\n", 1)
        return 128 + number

    def _line(self, number: int) -> str:
        return f"error: {_WORDS[signal.Signals(number)]}"

    def _record(self, number: int) -> str:
        word = _WORDS[signal.Signals(number)]
        return json.dumps({"error": {"code": word, "message": word, "exit_code": 128 + number, "path": None}})


def signal_of(error: BaseException) -> int:
    """Which signal ended a command; click turns both into Abort."""
    number: int = getattr(error.__cause__ or error, "number", signal.SIGINT)
    return number


def answer_signals(farewell: Farewell) -> None:
    """Let Ctrl-C and SIGTERM end this process from now on; what others have set, such as `nohup` has, is left.

    The first signal raises SignalError in the main thread. `GRACE_S` seconds later, or at the second
    signal, the process ends.
    """
    defaults: dict[signal.Signals, signal._HANDLER] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    answered = [number for number, default in defaults.items() if signal.getsignal(number) is default]
    if not answered:
        return
    came, tell = os.pipe()
    os.set_blocking(tell, False)
    is_raised = False

    def raise_once(number: int, _frame: FrameType | None) -> None:
        nonlocal is_raised
        if is_raised:
            _leave(farewell, number)
        is_raised = True
        raise SignalError(number)

    def forget() -> None:  # a process that a user's code forks, such as a loader of data, has its own life
        signal.set_wakeup_fd(-1)
        for number in answered:
            signal.signal(number, defaults[number])

    os.register_at_fork(after_in_child=forget)
    threading.Thread(target=_wait, args=(came, answered, farewell), name="genpr-signals", daemon=True).start()
    for number in answered:
        signal.signal(number, raise_once)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)


def end_by_signals_alone() -> None:
    """When all is said and the process only has to end, a signal ends it without a word."""
    for number in _WORDS:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _wait(came: int, answered: list[signal.Signals], farewell: Farewell) -> None:
    number = _next_of(came, answered)
    if select.select([came], [], [], GRACE_S)[0]:
        number = _next_of(came, answered)
    _leave(farewell, number)


def _next_of(came: int, answered: list[signal.Signals]) -> int:
    while (number := os.read(came, 1)[0]) not in answered:
        pass
    return number


def _leave(farewell: Farewell, number: int) -> NoReturn:
    """End the process, whatever its threads do; nothing may be waited for here."""
    code = 128 + number
    with contextlib.suppress(Exception):
        storage = sys.modules.get("genpr.storage")
        if storage is not None:
            storage.remove_unfinished()
        code = farewell.say_at_once(number)
    os._exit(code)


def _write_at_once(text: str, descriptor: int) -> None:
    """Write `text`; if nobody reads it, leave it."""
    if select.select([], [descriptor], [], 0)[1]:
        with contextlib.suppress(OSError):
            os.write(descriptor, text.encode())


def _restored_terminal() -> str:
    """What brings the cursor back on stderr, if that is a terminal that obeys."""
    obeys = os.isatty(2) and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}
    return _SHOW_CURSOR if obeys else ""
