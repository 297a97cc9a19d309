"""Independent pieces of work side by side on the cores of a CPU, each with one thread of its own.

Operations that share all cores wait for each other at the end of every loop; with many small ones, and another
process on one of the cores, this was seen to take twenty times longer. Pieces of work never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar

import torch

from genpr.runtime import torch_threads

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Workers:
    """Context manager with as many workers as torch may use threads; on a GPU, work is done as it comes.

    Args:
        device: Where the work is done.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.count = torch.get_num_threads() if device.type == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self.count > 1:
            self._stack.enter_context(torch_threads(1))
            self._pool = ThreadPoolExecutor(
                self.count, "genpr-search", initializer=torch.set_num_threads, initargs=(1,)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._stack.close()

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """The results in the order of `items`, of which no more than a few are under way at any time."""
        if self._pool is None:
            yield from map(work, items)
            return
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(self._pool.submit(_plainly, work, item))
            if len(waiting) > 2 * self.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _plainly(work: Callable[[_Item], _Result], item: _Item) -> _Result:
    # These modes belong to a thread; see `engine.plain_arithmetic`.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return work(item)
