"""How many malloc arenas a process has and what they keep, with and without `limit_malloc_arenas`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    os.name != "posix" or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not glibc"
)

UNCHOSEN = {
    name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
}

COUNT = """
import ctypes, threading

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


def take(_barrier=threading.Barrier(4)):
    _barrier.wait()
    libc.malloc(50_000)
    _barrier.wait()


threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"/dev/stderr", b"w"))
libc.malloc_info(0, file)
libc.fflush(file)
"""

LIMITED = "from genpr.runtime import limit_malloc_arenas\nprint(limit_malloc_arenas())\n"


def heaps_after(code: str, **environment: str) -> tuple[int, str]:
    """How many heaps a process has whose threads took memory after `code` ran, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code + COUNT],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**UNCHOSEN, **environment},
    )
    return done.stderr.count("<heap nr="), done.stdout


def test_there_is_one_heap():
    assert heaps_after(LIMITED)[0] == 1


def test_there_would_be_more():
    assert heaps_after("import genpr.runtime\n")[0] > 1


def test_what_the_user_chose_stays():
    heaps, said = heaps_after(LIMITED, MALLOC_ARENA_MAX="3")
    assert said == "False\n"
    assert 1 < heaps <= 3
