"""Very many members of an archive, 24 bytes each and their names: no objects until one is asked for."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class MemberTable:
    """Names, offsets and sizes, in the order of adding until they are sorted."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._ends = array("q", [0])
        self._offsets = array("q")
        self._sizes = array("q")
        self._order: array[int] | None = None
        self._last = b""
        self._is_sorted = True

    def add(self, name: bytes, offset: int, size: int) -> None:
        """Take one more member."""
        self._is_sorted &= self._last <= name
        self._last = name
        self._names += name
        self._ends.append(len(self._names))
        self._offsets.append(offset)
        self._sizes.append(size)

    def sort(self) -> None:
        """Order them by the bytes of their names, equal ones as they were added."""
        if not self._is_sorted:
            self._order = array("q", sorted(range(len(self)), key=self._name))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, place: int) -> tuple[str, int, int]:
        """Name, offset and size of the member at a place."""
        at = place if self._order is None else self._order[place]
        return self._name(at).decode("utf-8", "surrogateescape"), self._offsets[at], self._sizes[at]

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        return map(self.__getitem__, range(len(self)))

    def _name(self, at: int) -> bytes:
        return bytes(self._names[self._ends[at] : self._ends[at + 1]])
