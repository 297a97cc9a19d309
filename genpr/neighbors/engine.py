"""What a search engine must offer: a few operations of plain linear algebra.

An engine only proposes. Every decision is taken in `radii` and `cross`, on bounds that are proven in `bounds` for
any order of summation, and on distances by the definition in `verify` where these leave a doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from genpr.neighbors.workers import Communicator
from genpr.runtime import state_guard


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

    def communicator(self) -> Communicator:
        """The processes that share a search that this thread begins now."""
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
