"""What reading an answer gives: the entities that it lists, or why they cannot be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from genpr.conditional.entities.normalise import normalised

MOST_NAMES = 1_000
"""In an answer, with whatever else is counted in it; nobody lists more."""


@dataclass(frozen=True)
class Answer:
    """A list of entities that was read.

    Attributes:
        entities: As they were written, each once; empty where the answer says that there are none.
        how: In which form they were written, such as "JSON" or "bullet list".
        repaired: What was not as it should be, and could mean one thing only; empty if nothing.
    """

    entities: tuple[str, ...]
    how: str
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unreadable:
    """An answer whose list cannot be told: it is counted as a failure of the reader's, and not as "nothing found".

    Attributes:
        code: Stable identifier in kebab-case.
        reason: Why, in words.
    """

    code: str
    reason: str


class NotReadable(Exception):  # noqa: N818 - an outcome within the reader, not an error
    """Stops the reading; becomes `Unreadable`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def check_number(number: int) -> None:
    """Refuse what is too much for a list of entities.

    Raises:
        NotReadable: As it says ("too-long").
    """
    if number > MOST_NAMES:
        raise NotReadable(
            "too-long", f"it has more than {MOST_NAMES:,} items or lines, too many for a list of entities"
        )


def each_once(names: Iterable[str]) -> tuple[str, ...]:
    """Names that differ in more than spelling, in the order of their first; empty ones left out."""
    found: dict[str, str] = {}
    for name in names:
        key = normalised(name)
        if key:
            found.setdefault(key, name)
    return tuple(found.values())


def the_same(readings: list[tuple[str, ...]], what: str) -> tuple[str, ...] | None:
    """The one list that all readings agree on; None if there are no readings.

    Raises:
        NotReadable: They differ ("several-lists").
    """
    kinds = {frozenset(map(normalised, reading)): reading for reading in reversed(readings)}
    if len(kinds) > 1:
        raise NotReadable(
            "several-lists",
            f"there are {len(kinds)} different lists {what}, and nothing tells which one is meant",
        )
    return next(iter(kinds.values()), None)
