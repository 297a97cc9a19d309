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
COMMAND = """
import sys
from contextlib import suppress
from genpr.__main__ import main

sys.argv = ["genpr", "--version"]
with suppress(SystemExit):
    main()
"""


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


@pytest.mark.parametrize("code", [LIMITED, COMMAND], ids=["limited", "command"])
def test_there_is_one_heap(code):
    assert heaps_after(code)[0] == 1


def test_there_would_be_more():
    assert heaps_after("import genpr.runtime\n")[0] > 1


@pytest.mark.parametrize(
    "chosen", [{"MALLOC_ARENA_MAX": "3"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=3"}], ids=["old", "new"]
)
def test_what_the_user_chose_stays(chosen):
    heaps, said = heaps_after(LIMITED, **chosen)
    assert said == "False\n"
    assert 1 < heaps <= 3


HOLES = """
import ctypes, os
from pathlib import Path

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


libc.free(libc.malloc(30_000_000))  # from now on glibc would take up to so much out of a heap
before, large = resident(), []
for _ in range(10):
    large.append(libc.malloc(9_000_000))
    ctypes.memset(large[-1], 1, 9_000_000)
    libc.malloc(200_000)  # stays, and holds what is below it
for piece in large:
    libc.free(piece)
print(resident() - before)
"""


def left_by_large_pieces(code: str) -> int:
    """Bytes that a process keeps of large pieces that it took and freed after `code` ran."""
    done = subprocess.run(
        [sys.executable, "-c", code + HOLES],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=UNCHOSEN,
    )
    return int(done.stdout.split()[-1])


def test_large_pieces_leave_no_holes():
    assert left_by_large_pieces(LIMITED) < 5e6


def test_large_pieces_would_leave_holes():
    assert left_by_large_pieces("") > 50e6
