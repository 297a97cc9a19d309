"""What a process writes, where one of many speaks for all; only the standard library is imported here."""

from __future__ import annotations

import os
from pathlib import Path


class Voice:
    """Stdout and stderr of this process, which can be made to lead nowhere and back."""

    def __init__(self) -> None:
        self._kept: tuple[int, int] | None = None

    def mute(self) -> None:
        """Say nothing from now on, whoever writes: Python, a library in C++, or a signal handler."""
        if self._kept is not None:
            return
        self._kept = os.dup(1), os.dup(2)
        with Path(os.devnull).open("w") as nowhere:
            for number in (1, 2):
                os.dup2(nowhere.fileno(), number)

    def unmute(self) -> None:
        """Say again what there is to say."""
        if self._kept is not None:
            for number, kept in zip((1, 2), self._kept, strict=True):
                os.dup2(kept, number)
                os.close(kept)
            self._kept = None
