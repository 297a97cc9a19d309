"""How far a search among pairs of rows is."""

from __future__ import annotations

from collections.abc import Callable

from genpr.neighbours.sweep import Tick, no_tick

PairProgress = Callable[[int, int], None]
"""Called with the pairs of rows that are done with, and their number."""


def tally(total: int, progress: PairProgress | None, *, done: int = 0) -> Tick:
    """What engines call with the pairs they have just done; `progress` hears the sum, from `done` on."""
    if progress is None:
        return no_tick
    report = progress

    def tick(pairs: int) -> None:
        nonlocal done
        done += pairs
        report(done, total)

    return tick


def first_of(progress: PairProgress | None, total: int) -> PairProgress | None:
    """What the first of several searches calls, which have `total` pairs together."""
    if progress is None:
        return None
    report = progress
    return lambda done, _own_total: report(done, total)
