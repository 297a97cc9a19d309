"""Malloc arenas of a process and the memory that they keep, with and without `limit_malloc_arenas`."""

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    os.name != "posix" or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not glibc"
)

COUNT = """
import ctypes, sys, threading

from genpr.runtime import limit_malloc_arenas
print(limit_malloc_arenas() if "limit" in sys.argv else None)

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


@pytest.mark.parametrize(
    ("args", "chosen", "output", "least", "most"),
    [
        (["limit"], {}, "True", 1, 1),
        ([], {}, "None", 2, 99),
        (["limit"], {"MALLOC_ARENA_MAX": "3"}, "False", 2, 3),
    ],
    ids=["limited", "not", "as the user chose"],
)
def test_threads_share_one_arena_unless_the_user_configured_malloc(args, chosen, output, least, most):
    unset = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUN"))
    }
    command = [sys.executable, "-c", COUNT, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**unset, **chosen})
    assert done.stdout.strip() == output
    assert least <= done.stderr.count("<heap nr=") <= most
