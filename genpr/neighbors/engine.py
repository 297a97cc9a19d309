"""The operations that a search needs of a device: protocols, one engine in torch, and one in FAISS for CPUs.

An engine only proposes. Every decision is taken in `nearest` and `counts`, on bounds that are proven in `bounds` for
any order of summation, and on distances by the definition in `distance` where these leave a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from genpr.memory import tile_budget
from genpr.neighbors import integers
from genpr.neighbors.workers import Communicator, SingleProcess
from genpr.notices import emit_notice
from genpr.runtime import empty_device_cache, is_out_of_memory, state_guard


class Tiles(Protocol):
    """Products of a certain width on a certain device, cut so that memory is bounded and well used."""

    @property
    def rows(self) -> int:
        """Most rows of `left`."""
        ...

    @property
    def columns(self) -> int:
        """Most rows of `right`."""
        ...

    def non_negative(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Every pair of a row of `left` (r, w) and of `right` (c, w) whose inner product is not negative.

        Returns:
            Row, column and product, each (p,).
        """
        ...

    def at_least(
        self, left: Tensor, right: Tensor, bias: Tensor, thresholds: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Every pair of integer rows whose product plus `bias` of the column reaches the threshold of the row.

        Args:
            left: (r, w) uint8 of seven bits; see `integers`.
            right: (c, w) int8.
            bias: (c,) float32.
            thresholds: (r,) float32.

        Returns:
            Row, column and the product plus the bias, each (p,).
        """
        ...


class Engine(Protocol):
    """Inner products and differences in float32, and the processes that share a search."""

    @property
    def communicator(self) -> Callable[[], Communicator]:
        """Called as a search begins, for the processes that share it."""
        ...

    def is_direct(self, n: int, m: int, d: int) -> bool:
        """Whether all n m distances of rows with d columns are computed by the definition, without bounds."""
        ...

    def tiles(self, width: int, device: torch.device) -> Tiles:
        """What finds positive products of `width` terms on `device`."""
        ...

    def largest(self, left: Tensor, right: Tensor, count: int) -> Tensor:
        """For each row of `left` (r, w) the `count` <= c rows of `right` (c, w) of largest product: (r, count)."""
        ...

    def sq_differences(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Sums of squared differences between rows `i` of `x` and `j` of `y`: (p,), float32 throughout."""
        ...


@contextmanager
def plain_arithmetic(device: torch.device) -> Iterator[None]:
    """Float32 products as IEEE 754 means them, on which all bounds rest.

    A user may have switched on TF32, bfloat16 products on CPUs ("medium" precision), or autocast.
    """
    with state_guard(), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


DIRECT_ELEMENTS = 2**18
"""Up to so many columns of all pairs together, the definition costs no more than bounds that leave few pairs to it."""

_BYTES_PER_PAIR = 16  # the product, and what is found if some are close
_CPU_CHUNK_ELEMENTS = 2**19
_GPU_CHUNK_ELEMENTS = 2**24


@dataclass(frozen=True, slots=True)
class TorchTiles:
    """See `Tiles`.

    Attributes:
        rows: Most rows per tile.
        columns: Most columns per tile.
        products: Memory for one tile, used again and again: fresh memory costs more than the product.
    """

    rows: int
    columns: int
    products: Tensor

    @classmethod
    def allocate(cls, rows: int, columns: int, device: torch.device) -> TorchTiles:
        """For tiles of at most `rows` by `columns`."""
        return cls(rows, columns, torch.empty(rows * columns, dtype=torch.float32, device=device))

    def non_negative(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Tiles.non_negative`."""
        columns = len(right)
        if len(left) * columns > len(self.products):  # this thread got less memory than the first
            raise MemoryError
        products = self.products[: len(left) * columns]
        torch.mm(left, right.T, out=products.view(len(left), columns))
        return _those_at_least(products.view(len(left), columns), products.new_zeros(1))

    def at_least(
        self, left: Tensor, right: Tensor, bias: Tensor, thresholds: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Tiles.at_least`."""
        return _those_at_least(integers.products(left, right, bias), thresholds[:, None])


def _those_at_least(values: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value. NumPy finds few among many several times faster than torch on a CPU."""
    if values.device.type == "cpu":
        at = torch.from_numpy(np.flatnonzero(values.numpy() >= thresholds.numpy()))
    else:
        at = (values >= thresholds).view(-1).nonzero()[:, 0]
    columns = values.shape[1]
    return at // columns, at % columns, values.reshape(-1)[at]


@dataclass(frozen=True, slots=True)
class TorchEngine:
    """Products in tiles small enough for the memory budget; their size never changes a result.

    Args:
        tile_rows: Rows per tile; None chooses.
        tile_columns: Columns per tile; None chooses.
        communicator: Called as a search begins, for the processes that share it.
        direct_elements: See `DIRECT_ELEMENTS`.
    """

    tile_rows: int | None = None
    tile_columns: int | None = None
    communicator: Callable[[], Communicator] = SingleProcess
    direct_elements: int = 0

    def is_direct(self, n: int, m: int, d: int) -> bool:
        """See `Engine.is_direct`."""
        return n * m * d <= self.direct_elements and self.communicator().size == 1

    def tiles(self, width: int, device: torch.device) -> TorchTiles:
        """See `Engine.tiles`."""
        if device.type == "cpu":
            # Products should stay in the cache; gathering wide rows must be paid back by many products.
            rows, columns = (768, 2048) if width <= 512 else (2048, 1024)
        else:
            rows = columns = 8192
        while rows * columns * _BYTES_PER_PAIR > tile_budget(device) and rows > 1:
            rows, columns = rows // 2, columns // 2
        rows, columns = self.tile_rows or rows, self.tile_columns or columns
        while True:
            try:
                return TorchTiles.allocate(rows, columns, device)
            except Exception as error:
                if rows * columns == 1 or not is_out_of_memory(error):
                    raise
            empty_device_cache(device.type)
            emit_notice("oom-smaller-tiles", device=device)
            rows, columns = max(rows // 2, 1), max(columns // 2, 1)

    def largest(self, left: Tensor, right: Tensor, count: int) -> Tensor:
        """See `Engine.largest`."""
        return (left @ right.T).topk(count, dim=1).indices

    def sq_differences(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """See `Engine.sq_differences`."""
        elements = _CPU_CHUNK_ELEMENTS if x.device.type == "cpu" else _GPU_CHUNK_ELEMENTS
        step = max(1, elements // x.shape[1])
        out = torch.empty(len(i), dtype=torch.float32, device=x.device)
        for start in range(0, len(i), step):
            chunk = slice(start, start + step)
            difference = x[i[chunk]].float().sub_(y[j[chunk]])
            torch.sum(difference.square_(), dim=1, out=out[chunk])
        return out


@dataclass(frozen=True, slots=True)
class FaissEngine(TorchEngine):
    """FAISS where it is fastest, torch for the rest. Arguments are those of `TorchEngine`."""

    def largest(self, left: Tensor, right: Tensor, count: int) -> Tensor:
        """See `Engine.largest`."""
        import faiss  # after torch: the other order can load two OpenMP runtimes

        _, index = faiss.knn(left.numpy(), right.numpy(), count, metric=faiss.METRIC_INNER_PRODUCT)
        return torch.from_numpy(index)

    def sq_differences(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """See `Engine.sq_differences`."""
        import faiss

        if x.dtype != torch.float32 or y.dtype != torch.float32:
            return TorchEngine.sq_differences(self, x, y, i, j)
        out = torch.empty(len(i), dtype=torch.float32)
        x, i, y, j = (
            x.contiguous(),
            i.contiguous(),
            y.contiguous(),
            j.contiguous(),
        )  # alive until FAISS is done
        pointers = map(faiss.swig_ptr, (x.numpy(), i.numpy(), y.numpy(), j.numpy(), out.numpy()))
        faiss.pairwise_indexed_L2sqr(x.shape[1], len(i), *pointers)  # type: ignore[attr-defined]
        return out


def choose_engine(device: torch.device, communicator: Callable[[], Communicator] = SingleProcess) -> Engine:
    """The fastest engine that is available for data on `device`.

    Args:
        device: Where the data is.
        communicator: Called as a search begins, for the processes that share it.
    """
    is_faiss_better = device.type == "cpu" and find_spec("faiss") is not None
    engine = FaissEngine if is_faiss_better else TorchEngine
    return engine(communicator=communicator, direct_elements=DIRECT_ELEMENTS)
