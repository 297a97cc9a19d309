"""A limit of the memory of Python and numpy."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """The block takes less than `most` bytes at any time; a bomb would take gigabytes."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most
