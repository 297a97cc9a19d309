"""One search for pairs between two sets, however many want to see them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from genpr.neighbors.choose import choose_engine
from genpr.neighbors.engine import Engine, plain_arithmetic
from genpr.neighbors.frame import Placed
from genpr.neighbors.pairs import Pairs
from genpr.neighbors.sweep import Tick, no_tick, sweep_between
from genpr.neighbors.workers import Workers


class Visitor(Protocol):
    """What looks at pairs of a row and a column as they are found, on several threads at once."""

    @property
    def reaches(self) -> tuple[Tensor, Tensor]:
        """How far each row and each column reaches: (n,) and (m,) float64; -inf reaches nothing."""

    def look(self, pairs: Pairs) -> None:
        """Look at pairs, no pair twice: all that may be within the reach of one of the two, and perhaps others."""


def visit(
    rows: Placed,
    columns: Placed,
    visitors: Sequence[Visitor],
    *,
    engine: Engine | None = None,
    tick: Tick = no_tick,
) -> None:
    """Find the pairs of a row and a column that any of `visitors` wants to see, once for all of them.

    Args:
        rows: n points.
        columns: m points in the same frame.
        visitors: Who looks.
        engine: What multiplies; None chooses by device.
        tick: Told how many of the n m pairs are done with, now and then.
    """
    engine = engine or choose_engine(rows.device)
    of_rows, of_columns = zip(*(visitor.reaches for visitor in visitors), strict=True)

    def look(pairs: Pairs) -> None:
        for visitor in visitors:
            visitor.look(pairs)

    reaches = torch.stack(of_rows).amax(dim=0), torch.stack(of_columns).amax(dim=0)
    with plain_arithmetic(rows.device), Workers(rows.device, engine.communicator()) as workers:
        deque(sweep_between(rows, columns, *reaches, engine, workers, look, tick), maxlen=0)
