"""The feature cache: content-keyed shards, so that no image is embedded twice by the same extractor.

An image is known by the sha256 of its bytes, wherever it lies and whatever it is called. A shard is one
checksummed file of up to `SHARD_ROWS` images; shards are written when full and at the end of a run, so an
interrupted run keeps what it embedded. Extractor, weights, resize rule, decoder and device kind choose the folder.

The modification time of a shard is when it was last used, which is what `genpr cache prune` goes by. A shard that
another process removes is embedded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, GenprError
from genpr.features.cache_files import SHARD_FORMAT, shards_in
from genpr.features.extractor import ExtractorInfo
from genpr.images.decode import decoder_versions
from genpr.images.policy import FLAGS, DecodePolicy
from genpr.notices import Notice, notice
from genpr.runtime import is_own_file, private_folder
from genpr.storage import load_tensors, open_regular, save_tensors, tensors_sha256

FEATURE_VERSION = 1  # raise it whenever decoding, resizing or embedding changes any feature
SHARD_ROWS = 2048
_OPEN_SHARDS = 8  # 16 MB each at 2048 dimensions

_Row = tuple[bytes, Tensor, tuple[str, ...], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class CachedImage:
    """What the cache knows of one image: float32 (d,) features, its decoding flags and (width, height), if known."""

    features: Tensor
    flags: tuple[str, ...]
    size: tuple[int, int] | None = None


class FeatureCache:
    """Features of one extractor on disk.

    Reading is safe from several threads, and several processes may share a folder: shards are named after
    their content and never change.

    Args:
        root: The cache folder, shared by all extractors.
        info: The extractor; its `cache_key` must not be None.
        device_type: "cpu" or "cuda"; their features differ in the last bits and are kept apart.
        policy: How images are decoded, and the limit under which they are accepted: a hit must not let a larger
            one pass. None for the defaults.
    """

    def __init__(
        self, root: Path, info: ExtractorInfo, device_type: str, *, policy: DecodePolicy | None = None
    ) -> None:
        policy = policy or DecodePolicy()
        key = {
            "feature_version": FEATURE_VERSION,
            "extractor": info.name,
            "function": info.cache_key,
            "weights_sha256": info.weights_sha256,
            "resize": info.resize,
            "dim": info.dim,
            "decoder": decoder_versions(),
            "device": device_type,
            "max_pixels": policy.max_pixels,
            **policy.choices,  # nothing for the defaults, whose folders are older than the choice
        }
        text = json.dumps(key, sort_keys=True, indent=1)
        slug = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")[-40:]
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.folder = private_folder(root, "features", f"{slug}-{digest[:16]}")
        self.notices: list[Notice] = []
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, dict[str, Tensor]] = OrderedDict()
        self._pending: list[_Row] = []
        self._writable = True
        self._index = CacheIndex()
        self._dim = info.dim
        self._foreign: list[Path] = []
        for shard in shards_in(self.folder):
            self._index_shard(shard)
        if self._foreign:
            count, name = len(self._foreign), self._foreign[0].name
            self.notices.append(notice("cache-foreign", count=count, file=name))
        self._describe(text)

    def __contains__(self, identity: bytes) -> bool:
        """Whether the image with sha256 `identity` is stored; of one in 2^64 that is not, this says so, too."""
        with self._lock:
            return any(True for _ in self._index.find(identity))

    def get(self, identity: bytes) -> CachedImage | None:
        """The stored features of the image with sha256 `identity`, or None."""
        with self._lock:
            found = self._find(identity)
        if found is None:
            return None
        tensors, row = found
        bits = int(tensors["flags"][row])
        flags = tuple(flag for position, flag in enumerate(FLAGS) if bits >> position & 1)
        return CachedImage(tensors["features"][row], flags, _size_of(tensors, row))

    def add(
        self,
        identities: Sequence[bytes],
        features: Tensor,
        flags: Sequence[tuple[str, ...]],
        sizes: Sequence[tuple[int, int] | None] | None = None,
    ) -> None:
        """Store new rows: features float32 (n, d), with the sha256, the decoding flags and the size of each image."""
        sizes = [None] * len(identities) if sizes is None else sizes
        self._pending += zip(identities, features.clone().unbind(), flags, sizes, strict=True)
        while len(self._pending) >= SHARD_ROWS:
            self._write(self._pending[:SHARD_ROWS])
            del self._pending[:SHARD_ROWS]

    def flush(self) -> None:
        """Write what is still pending."""
        if self._pending:
            self._write(self._pending)
            self._pending = []

    def _write(self, rows: Sequence[_Row]) -> None:
        unique = {identity: rest for identity, *rest in rows}
        features, flags, sizes = zip(*unique.values(), strict=True)
        tensors = {
            "identities": torch.frombuffer(bytearray(b"".join(unique)), dtype=torch.uint8).view(-1, 32),
            "features": torch.stack(features),
            "flags": torch.tensor([_bits(each) for each in flags], dtype=torch.int32),
            "sizes": torch.tensor([size or (0, 0) for size in sizes], dtype=torch.int32),
        }
        shard = self.folder / f"{tensors_sha256(tensors)[:32]}.safetensors"
        if not self._writable:
            return
        try:
            save_tensors(shard, tensors, {"format": SHARD_FORMAT})
        except (OSError, GenprError) as error:
            self._writable = False  # one notice, not one per shard
            reason = getattr(error.__cause__ or error, "strerror", None) or error
            self.notices.append(notice("cache-write-failed", folder=self.folder, reason=reason))
            return
        with self._lock:
            self._index.add(shard, tensors["identities"].numpy())

    def _find(self, identity: bytes) -> tuple[dict[str, Tensor], int] | None:
        """The content of the shard that holds an image, and its row there."""
        for shard, row in self._index.find(identity):
            tensors = self._open_shard(shard)
            if tensors is not None and tensors["identities"][row].numpy().tobytes() == identity:
                return tensors, row
        return None

    def _index_shard(self, shard: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            if not is_own_file(shard):
                self._foreign.append(shard)
                shard.unlink()  # a shard written to its name would otherwise follow a link
                return
            open_regular(shard).close()  # the library would wait for a writer of a pipe
            with safe_open(shard, framework="pt") as file:
                identities = file.get_tensor("identities").numpy()
        except OSError as error:
            self._skip_unreadable(shard, error)
            return
        except (SafetensorError, ValueError, KeyError, TypeError):  # TypeError of what numpy has no type for
            self._discard(shard)
            return
        if identities.dtype == np.uint8 and identities.ndim == 2 and identities.shape[1] == 32:
            self._index.add(shard, identities)
        else:
            self._discard(shard)

    def _open_shard(self, shard: Path) -> dict[str, Tensor] | None:
        """The verified content of a shard, from the few kept open; None if it is damaged."""
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        try:
            tensors, _ = load_tensors(shard)
            self._check(tensors, shard)
        except DataError as error:
            if isinstance(error.__cause__, OSError):
                self._skip_unreadable(shard, error.__cause__)
            else:
                self._discard(shard)
            self._index.remove(shard)
            return None
        with contextlib.suppress(OSError):  # in a read-only folder
            os.utime(shard)  # used now; the time of access is kept by few file systems
        self._open[shard] = tensors
        if len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        return tensors

    def _check(self, tensors: Mapping[str, Tensor], shard: Path) -> None:
        """Refuse tensors that no shard has, whoever wrote them: a checksum is no signature."""
        n = tensors["flags"].numel() if "flags" in tensors else 0
        needed: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "identities": (torch.uint8, (n, 32)),
            "features": (torch.float32, (n, self._dim)),
            "flags": (torch.int32, (n,)),
            "sizes": (torch.int32, (n, 2)),
        }
        found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        if found != {name: facts for name, facts in needed.items() if name != "sizes" or name in tensors}:
            raise DataError(f"{shard} is no shard of this cache", code="file-damaged", path=str(shard))

    def _skip_unreadable(self, shard: Path, error: OSError) -> None:
        """Leave a shard that cannot be read now: a network file system may have failed for a moment."""
        if not isinstance(error, FileNotFoundError):  # else another process pruned it
            reason = error.strerror or error
            self.notices.append(notice("cache-unreadable", file=shard.name, reason=reason))

    def _discard(self, shard: Path) -> None:
        self.notices.append(notice("cache-discarded", file=shard.name))
        with contextlib.suppress(OSError):  # in a read-only folder it stays, and stays ignored
            shard.unlink(missing_ok=True)

    def _describe(self, text: str) -> None:
        """Leave a note for people who look into the folder."""
        path = self.folder / "key.json"
        if not path.exists():
            with contextlib.suppress(OSError):
                path.write_text(text + "\n")


class JoinedCache:
    """Features of several layers side by side, each kept in a cache of its own; known where all of them are.

    A layer that one run stored is used by the next run, whichever other layers that needs.

    Args:
        caches: One per layer.
        dims: How long each layer's features are.
    """

    def __init__(self, caches: Sequence[FeatureCache], dims: Sequence[int]) -> None:
        self._caches = tuple(caches)
        self._dims = tuple(dims)

    @property
    def notices(self) -> list[Notice]:
        """What happened in any of them, each thing once."""
        return list(dict.fromkeys(notice for cache in self._caches for notice in cache.notices))

    def get(self, identity: bytes) -> CachedImage | None:
        """As `FeatureCache.get`."""
        parts = []
        for cache in self._caches:
            known = cache.get(identity)
            if known is None:
                return None
            parts.append(known)
        size = next((part.size for part in parts if part.size is not None), None)
        return CachedImage(torch.cat([part.features for part in parts]), parts[0].flags, size)

    def add(
        self,
        identities: Sequence[bytes],
        features: Tensor,
        flags: Sequence[tuple[str, ...]],
        sizes: Sequence[tuple[int, int] | None] | None = None,
    ) -> None:
        """As `FeatureCache.add`; a layer that is known already is not stored again."""
        sizes = [None] * len(identities) if sizes is None else sizes
        for cache, part in zip(self._caches, torch.split(features, list(self._dims), dim=1), strict=True):
            new = [row for row, identity in enumerate(identities) if identity not in cache]
            if new:
                cache.add(
                    [identities[row] for row in new],
                    part[new],
                    [flags[row] for row in new],
                    [sizes[row] for row in new],
                )

    def flush(self) -> None:
        """As `FeatureCache.flush`."""
        for cache in self._caches:
            cache.flush()


def _size_of(tensors: Mapping[str, Tensor], row: int) -> tuple[int, int] | None:
    """(width, height); None in shards of before sizes were kept, and for what came as pixels."""
    if "sizes" not in tensors:
        return None
    width, height = tensors["sizes"][row].tolist()
    return (width, height) if width else None


def _bits(flags: tuple[str, ...]) -> int:
    return sum(1 << FLAGS.index(flag) for flag in flags)


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
        first, end = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
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
