"""The engine for CPUs: FAISS selects inside its products, and takes differences without copying rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from genpr.neighbors.torch_engine import TorchEngine, TorchTiles
from genpr.neighbors.workers import Communicator


@dataclass(frozen=True, slots=True)
class FaissEngine:
    """FAISS where it is fastest, torch for the rest.

    Args:
        plain: How tiles are cut and searched, and the processes that share a search.
    """

    plain: TorchEngine = field(default_factory=TorchEngine)

    def communicator(self) -> Communicator:
        """See `Engine.communicator`."""
        return self.plain.communicator()

    def tiles(self, width: int, device: torch.device) -> TorchTiles:
        """See `Engine.tiles`."""
        return self.plain.tiles(width, device)

    def largest(self, left: Tensor, right: Tensor, count: int) -> Tensor:
        """See `Engine.largest`."""
        import faiss  # after torch: the other order can load two OpenMP runtimes

        _, index = faiss.knn(left.numpy(), right.numpy(), count, metric=faiss.METRIC_INNER_PRODUCT)
        return torch.from_numpy(index)

    def sq_differences(self, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """See `Engine.sq_differences`."""
        import faiss

        if x.dtype != torch.float32 or y.dtype != torch.float32:
            return self.plain.sq_differences(x, y, i, j)
        out = torch.empty(len(i), dtype=torch.float32)
        arrays = [tensor.contiguous().numpy() for tensor in (x, i, y, j, out)]  # alive until FAISS is done
        faiss.pairwise_indexed_L2sqr(  # type: ignore[attr-defined]
            x.shape[1], len(i), *map(faiss.swig_ptr, arrays)
        )
        return out
