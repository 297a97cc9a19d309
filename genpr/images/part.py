"""Some of the images of a source, by their places in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from genpr.images.item import ImageSource, Item, names_at
from genpr.notices import Notice


@dataclass(frozen=True)
class PartSource(ImageSource):
    """The images at some places of a source; others are listed and, where that is possible, never read.

    Attributes:
        name: What to call it in messages.
        source: The whole.
        rows: Places in it, ascending.
    """

    name: str
    source: ImageSource
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Item]:
        return self.source.pick(self.rows)

    def pick(self, places: Iterable[int]) -> Iterator[Item]:
        """The images at some places of the part."""
        return self.source.pick(self.rows[place] for place in places)

    def names(self) -> Iterator[str] | None:
        """Of the part, if the source knows."""
        return names_at(self.source, self.rows)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What the whole source has to tell."""
        told: tuple[Notice, ...] = getattr(self.source, "notices", ())
        return told
