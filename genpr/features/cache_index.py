"""Which shard of the feature cache knows an image: 16 bytes an image, so that millions are nothing.

An image is looked for by the last eight bytes of its sha256, and only the shard can say whether it is that image: two
may share these bytes, by chance or because somebody made them so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_NEW_ROWS = 2**16  # kept in a dictionary until they are so many, since sorting takes as long as all are many
_ROW_BITS = 32

_Places = NDArray[np.int64]


class CacheIndex:
    """Places in shards by the last bytes of identities; not safe from several threads."""

    def __init__(self) -> None:
        self._shards: list[Path] = []
        self._keys: NDArray[np.uint64] = np.empty(0, np.uint64)  # sorted
        self._places: _Places = np.empty(0, np.int64)
        self._new: list[tuple[NDArray[np.uint64], _Places]] = []
        self._new_places: dict[int, list[int]] = {}
        self._n_in_dict = 0  # of the shards in `_new`

    def add(self, shard: Path, identities: NDArray[np.uint8]) -> None:
        """Learn where the images of a shard are: their sha256, uint8 (n, 32), row by row."""
        keys = np.ascontiguousarray(identities[:, -8:]).view(np.uint64)[:, 0]
        places = np.arange(len(keys), dtype=np.int64) | len(self._shards) << _ROW_BITS
        self._shards.append(shard)
        self._new.append((keys, places))

    def find(self, identity: bytes) -> Iterator[tuple[Path, int]]:
        """Shards and rows that may hold the image with sha256 `identity`, the last that was added first."""
        self._make_ready()
        key = np.frombuffer(identity[-8:], np.uint64)[0]
        first, end = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        for place in [*self._places[first:end].tolist(), *self._new_places.get(int(key), [])][::-1]:
            yield self._shards[place >> _ROW_BITS], place & (1 << _ROW_BITS) - 1

    def remove(self, shard: Path) -> None:
        """Forget the images of a shard."""
        self._sort_in()
        gone = [number for number, known in enumerate(self._shards) if known == shard]
        kept = ~np.isin(self._places >> _ROW_BITS, gone)
        self._keys, self._places = self._keys[kept], self._places[kept]

    def _make_ready(self) -> None:
        """Sort in what is new, or put it into the dictionary while that is small."""
        if sum(len(keys) for keys, _ in self._new) > _NEW_ROWS:
            self._sort_in()
        for keys, places in self._new[self._n_in_dict :]:
            for key, place in zip(keys.tolist(), places.tolist(), strict=True):
                self._new_places.setdefault(key, []).append(place)
        self._n_in_dict = len(self._new)

    def _sort_in(self) -> None:
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._new)])
        places = np.concatenate([self._places, *(places for _, places in self._new)])
        order = np.argsort(keys, kind="stable")
        self._keys, self._places = keys[order], places[order]
        self._new, self._new_places, self._n_in_dict = [], {}, 0
