"""The processes that compute one score together, each a share of it; usually there is only this one.

Every rank runs the same code. What is worth sharing is cut into pieces in one order, a rank does its pieces, and all of
them learn what all of them found, in that order: so no number depends on how many ranks there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

_Item = TypeVar("_Item")
_Kind = TypeVar("_Kind")


class Team:
    """One process alone, for which nothing is to be exchanged; `ranks.exchange.Ranks` is several.

    What several exchange, all of them must exchange, in the same order.

    Attributes:
        rank: Number of this process, from 0.
        size: How many there are.
    """

    rank = 0
    size = 1

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that tells people."""
        return self.rank == 0

    def share(self, items: Sequence[_Item]) -> Sequence[_Item]:
        """Which of `items` this rank does: every `size`-th."""
        return items[self.rank :: self.size]

    def gathered(self, rows: Tensor) -> list[Tensor]:
        """The `rows` (n, ...) of every rank, in their order; n may differ."""
        return [rows]

    def fill(self, parts: Sequence[tuple[int, Tensor]]) -> None:
        """Write parts of a tensor that one rank has on all others, in place.

        Args:
            parts: Contiguous views, each with the rank that has it; the same on every rank.
        """

    def total(self, counts: Tensor) -> Tensor:
        """The sum over ranks of integer `counts` of one shape."""
        return counts

    def told(self, value: Any) -> list[Any]:  # noqa: ANN401 - plain JSON types
        """The `value`, of plain JSON types, of every rank, in their order."""
        return [value]

    def from_first(self, compute: Callable[[], _Kind]) -> _Kind:
        """What `compute` gives on the first rank, in plain JSON types; it is not called on the others."""
        return compute()

    def agreed(self, flag: bool) -> bool:
        """Whether `flag` holds on every rank."""
        return flag

    def part(self) -> None:
        """Wait until nobody needs this rank any more, which shares nothing after that."""


_ALONE = Team()


class _Current(threading.local):
    """Of a thread: no thread that a user starts can enter an exchange that other ranks know nothing of."""

    team: Team = _ALONE


_current = _Current()


def current_team() -> Team:
    """The processes that the work of this thread is shared by."""
    return _current.team


@contextmanager
def working_in(team: Team) -> Iterator[Team]:
    """Share the work of this thread with `team` for a while."""
    before, _current.team = _current.team, team
    try:
        yield team
    finally:
        _current.team = before


def leave_to_first() -> bool:
    """Share nothing more in this thread; whether this is the first rank, which goes on alone."""
    team = current_team()
    team.part()
    _current.team = _ALONE
    return team.is_first


@contextmanager
def alone() -> Iterator[Team]:
    """Do the work of this thread without the others for a while."""
    with working_in(_ALONE) as team:
        yield team
