"""Malloc settings of a process: its arenas, and the sizes of blocks that are mapped, before, in and after `reused_memory`."""

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    os.name != "posix" or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33"
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


def run(program, *args, env):
    unset = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUN"))
    }
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**unset, **env})


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
    done = run(COUNT, *args, env=chosen)
    assert done.stdout.strip() == output
    assert least <= done.stderr.count("<heap nr=") <= most


MAPPED = """
import ctypes, sys, threading

from genpr.runtime import limit_malloc_arenas, reused_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]


libc.mallinfo2.restype = Counts


def smallest_mapped():
    "MiB of the smallest block among these that is mapped, without freeing any, which would change the threshold."
    for size in (1, 2, 6, 12, 31, 40, 64, 600):
        before = libc.mallinfo2().hblks
        libc.malloc(size * 2**20)
        if libc.mallinfo2().hblks > before:
            return size


def visit():
    with reused_memory:
        entered.set()
        left.wait()


if "limit" in sys.argv:
    limit_malloc_arenas()
if "own" in sys.argv:
    libc.mallopt(-3, 5 * 2**20)
entered, left = threading.Event(), threading.Event()
other = threading.Thread(target=visit)
with reused_memory:
    other.start()
    entered.wait()
found = [smallest_mapped()]
left.set()
other.join()
found.append(smallest_mapped())
with reused_memory:
    found.append(smallest_mapped())
print(*found, smallest_mapped())
"""


@pytest.mark.parametrize(
    ("args", "chosen", "inside", "after"),
    [
        ([], {}, "None", "40"),
        (["limit"], {}, "None", "12"),
        (["own"], {}, "6", "6"),
        (["limit"], {"MALLOC_MMAP_THRESHOLD_": "4000000"}, "6", "6"),
        (["limit"], {"MALLOC_TRIM_THRESHOLD_": "4000000"}, "1", "1"),
        (["limit"], {"MALLOC_ARENA_MAX": "1"}, "None", "40"),
    ],
    ids=["library", "program", "set by the user", "mapped", "trimmed", "arenas"],
)
def test_blocks_are_reused_only_inside_and_thresholds_of_the_user_are_kept(args, chosen, inside, after):
    done = run(MAPPED, *args, env=chosen)
    assert done.stdout.split() == [inside, after, inside, after], (
        "the context of another thread is still active at first"
    )
