"""How far a search among pairs of rows is."""

from __future__ import annotations

from collections.abc import Callable

from genpr.neighbors.search import Tick, no_tick

PairProgress = Callable[[int, int], None]
"""Called with the pairs of rows that are done with, and their number."""


def tally(total: int, progress: PairProgress | None) -> Tick:
    """What engines call with the pairs they have just done; `progress` hears the sum."""
    if progress is None:
        return no_tick
    report, done = progress, 0

    def tick(pairs: int) -> None:
        nonlocal done
        done += pairs
        report(done, total)

    return tick
