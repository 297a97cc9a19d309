"""The process of a command: its standard streams, and how Ctrl-C and SIGTERM end it.

Python handles signals between its own instructions, which a matrix product or a large network can delay for minutes. Therefore the
C handler also writes the number of a signal to a pipe, which a thread reads: it gives the main thread a short time to exit,
and then ends the process. Files stay complete, since they are moved into place only when they are finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from genpr.errors import ResourceError
from genpr.runtime import address_space_left, usable_cores

GRACE_S = 1.3  # until the process is ended
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_DEFAULTS: dict[int, signal._HANDLER] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_SHOW_CURSOR = "\x1b[?25h\r\x1b[K"  # a progress bar hides it
_STDOUT, _STDERR = 1, 2
_outputs = [_STDOUT, _STDERR]  # the first is that of results
_kept: list[int] = []  # copies of these of a muted process


def mute() -> None:
    """Discard all further output of this process, also that of C++ libraries."""
    if not _kept:
        _kept.extend(map(os.dup, _outputs))
        with Path(os.devnull).open("w") as null:
            for number in _outputs:
                os.dup2(null.fileno(), number)


def unmute() -> None:
    """Undo `mute`."""
    while _kept:
        kept = _kept.pop()
        os.dup2(kept, _outputs[len(_kept)])
        os.close(kept)


def open_standard_streams() -> None:
    """Open those of the three standard streams that this process was started without, and keep stdout for results.

    Otherwise a file that is opened later would get their numbers. Such a stdin is empty, and such a stdout fails at the first
    write. Results get a copy of the descriptor of stdout, which itself becomes stderr, because C libraries and child processes of
    the user's code write to it.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number
    _outputs.insert(0, os.dup(_STDOUT))
    os.dup2(_STDERR, _STDOUT)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    results = os.fdopen(_outputs[0], "w", -1, encoding, "backslashreplace", closefd=False)
    sys.stdout = sys.__stdout__ = results  # type: ignore[misc]
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", 1, "utf-8", "backslashreplace", closefd=False)


class SignalError(KeyboardInterrupt):
    """SIGINT or SIGTERM; a KeyboardInterrupt, so that both are cleaned up alike.

    A separate class, because Python kills itself after a bare KeyboardInterrupt that passed through `exec`.
    """

    def __init__(self, number: int) -> None:
        self.code = _WORDS[signal.Signals(number)]
        super().__init__(self.code)
        self.exit_code = 128 + number


def as_signal(error: BaseException) -> SignalError:
    """The signal that ended a command; click raises Abort for both, and other handlers raise a KeyboardInterrupt."""
    found = error.__cause__ or error
    return found if isinstance(found, SignalError) else SignalError(signal.SIGINT)


class Ending:
    """How the error that ends a command is printed: by one of two threads if it is a signal.

    Its JSON record also has the `scores` that a command sets.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.scores: Mapping[str, object] = {}
        self._is_due = threading.Lock()

    def claim(self) -> bool:
        """Whether the caller is the first to print a signal."""
        return self._is_due.acquire(blocking=False)

    def record(self, error: Mapping[str, Any]) -> str:
        """The line of an error on stdout."""
        return json.dumps({"error": error, **self.scores})

    def end_process(self, number: int) -> NoReturn:
        """End the process without waiting for its threads, which may hold buffers and locks."""
        with contextlib.suppress(Exception):
            storage = sys.modules.get("genpr.storage")
            if storage is not None:
                storage.remove_unfinished()
            if self.claim():
                word = _WORDS[signal.Signals(number)]
                error = {"code": word, "message": word, "exit_code": 128 + number, "path": None}
                has_cursor = os.isatty(_STDERR) and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}
                _write_at_once(f"{_SHOW_CURSOR * has_cursor}error: {word}\n", _STDERR)
                _write_at_once(f"{self.record(error)}\n" * self.as_json, _outputs[0])
        os._exit(128 + number)


def _write_at_once(text: str, descriptor: int) -> None:
    """Write `text`; an output that is closed or full is ignored."""
    if select.select([], [descriptor], [], 0)[1]:
        with contextlib.suppress(OSError):
            os.write(descriptor, text.encode())


# MiB of address space that a library takes with one thread, and with each further one: stacks, and buffers of OpenBLAS. The size
# of its files is added for torch, whose numbers include all other libraries and a score of few images. Measured with torch 2.14,
# numpy 2.4 and faiss 1.15.
_ADDRESS_SPACE = {"torch": (300, 200), "faiss": (210, 130)}


class AddressSpaceGuard:
    """An import hook that refuses libraries that exceed `ulimit -v`: their C++ code would abort or crash."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise an error if the library `name` does not fit; find nothing."""
        if name not in _ADDRESS_SPACE or (left := address_space_left()) is None:
            return
        chosen = os.environ.get("OMP_NUM_THREADS", "")
        threads = min(usable_cores(), int(chosen)) if chosen.isdecimal() else usable_cores()
        alone, each = _ADDRESS_SPACE[name]
        needed = 2**20 * (alone + each * (threads - 1)) + (_size_of_torch() if name == "torch" else 0)
        if left < needed:
            fewer = ", or set OMP_NUM_THREADS=1" * (threads > 1)
            text = (
                f"{name} needs {needed / 1e9:.2f} GB of address space with {threads} threads, and its limit (ulimit -v) leaves "
                f"{left / 1e9:.2f} GB; raise the limit{fewer}"
            )
            raise ResourceError(text, code="oom")


def _size_of_torch() -> int:
    """Bytes of the libraries that are mapped with torch; those of cuDNN but for one are mapped when they are used."""
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        return 0
    site = Path(spec.origin).parents[1]
    files = (*site.glob("torch/lib/*.so*"), *site.glob("nvidia/*/lib/*.so*"))
    return sum(file.stat().st_size for file in files if not file.name.startswith("libcudnn_"))


def install_signal_handlers(ending: Ending) -> None:
    """Handle SIGINT and SIGTERM; handlers that others have set, such as `nohup`, are kept.

    The first signal raises SignalError in the main thread. `GRACE_S` seconds later, or at the second signal, the process ends.
    """
    handled = [number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    seen: list[int] = []

    def raise_once(number: int, _frame: FrameType | None) -> None:
        if seen:
            ending.end_process(number)
        seen.append(number)
        raise SignalError(number)

    def restore() -> None:  # in processes that a user's code forks, such as data loaders
        signal.set_wakeup_fd(-1)
        for number in handled:
            signal.signal(number, _DEFAULTS[number])

    def wait() -> NoReturn:
        while (number := os.read(reader, 1)[0]) not in handled:
            pass
        select.select([reader], [], [], GRACE_S)
        ending.end_process(number)

    os.register_at_fork(after_in_child=restore)
    with contextlib.suppress(RuntimeError):  # no thread can be started; a command that needs one reports it
        threading.Thread(target=wait, name="genpr-signals", daemon=True).start()
    for number in handled:
        signal.signal(number, raise_once)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)


def restore_default_handlers() -> None:
    """Restore the default handlers when everything is printed and the process is about to end."""
    for number in _WORDS:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
