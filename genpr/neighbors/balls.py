"""The kinds of k-NN balls around the rows of a set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class BallKind:
    """Balls around all rows of a set, each with the distance to its k-th nearest other row as radius."""

    k: int  # neighbors
    clipped: bool = False  # whether no ball is larger than the median one (Salvy et al. 2026)
