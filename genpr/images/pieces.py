"""A bound on the pieces that a file is made of: segments, chunks, tags, blocks, frames, which are parsed one by one.

Parsers in Python take a microsecond or more for a piece of a few bytes, and keep many of them. Files of images have some
dozens of pieces, and at most one for every few hundred bytes of pixels.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")

MOST_PIECES = 2**18  # that genpr goes through itself: a 1-kilobyte chunk for all of 89 megapixels
_MOST_READS = 2**20  # of Pillow's parsers, several to a piece; 89 megapixels of noise as GIF take 850,000
_READ_AGAIN = 4  # times that the same bytes may be read on average, besides these:
_BYTES_READ = 2**26


class TooManyPiecesError(Exception):
    """Parsing a file takes too long; the message says why."""


def too_many_pieces() -> TooManyPiecesError:
    """The error for more than `MOST_PIECES`."""
    return TooManyPiecesError(f"it is made of more than {MOST_PIECES:,} pieces")


def counted(pieces: Iterable[_T]) -> Iterator[_T]:
    """Pass pieces on, up to a number that no image has.

    Raises:
        TooManyPiecesError: There are more.
    """
    for number, piece in enumerate(pieces):
        if number == MOST_PIECES:
            raise too_many_pieces()
        yield piece


class MeteredFile(io.BytesIO):
    """A file whose reads and bytes read are limited, for Pillow's parsers.

    `read` raises `TooManyPiecesError`, which is no `OSError`: Pillow takes these for damaged metadata and goes on.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads_left = _MOST_READS
        self._bytes_left = _BYTES_READ + _READ_AGAIN * len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """As of `io.BytesIO`."""
        data = super().read(size)
        self._reads_left -= 1
        self._bytes_left -= len(data)
        if self._reads_left < 0:
            raise TooManyPiecesError(f"it is read in more than {_MOST_READS:,} pieces")
        if self._bytes_left < 0:
            raise TooManyPiecesError("many of its parts are the same bytes")
        return data
