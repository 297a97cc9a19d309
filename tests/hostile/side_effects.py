"""Detect forbidden side effects: starting a program, opening a connection, importing by a pickle, or writing outside a folder."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEVER = {
    *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("pty.spawn", "pickle.find_class", "socket.connect", "socket.bind", "socket.getaddrinfo"),
    *("webbrowser.open", "urllib.Request", "os.kill", "os.chown", "os.link"),
}
_CHANGES = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.symlink", "os.utime")
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Hook:
    """An audit hook, which cannot be removed; it records forbidden events while `folder` is set."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []
        self.is_installed = False

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event in _NEVER:
            self.seen.append(f"{event} {args!r:.200}")
        elif event == "open":
            path, mode, flags = args
            writes = (
                set(mode) & set("wax+")
                if isinstance(mode, str)
                else isinstance(flags, int) and flags & _WRITING
            )
            if writes and not self._is_inside(path):
                self.seen.append(f"open for writing {path!r:.200}")
        elif event in _CHANGES:
            paths = {"os.symlink": args[1:2], "os.rename": args[:2]}.get(event, args[:1])
            if not all(map(self._is_inside, paths)):
                self.seen.append(f"{event} {args!r:.200}")

    def _is_inside(self, path: object) -> bool:
        """Whether a path is in the folder; a number is a file descriptor, which was checked when it was opened."""
        if not isinstance(path, str | bytes | os.PathLike):
            return True
        real = os.path.realpath(os.fsdecode(path))
        return (
            real == "/dev/null" or "/__pycache__/" in f"{real}/" or f"{real}/".startswith(f"{self.folder}/")
        )


_HOOK = _Hook()


@contextmanager
def limited_effects(folder: Path, *, seconds: float, memory: int) -> Iterator[None]:
    """Assert that this process has no forbidden side effects and limit its processor time and new bytes of memory."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    if not _HOOK.is_installed:
        sys.addaudithook(_HOOK)
        _HOOK.is_installed = True
    _HOOK.seen = seen = []
    _HOOK.folder = os.path.realpath(folder)
    try:
        yield
    finally:
        _HOOK.folder = None
    assert not seen, seen[:5]
    assert time.process_time() - started < seconds
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < memory
