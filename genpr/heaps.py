"""What the C library keeps of the memory that was freed: as little as it can be asked to. Light to import."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

# Of glibc's malloc.h: M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, each with what it is set to.
_ONE_HEAP = -8, 1
_LARGE_APART = -3, 8 * 2**20
# Kept at the end of the heap while work goes on: glibc's own rule for it ends where pieces are taken apart.
_SPARE = -1, 32 * 2**20


def keep_one_heap() -> bool:
    """Let all threads of this process take memory from one heap, and large pieces apart, where its user chose nothing else.

    glibc gives each thread a heap of its own and does not return what the last of its pages free: threads that decode
    images and end leave up to a tenth of a process that scores for weeks. Large pieces would leave holes in the one heap:
    3.9 GB instead of 1.1 to score 100,000 images of 3,072 features. It is for a program to say, not for a library within
    one, and before it starts threads.

    Returns:
        Whether it is so now.
    """
    is_chosen = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    choose = _of_libc("mallopt")
    if is_chosen or choose is None:
        return False
    return all(choose(*setting) == 1 for setting in (_ONE_HEAP, _LARGE_APART, _SPARE))


def give_back() -> None:
    """Return to the system what was freed; takes some milliseconds."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Callable[..., int] | None:
    """A function that glibc has and others may not."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
