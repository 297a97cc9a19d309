"""Peak memory of a process together with the processes it starts, such as the workers of a DataLoader."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_SECONDS = 0.05  # reading the page tables of a large process takes milliseconds


class TreeMemory:
    """Peak memory of this process and its descendants inside a `with` block.

    Shared pages count once (proportional set size). Not suitable for blocks that are timed.

    Attributes:
        level: Bytes at entry.
        peak: Highest bytes.
    """

    def __enter__(self) -> Self:
        self.level = self.peak = tree_bytes()
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self.peak = max(self.peak, tree_bytes())


def tree_bytes() -> int:
    """Proportional set size of this process and its descendants."""
    waiting, found = [os.getpid()], 0
    while waiting:
        process = Path("/proc") / str(waiting.pop())
        try:
            lines = (process / "smaps_rollup").read_text().splitlines()
            found += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, StopIteration):  # it has just ended
            continue
    return found
