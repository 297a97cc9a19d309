"""Too little memory, on whatever device: how it is recognised, and who is told what was done about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from genpr.notices import Notice, notice

# How libraries say it that raise nothing more exact: torch of a CPU, cuBLAS, cuDNN, C++; and the loader of libraries.
_WORDS = (
    *("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "ALLOC_FAILED"),
    *("annot allocate memory", "failed to map segment from shared object"),
)
_told: list[dict[Notice, None]] = []


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, of a GPU or of the machine."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if getattr(error, "code", None) == "oom":  # said by genpr already
        return True
    is_vague = isinstance(error, RuntimeError | ImportError | OSError)
    return is_vague and any(word in str(error) for word in _WORDS)


def is_out_of_threads(error: BaseException) -> bool:
    """Whether `error` says that no thread could be started."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def is_out_of_files(error: BaseException) -> bool:
    """Whether a library says that it could open no further file, in an error without an errno."""
    return isinstance(error, RuntimeError) and os.strerror(errno.EMFILE) in str(error)


@contextmanager
def shortages() -> Iterator[dict[Notice, None]]:
    """Gather what is told in the block, each thing once, by any thread: memory is one for the whole process."""
    told: dict[Notice, None] = {}
    _told.append(told)
    try:
        yield told
    finally:
        _told[:] = [each for each in _told if each is not told]


def tell(code: str, **facts: object) -> None:
    """Tell all who gather that something was done in a smaller or slower way."""
    item = notice(code, **facts)
    for told in tuple(_told):
        told[item] = None


def release(device_type: str) -> None:
    """Give back what torch holds of a GPU and does not use; to be called when the error that was caught is gone."""
    if device_type == "cuda":
        import torch

        torch.cuda.empty_cache()
