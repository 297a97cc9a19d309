"""The kinds of k-NN balls around the rows of a set, and what to count in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from genpr.validation import Ties


@dataclass(frozen=True, order=True, slots=True)
class BallKind:
    """Balls around all rows of a set, each with the distance to its k-th nearest other row as radius."""

    k: int  # neighbors
    clipped: bool = False  # whether no ball is larger than the median one (Salvy et al. 2026)


@dataclass(frozen=True, slots=True)
class CountRequest:
    """What to count in every replicate, that is in a half of the reals and a half of the fakes."""

    balls: Literal["real", "fake"]  # the owners
    ball: BallKind
    count: Literal["owners", "others", "pairs"]  # "owners": how many balls hold at least t rows
    most: int = 1  # count for t = 1 to `most`; 1 for pairs
    ties: Ties = "closed"  # whether a row on the sphere is inside: "closed" yes, "strict" no
    # rows that are counted: those of the other set, or, with "own", the other rows of the same set. Own rows
    # at exactly the radius of a ball are not counted beyond the listed neighbors
    rows: Literal["other", "own"] = "other"
