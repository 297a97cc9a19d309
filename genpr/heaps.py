"""What the C library keeps of the memory that was freed: as little as it can be asked to. Light to import."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_MOST_HEAPS = -8  # M_ARENA_MAX of glibc's malloc.h


def keep_one_heap() -> bool:
    """Let all threads of this process take memory from one heap, where its user chose nothing else.

    glibc gives each thread a heap of its own and does not return what the last of its pages free: threads that decode
    images and end leave up to a tenth of a process that scores for weeks. It is for a program to say, not for a library
    within one, and before it starts threads.

    Returns:
        Whether it is so now.
    """
    is_chosen = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    choose = _of_libc("mallopt")
    return not is_chosen and choose is not None and choose(_MOST_HEAPS, 1) == 1


def give_back() -> None:
    """Return to the system what was freed; takes some milliseconds."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Callable[..., int] | None:
    """A function that glibc has and others may not."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
