"""Calls of the system that fail: the n-th of one kind that touches a folder, as a full disk or an ill network makes them."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

READS, WRITES = "r", "w"


class Failing:
    """Counts the calls of a kind, and lets one of them fail.

    Attributes:
        count: Calls so far.
    """

    def __init__(self, root: Path, at: int, code: int) -> None:
        self.root, self.at, self.code, self.count = os.fspath(root), at, code, 0

    def check(self, path: object) -> None:
        """Count a call, unless it is about something outside of the folder."""
        is_open = isinstance(path, int)
        with_path = str(Path(f"/proc/self/fd/{path}").readlink()) if is_open else os.fsdecode(path)
        if not os.path.abspath(with_path).startswith(self.root):  # noqa: PTH100 - links stay
            return
        self.count += 1
        if self.count == self.at:
            raise OSError(self.code, os.strerror(self.code), with_path)


class _File:
    """An open file of which the writes, the flush and the end count as calls."""

    def __init__(self, file, name, failing):
        self._file, self._name, self._failing = file, name, failing

    def write(self, data):
        self._failing.check(self._name)
        return self._file.write(data)

    def flush(self):
        self._failing.check(self._name)
        return self._file.flush()

    def close(self):
        was_open = not self._file.closed
        self._file.close()
        if was_open:
            self._failing.check(self._name)  # as NFS does, which writes late

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __iter__(self):
        return iter(self._file)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


def _opening(failing: Failing, kind: str):
    whole = io.open

    def call(path, mode="r", *rest, **options):
        writes = bool(set(mode) & set("wax+"))
        if kind == "open-read" and not writes:
            failing.check(path)
        if kind == "open-write" and writes:
            failing.check(path)
        file = whole(path, mode, *rest, **options)
        return _File(file, path, failing) if kind == "write" and writes else file

    return call


@contextmanager
def failing_calls(kind: str, root: Path, *, at: int, code: int = errno.EIO) -> Iterator[Failing]:
    """Let the call number `at` fail of a kind: "open-read", "open-write", "write" (also flush and close), or a name in `os`."""
    failing = Failing(root, at, code)
    if kind in {"open-read", "open-write", "write"}:
        call = _opening(failing, kind)
        with mock.patch.object(builtins, "open", call), mock.patch.object(io, "open", call):
            yield failing
        return
    whole = getattr(os, kind)

    def failed(path, *rest, **options):
        failing.check(path)
        return whole(path, *rest, **options)

    with mock.patch.object(os, kind, failed):
        yield failing
