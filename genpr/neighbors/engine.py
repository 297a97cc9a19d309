"""Device operations of the search, and the threads and processes that share its work.

An engine only selects candidates. `nearest` and `counts` decide, by bounds that are proven in `bounds` for any order of
summation, and where these do not decide, by distances as defined in `distance`.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.distributed import Communicator, current_communicator
from genpr.memory import tile_budget
from genpr.notices import emit_notice
from genpr.runtime import adapt_malloc, is_out_of_memory, plain_state, torch_threads

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Advance = Callable[[int], None]
"""Progress callback, called with the number of pairs processed since the last call."""

_ALWAYS_HELD = 2**24  # bytes of a tile; reading free memory costs more than smaller tiles
_WHOLE = 8_000_000  # elements of a tile of whole rows: 31 MiB, the most that malloc keeps
# Parts of the products of a set with itself, one after the other, and their minimum rows
_PARTS, _MIN_PART = 4, 128
SHARE_OF_WHOLE = (_PARTS + 1) / (2 * _PARTS)  # of these products that are computed; the others are copies
_SHARED = 2**32  # terms of products from which on threads divide the rows


PairProgress = Callable[[int, int], None]
"""Progress callback of users, called with the number of row pairs done and the total."""


def no_advance(_pairs: int) -> None:
    """Ignore progress."""


def progress_counter(total: int, progress: PairProgress | None) -> Advance:
    """A callback that adds up the pairs processed and reports the sum to `progress`."""
    if progress is None:
        return no_advance
    report, done = progress, 0

    def advance(pairs: int) -> None:
        nonlocal done
        done += pairs
        report(done, total)

    return advance


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What is fast on one kind of device."""

    narrow_tile: tuple[int, int]  # maximum rows and columns of a tile of products of at most 512 terms
    wide_tile: tuple[int, int]  # the same for more terms
    pair_bytes: int  # memory per pair of a tile: its product, and the results if some pairs are close
    min_block_rows: int  # of a block of one set; half of the products inside a block are redundant
    blocks: int  # number of blocks that the rows of a set are divided into
    min_pairs: int  # pairs that are collected before they are processed together
    max_pairs: int  # pairs held in memory at once
    # pairs that are collected before a merge: at least min_held and held_per_row per row, at most max_held
    min_held: int
    held_per_row: int
    max_held: int
    verified: int  # elements of pairs per batch of the definition
    elements: int  # elements of rows that are gathered or processed at once
    recomputed: int  # elements of coordinates that are recomputed at once
    has_directions: bool  # whether few directions and clusters may be cheaper than all coordinates
    # pairs per row from which on float32 differences of pairs, which a GPU computes as slowly as the definition, shrink reaches
    differences_from: int
    first_columns: int  # compared with a row for its first reach in a sweep
    # Costs in nanoseconds, of which only ratios matter
    per_term: float  # of a term of a product
    per_pair: float  # of a pair in a tile, besides its product
    per_key: float  # of a pair whose key is held, besides
    per_row: float  # of a row of a sweep
    per_sweep: float  # of any sweep


# Gathered rows should stay in the cache of a CPU core: 256 pairs of 2048 features took 5.6 us a pair, 4096
# pairs 33 us. Products should stay in the cache, too, and gathering wide rows costs less if each is used in many products.
CPU = DeviceProfile(
    narrow_tile=(768, 2048),
    wide_tile=(2048, 1024),
    pair_bytes=16,
    min_block_rows=512,
    blocks=16,
    min_pairs=2**16,
    max_pairs=2**19,
    min_held=2**16,
    held_per_row=16,
    max_held=2**22,
    verified=2**22,
    elements=2**18,
    recomputed=2**17,
    has_directions=True,
    differences_from=0,
    first_columns=640,
    per_term=0.0125,
    per_pair=0.9,
    per_key=2.5,
    per_row=1e4,
    per_sweep=3e6,
)
# A GPU needs enough work per kernel launch and few synchronizations: one per tile and a few per batch of pairs. Costs are those of an
# H200 by its data sheet.
CUDA = DeviceProfile(
    narrow_tile=(8192, 16384),
    wide_tile=(8192, 16384),
    pair_bytes=8,
    min_block_rows=8192,
    blocks=1,
    min_pairs=2**20,
    max_pairs=2**22,
    min_held=2**20,
    held_per_row=64,
    max_held=2**22,
    verified=2**29,
    elements=2**25,
    recomputed=2**25,
    has_directions=False,
    differences_from=64,
    first_columns=4096,
    per_term=3.3e-6,
    per_pair=0.0067,
    per_key=0.005,
    per_row=0,
    per_sweep=8e5,
)


def profile_of(device: torch.device) -> DeviceProfile:
    """The profile of `device`."""
    return CPU if device.type == "cpu" else CUDA


def is_whole(n: int) -> bool:
    """Whether all products of n rows with themselves are held at once, of which half are computed."""
    return n * n <= _WHOLE


def places(mask: Tensor) -> Tensor:
    """Indices where (p,) `mask` holds. On a CPU, NumPy finds them several times faster than torch."""
    return mask.nonzero()[:, 0] if mask.is_cuda else torch.from_numpy(np.flatnonzero(mask.numpy()))


def kth_smallest(table: Tensor, k: int) -> Tensor:
    """The k-th smallest value of each row of (r, c), without NaN. On a CPU, NumPy finds it several times faster than torch."""
    if table.is_cuda:
        return table.topk(k, dim=1, largest=False).values[:, -1]  # kthvalue has no deterministic form
    return torch.from_numpy(np.partition(table.numpy(), k - 1, axis=1)[:, k - 1].copy())


def in_steps(
    work: Callable[[slice], _Result], count: int, step: int, device: torch.device
) -> Iterator[_Result]:
    """Yield the results of `work` on slices of `step` of the `count` items, at least one, which may be empty.

    Slices are smaller after `device` ran out of memory.
    """
    start, step = 0, max(1, step)
    while start < max(1, count):
        try:
            result = work(slice(start, min(start + step, count)))
        except Exception as error:
            if step == 1 or not is_out_of_memory(error):
                raise
        else:
            start += step
            yield result
            continue
        free_for_less(device)
        step //= 2


def free_for_less(device: torch.device) -> None:
    """Free cached memory and emit the notice that smaller tiles follow; to be called after the except block."""
    torch.cuda.empty_cache()
    emit_notice("oom-smaller-tiles", device=device)


_is_plain: ContextVar[bool] = ContextVar("_is_plain", default=False)


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Compute float32 products as IEEE 754 defines them, which all bounds assume; a block within another costs nothing.

    The process may have enabled TF32, bfloat16 products on CPUs ("medium" precision), or autocast.
    """
    if _is_plain.get():
        yield
        return
    adapt_malloc()
    token = _is_plain.set(True)
    try:
        with plain_state(), torch.no_grad():
            yield
    finally:
        _is_plain.reset(token)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Keys of a block of rows with some columns, in bounded memory, which the next keys overwrite."""

    rows: int  # maximum rows per tile
    columns: int  # maximum columns per tile
    # Memory for keys, and for two masks of them, reused: on a CPU fresh memory costs more than the product. None on a GPU.
    memory: Tensor | None
    masks: NDArray[np.bool_] | None = None

    def products(self, left: Tensor, right: Tensor) -> Tensor:
        """Inner products (r, c) float32 of rows (r, w) and (c, w), both float16 or both float32."""
        if self.memory is None or left.dtype == torch.float16:
            return products_in_float32(left, right)
        if len(left) * len(right) > len(self.memory):  # this thread got less memory than the first
            raise MemoryError
        out = self.memory[: len(left) * len(right)].view(len(left), len(right))
        return products_with_itself(left, out) if left is right else torch.mm(left, right.T, out=out)

    def at_least(
        self, keys: Tensor, of_rows: Tensor, of_columns: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and key of all `keys` (r, c) that reach the threshold of their row (r,) or of their column (c,), float32.

        On a CPU, NumPy finds few values among many several times faster than torch.
        """
        by_row, by_column = of_rows[:, None], of_columns
        if self.masks is None:
            is_above = keys >= by_row
            i, j = (is_above if by_column is None else is_above | (keys >= by_column)).nonzero().unbind(dim=1)
            return i, j, keys[i, j]
        columns, size = keys.shape[1], keys.numel()
        mask, other = (each[:size].reshape(keys.shape) for each in self.masks)
        np.greater_equal(keys.numpy(), by_row.numpy(), out=mask)
        if by_column is not None:
            np.greater_equal(keys.numpy(), by_column.numpy(), out=other)
            np.logical_or(mask, other, out=mask)
        at = torch.from_numpy(np.flatnonzero(mask))
        return at // columns, at % columns, keys.flatten().index_select(0, at)


def products_with_itself(rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Inner products (r, r) of rows (r, w) with each other; on a CPU, most below the diagonal are copies of those above."""
    if rows.is_cuda:
        return rows @ rows.T
    out = rows.new_empty(len(rows), len(rows)) if out is None else out
    step = max(_MIN_PART, -(-len(rows) // _PARTS))
    for start in range(0, len(rows), step):
        part, later = slice(start, start + step), slice(start + step, None)
        torch.mm(rows[part], rows[start:].T, out=out[part, start:])
        out[later, part] = out[part, later].T
    return out


def products_in_float32(left: Tensor, right: Tensor) -> Tensor:
    """Inner products (r, c) float32 of rows (r, d) and (c, d), both float16 or both float32."""
    if left.dtype == torch.float32:
        return left @ right.T
    if left.device.type == "cpu":
        return left.float() @ right.float().T
    return torch.mm(left, right.T, out_dtype=torch.float32)  # since torch 2.8


Plan = Literal["all pairs", "sweep"]
"""How a search finds the pairs within reach: it holds the keys of each row with all columns, or it tests each pair once."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Sizes of tiles and plan, which never change a result, and the processes that share the work: all ranks of `all_ranks`."""

    tile_rows: int | None = None
    tile_columns: int | None = None
    communicator: Callable[[], Communicator] = current_communicator  # called when a search begins
    plan: Plan | None = None  # None: whichever costs less

    @contextmanager
    def search(
        self, device: torch.device, advance: Advance = no_advance, **inputs: object
    ) -> Iterator[Search]:
        """Begin a search, whose `inputs` (indexed points, options) must be equal on all ranks that share it."""
        communicator = self.communicator()
        if inputs and communicator.size > 1:
            own = {name: str(getattr(each, "content", each)) for name, each in inputs.items()}
            communicator.check_same(own, "inputs of a search")
        count = torch.get_num_threads() if device.type == "cpu" else 1
        with plain_arithmetic(), torch_threads(1), ExitStack() as stack:
            yield Search(self, advance, device, communicator, count, stack)

    def tiles(
        self, width: int, device: torch.device, rows: int, columns: int, *, whole: bool = False
    ) -> Tiles:
        """Tiles for products of `width` terms of at most `rows` and `columns` on `device`; of `whole` rows, all columns."""
        profile = profile_of(device)
        most_rows, most_columns = profile.narrow_tile if width <= 512 else profile.wide_tile
        if whole and not (self.tile_rows or self.tile_columns):
            most_rows = max(most_rows, _WHOLE // most_columns)
        most_rows, most_columns = self.tile_rows or most_rows, self.tile_columns or most_columns
        if whole:
            most_rows, most_columns = max(1, most_rows * most_columns // max(1, columns)), columns
        rows, columns = max(1, min(rows, most_rows)), max(1, min(columns, most_columns))
        if rows * columns * profile.pair_bytes > _ALWAYS_HELD:
            budget = tile_budget(device)
            while rows * columns * profile.pair_bytes > budget and rows > 1:
                rows, columns = rows // 2, columns if whole else max(columns // 2, 1)
        while device.type == "cpu":
            try:
                memory = torch.empty(rows * columns, dtype=torch.float32, device=device)
                return Tiles(rows, columns, memory, np.empty((2, rows * columns), dtype=np.bool_))
            except Exception as error:
                if rows * (1 if whole else columns) == 1 or not is_out_of_memory(error):
                    raise
            free_for_less(device)
            rows, columns = max(rows // 2, 1), columns if whole else max(columns // 2, 1)
        return Tiles(rows, columns, None)


ENGINE = Engine()
"""The engine of all searches but those of tests."""


@dataclass(slots=True)
class Search:
    """A search in progress: the threads and processes that share its work, and whom it reports to.

    There are as many threads as torch uses; on a GPU, and where there is little work, it runs in the calling thread. Threads of one
    torch operation wait for each other at the end of every loop. With many small operations, and another process on one of the
    cores, this took twenty times as long as one operation per thread; so only large operations are shared in this way.
    """

    engine: Engine
    advance: Advance
    device: torch.device
    communicator: Communicator
    count: int  # of threads that work
    _stack: ExitStack  # what ends with the search
    _pool: ThreadPoolExecutor | None = None  # created for the first work of several items
    _owner: int = field(default_factory=threading.get_ident)  # the calling thread

    def together(self) -> AbstractContextManager[None]:
        """Let all threads share each operation of the block, which should be large, unless they work on items of their own."""
        return torch_threads(self.count if threading.get_ident() == self._owner else 1)

    def divides(self, items: int, terms: float) -> bool:
        """Whether threads divide products of so many `terms` altogether. See `map`."""
        return self.count > 1 and items > 1 and terms >= _SHARED

    def map(
        self, work: Callable[[_Item], _Result], items: Iterable[_Item], terms: float = math.inf
    ) -> Iterator[_Result]:
        """The results in the order of `items`, of which a bounded number is in progress at any time.

        If these are products of few `terms` altogether, threads would mostly wait for Python's lock: work runs in the calling thread.
        """
        items = list(items)
        if not self.divides(len(items), terms):
            yield from map(work, items)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self.count, "genpr-search", initializer=torch.set_num_threads, initargs=(1,)
            )
            self._stack.callback(self._pool.shutdown, cancel_futures=True)
        plainly = torch.no_grad()(work)  # the mode is set per thread; autocast is off in new threads
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(self._pool.submit(plainly, item))
            if len(waiting) > 2 * self.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def rows_per_thread(self, rows: int, columns: int, width: int) -> int:
        """Rows of products of `width` terms for each thread; all if the calling thread does them."""
        return rows if rows * columns * width < _SHARED else -(-rows // self.count)

    def map_shared(
        self, work: Callable[[_Item], tuple[Tensor, ...]], items: Sequence[_Item], terms: float = math.inf
    ) -> Iterator[tuple[Tensor, ...]]:
        """As `map`, but each process computes its share of the `items`, which are equal on all processes.

        Results are tensors on the device of the search.
        """
        communicator = self.communicator
        if communicator.size == 1:
            yield from self.map(work, items, terms)
            return
        own = list(self.map(work, communicator.share(items), terms))
        by_rank = [iter(results) for results in communicator.all_gather_tensors(own, self.device)]
        for number in range(len(items)):
            yield next(by_rank[number % communicator.size])

    def map_pairs(
        self,
        function: Callable[[Tensor, Tensor, Tensor, Tensor, list[Tensor]], Tensor],
        x: Tensor,
        y: Tensor,
        i: Tensor,
        j: Tensor,
    ) -> Tensor:
        """Values (p,) of `function` for rows `i` of `x` and `j` of `y`, equal on all processes, which share the pairs.

        Its last argument is memory of a thread. See `distance.of_pairs`.
        """
        most = max(1, profile_of(self.device).verified // x.shape[1])
        held = PerThread[list[Tensor]](list)
        batches = list(zip(torch.split(i, most), torch.split(j, most), strict=True))

        def of(batch: tuple[Tensor, Tensor]) -> tuple[Tensor]:
            with self.together():
                return (function(x, y, *batch, held.own),)

        found = self.map_shared(of, batches)
        (values,) = zip(*found, strict=True)
        return torch.cat(values)

    def agreed(self, value: int) -> int:
        """The `value` of rank 0 on every rank."""
        return value if self.communicator.size == 1 else int(self.broadcast([torch.tensor(value)])[0])

    def broadcast(self, tensors: list[Tensor]) -> list[Tensor]:
        """The `tensors` of rank 0 on every rank, for values that another machine may round or plan differently."""
        communicator = self.communicator
        if communicator.size == 1:
            return tensors
        own = [(each,) for each in tensors] if communicator.rank == 0 else []
        (first, *_) = communicator.all_gather_tensors(own, self.device)
        return [each for (each,) in first]


@dataclass(slots=True)
class PerThread(Generic[_Result]):
    """One object per thread, created at its first use, so that counting needs no lock."""

    make: Callable[[], _Result]
    all: list[_Result] = field(default_factory=list)
    _local: threading.local = field(default_factory=threading.local)

    @property
    def own(self) -> _Result:
        """The object of the current thread."""
        if not hasattr(self._local, "object"):
            self._local.object = self.make()
            self.all.append(self._local.object)
        own: _Result = self._local.object
        return own
