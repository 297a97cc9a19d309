"""What the C library keeps of the memory that was freed: as little as it can be asked to. Light to import."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

# Of glibc's malloc.h: M_ARENA_MAX and M_MMAP_THRESHOLD.
_MOST_HEAPS, _APART = -8, -3
_LARGE = 8 * 2**20


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
    return not is_chosen and choose is not None and choose(_MOST_HEAPS, 1) == 1 == choose(_APART, _LARGE)


def give_back() -> None:
    """Return to the system what was freed; takes some milliseconds."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Callable[..., int] | None:
    """A function that glibc has and others may not."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
