"""Which texts each image was asked for, and which images and texts must never compete."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genpr.conditional.prompts.table import Captions
from genpr.unicode_forms import normalize

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """Images and the texts that they were asked for, t different ones for n images.

    Images that share a text, texts of one image and texts of one group belong together: they are a unit. Units are what is
    drawn independently, and only texts and images of different units compete.

    Attributes:
        texts: Different ones, in the order of their characters; spaces that differ make no other text.
        of_image: The texts of each image, as places in `texts`.
        grades: How well each of them fits.
        unit_of_text: (t,) int64, units numbered by their first text.
        unit_of_image: (n,) int64.
    """

    texts: tuple[str, ...]
    of_image: tuple[tuple[int, ...], ...]
    grades: tuple[tuple[float, ...], ...]
    unit_of_text: Counts
    unit_of_image: Counts

    @classmethod
    def of(cls, captions: Sequence[Captions]) -> Asked:
        """What the prompts of n images ask for; a text that an image has twice in other spaces counts once."""
        texts = sorted({normal(prompt.text) for each in captions for prompt in each})
        place = {text: number for number, text in enumerate(texts)}
        rows = [{place[normal(prompt.text)]: prompt.relevance for prompt in each} for each in captions]
        unit = _units(captions, rows, place)
        return cls(
            tuple(texts),
            tuple(tuple(row) for row in rows),
            tuple(tuple(row.values()) for row in rows),
            unit,
            np.array([unit[next(iter(row))] for row in rows], dtype=np.int64),
        )

    @property
    def is_graded(self) -> bool:
        """Whether some texts fit their image better than others do."""
        return len({grade for row in self.grades for grade in row}) > 1

    @property
    def pairs(self) -> tuple[Counts, Counts]:
        """The image and the text of each pair of them, (p,) int64, image by image."""
        counts = [len(row) for row in self.of_image]
        flat = [text for row in self.of_image for text in row]
        return np.repeat(np.arange(len(counts)), counts), np.array(flat, dtype=np.int64)

    @property
    def content(self) -> str:
        """sha256 over the texts that are asked for, each as often as it is, whatever the order of the images."""
        asked = sorted("\n".join(self.texts[text] for text in row) for row in self.of_image)
        return hashlib.sha256("\0".join(asked).encode("utf-8", "surrogatepass")).hexdigest()


def normal(text: str) -> str:
    """A text in one Unicode form, with single spaces.

    Example:
        >>> normal("  a   cat ")
        'a cat'
    """
    return " ".join(normalize("NFC", text).split())


def _units(captions: Sequence[Captions], rows: Sequence[dict[int, float]], place: dict[str, int]) -> Counts:
    """The unit of each text: those are one that an image or a group joins, directly or over others."""
    leader = list(range(len(place)))

    def find(text: int) -> int:
        while leader[text] != text:
            leader[text] = leader[leader[text]]
            text = leader[text]
        return text

    def join(one: int, other: int) -> None:
        low, high = sorted((find(one), find(other)))
        leader[high] = low

    first_of_group: dict[str, int] = {}
    for each, row in zip(captions, rows, strict=True):
        first = next(iter(row))
        for text in row:
            join(first, text)
        for prompt in each:
            if prompt.group is not None:
                text = place[normal(prompt.text)]
                join(first_of_group.setdefault(prompt.group, text), text)
    leaders = np.array([find(text) for text in range(len(leader))], dtype=np.int64)
    return np.unique(leaders, return_inverse=True)[1].astype(np.int64)
