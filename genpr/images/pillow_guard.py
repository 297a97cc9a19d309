"""Pillow's process-wide switches, made strict and silent while genpr decodes, and then as they were found.

Two of them reach into every decode. `ImageFile.LOAD_TRUNCATED_IMAGES`, which training code likes to set, fills
what is missing of a file with gray. And broken metadata makes Pillow warn, which raises where warnings are
errors. Neither can be set for one thread only (`warnings.catch_warnings` is not safe between threads before
Python 3.14), so all decoding threads share one guard, which counts them.
"""

from __future__ import annotations

import re
import warnings
from threading import Lock
from typing import Any, cast

from PIL import ImageFile

_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


class PillowGuard:
    """Context manager; the first thread in sets the switches, the last one out restores them.

    What another thread changes meanwhile is set again when the next decode begins. The filter silences
    warnings from Pillow's own modules only, and is taken out of the very lists it was put into, so it stays
    behind nowhere, however other threads nest their `catch_warnings`.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._lenient = False
        self._muted: list[list[Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if ImageFile.LOAD_TRUNCATED_IMAGES:
                ImageFile.LOAD_TRUNCATED_IMAGES, self._lenient = False, True
            filters = cast("list[Any]", warnings.filters)
            if not filters or filters[0] is not _QUIET:
                filters.insert(0, _QUIET)
                self._muted.append(filters)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            if self._lenient:
                ImageFile.LOAD_TRUNCATED_IMAGES, self._lenient = True, False
            # A copy made meanwhile by `catch_warnings` holds the filter too, if it is still in use.
            for filters in (*self._muted, cast("list[Any]", warnings.filters)):
                filters[:] = [entry for entry in filters if entry is not _QUIET]
            self._muted.clear()


pillow_guard = PillowGuard()
