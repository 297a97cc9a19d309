"""The one name of each entity, by which expected and found ones are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from genpr.conditional.entities.normalise import normalised
from genpr.conditional.entities.vocabulary import Vocabulary

_IN_BRACKETS = re.compile(r"([^()（）]+)[(（]([^()（）]+)[)）]")

_COUNTED = re.compile(
    r"(?:an?|the|one|two|three|four|five|several|some|\d{1,3}(?:\s*[x×])?)\s+(.+)", re.IGNORECASE | re.DOTALL
)


class Names:
    """Canonical names: an alias table's where it knows them, else the first spelling that came.

    Args:
        table: Entities and aliases; None if every name is an entity.
    """

    def __init__(self, table: Vocabulary | None) -> None:
        self._table = table
        self._spelling: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The entity that a name means, which is known from then on."""
        known = self.known(name)
        if known is not None:
            return known
        key = normalised(name)
        return self._spelling.setdefault(key, name.strip()) if key else ""

    def known(self, name: str) -> str | None:
        """The entity that a name means; None if nobody named it before."""
        canonical = None if self._table is None else self._table.canonical(name)
        return canonical if canonical is not None else self._spelling.get(normalised(name))

    def of_found(self, name: str) -> str:
        """The same for a found name: where it is unknown, `a cat`, `2 cat` and `cat (left)` are a cat if that is known."""
        known = self.known(name)
        if known is None and (counted := _COUNTED.fullmatch(name.strip())):
            known = self.known(counted[1])
        if known is None and (parts := _IN_BRACKETS.fullmatch(name.strip())):
            within = [entity for part in parts.groups() if (entity := self.known(part)) is not None]
            known = within[0] if len(set(within)) == 1 else None
        return known if known is not None else normalised(name)

    def all_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Several, each entity once."""
        return tuple(dict.fromkeys(entity for name in names if (entity := self.of(name))))

    def all_found(self, names: Iterable[str]) -> tuple[str, ...]:
        """Several found ones, each entity once."""
        return tuple(dict.fromkeys(entity for name in names if (entity := self.of_found(name))))
