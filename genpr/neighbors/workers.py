"""Independent items of work, shared by processes and by the cores of a CPU, each core with one thread of its own.

Operations that share all cores wait for each other at the end of every loop; with many small ones, and another
process on one of the cores, this was seen to take twenty times longer. Pieces of work never wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from genpr.runtime import torch_threads

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Communicator(Protocol):
    """The processes that share a search; the methods here are those of a single process.

    Every process searches for the same, does its share of the items, and exchanges what it found with the others, in an
    order that does not depend on how many they are. `genpr.distributed.Communicator` has the same methods.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    def share(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """The `items` that this process does: every `size`-th."""
        return items[self.rank :: self.size]

    def all_gather(self, rows: Tensor) -> list[Tensor]:
        """The `rows` (n, ...) of every process, by rank; n may differ."""
        return [rows]

    def all_gather_tensors(
        self, results: Sequence[tuple[Tensor, ...]], device: torch.device
    ) -> list[list[tuple[Tensor, ...]]]:
        """The `results` of every process, by rank: any number of tuples of tensors of any shape, on `device`."""
        return [[*results]]

    def all_reduce_sum(self, counts: Tensor) -> Tensor:
        """The sum over processes of integer `counts` of one shape."""
        return counts


class SingleProcess(Communicator):
    """This process alone."""


class Workers:
    """Context manager with as many workers as torch may use threads; on a GPU, work is done as it comes.

    Args:
        device: Where the work is done.
        communicator: The processes that share the work of `map_shared`; None for this process alone.
    """

    def __init__(self, device: torch.device, communicator: Communicator | None = None) -> None:
        self.device = device
        self.communicator = communicator or SingleProcess()
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

    def map_shared(
        self, work: Callable[[_Item], tuple[Tensor, ...]], items: Sequence[_Item]
    ) -> Iterator[tuple[Tensor, ...]]:
        """As `map`, where each process does its share of `items`, which are the same everywhere.

        Results are tensors on the device of the workers.
        """
        communicator = self.communicator
        if communicator.size == 1:
            yield from self.map(work, items)
            return
        own = list(self.map(work, communicator.share(items)))
        by_rank = [iter(results) for results in communicator.all_gather_tensors(own, self.device)]
        for number in range(len(items)):
            yield next(by_rank[number % communicator.size])

    def from_rank0(self, parts: list[Tensor]) -> list[Tensor]:
        """The `parts` of rank 0, on every rank: what another machine may round or plan differently."""
        communicator = self.communicator
        if communicator.size == 1:
            return parts
        own = [(part,) for part in parts] if communicator.rank == 0 else []
        (first, *_) = communicator.all_gather_tensors(own, self.device)
        return [part for (part,) in first]


class PerThread(Generic[_Result]):
    """One object for each thread, made when the thread first asks for it: threads that count never wait for each other.

    Attributes:
        make: Makes one.
        all: Those that threads have asked for.
    """

    def __init__(self, make: Callable[[], _Result]) -> None:
        self.make, self._local, self.all = make, threading.local(), list[_Result]()

    @property
    def own(self) -> _Result:
        """That of the current thread."""
        if not hasattr(self._local, "object"):
            self._local.object = self.make()
            self.all.append(self._local.object)
        found: _Result = self._local.object
        return found


def _plainly(work: Callable[[_Item], _Result], item: _Item) -> _Result:
    # These modes belong to a thread; see `engine.plain_arithmetic`.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return work(item)
