"""How many heaps the C library keeps, in processes of their own: as many as it has threads, unless it was asked."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not glibc")

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

ASKED = "from genpr.heaps import keep_one_heap\nprint(keep_one_heap())\n"
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
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}
    }
    done = subprocess.run(
        [sys.executable, "-c", code + COUNT],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, **environment},
    )
    return done.stderr.count("<heap nr="), done.stdout


@pytest.mark.parametrize("code", [ASKED, COMMAND], ids=["asked", "command"])
def test_there_is_one_heap(code):
    assert heaps_after(code)[0] == 1


def test_there_would_be_more():
    assert heaps_after("import genpr.heaps\n")[0] > 1


@pytest.mark.parametrize(
    "chosen", [{"MALLOC_ARENA_MAX": "3"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=3"}], ids=["old", "new"]
)
def test_what_the_user_chose_stays(chosen):
    heaps, said = heaps_after(ASKED, **chosen)
    assert said == "False\n"
    assert 1 < heaps <= 3
