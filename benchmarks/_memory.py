"""Peak memory of a computation above the level at which it began."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_SECONDS = 0.005
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


class PeakMemory:
    """Highest resident memory of this process inside a `with` block.

    A thread samples every 5 ms; where Linux lets a process reset its own high-water mark, that catches what
    falls between two samples. Memory that earlier work freed is returned to the system first.

    Attributes:
        level: Resident bytes at entry.
        peak: Highest resident bytes, pages of mapped files included.
        anonymous_level: Resident bytes at entry, without pages of mapped files.
        anonymous_peak: The highest number of those.
    """

    def __enter__(self) -> Self:
        gc.collect()
        with suppress(OSError, AttributeError):  # glibc only
            ctypes.CDLL(None).malloc_trim(0)
        self._exact = _reset_high_water_mark()
        self.level, self.anonymous_level = resident_bytes()
        self.peak, self.anonymous_peak = self.level, self.anonymous_level
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._sampler.join()
        if self._exact:
            self.peak = max(self.peak, _high_water_mark())

    @property
    def above_level(self) -> int:
        """Peak above the level at entry."""
        return self.peak - self.level

    def _sample(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            resident, anonymous = resident_bytes()
            self.peak = max(self.peak, resident)
            self.anonymous_peak = max(self.anonymous_peak, anonymous)


def resident_bytes() -> tuple[int, int]:
    """Resident bytes of this process, with and without pages of mapped files and shared memory."""
    _, resident, shared, *_ = map(int, _STATM.read_text().split())
    return resident * _PAGE, (resident - shared) * _PAGE


def available_bytes() -> int:
    """Available memory of this machine, in bytes."""
    return _kib_line(Path("/proc/meminfo"), "MemAvailable:")


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _high_water_mark() -> int:
    return _kib_line(Path("/proc/self/status"), "VmHWM:")


def _kib_line(path: Path, name: str) -> int:
    line = next(line for line in path.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
