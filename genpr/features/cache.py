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
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
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
    their content and never change. What a run adds is known to the next one.

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
        self._dim = info.dim
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, dict[str, Tensor]] = OrderedDict()
        self._pending: list[_Row] = []
        self._writable = True
        self._unusable: set[Path] = set()
        self._read_index()
        description = self.folder / "key.json"  # for people who look into the folder
        if not description.exists():
            with contextlib.suppress(OSError):
                description.write_text(text + "\n")

    def __contains__(self, identity: bytes) -> bool:
        """Whether the image with sha256 `identity` is stored; of one in 2^64 that is not, this says so, too."""
        shards = (self._shards[bisect_right(self._starts, place) - 1] for place in self._places(identity))
        return any(shard not in self._unusable for shard in shards)

    def get(self, identity: bytes) -> CachedImage | None:
        """The stored features of the image with sha256 `identity`, or None."""
        for place in self._places(identity):
            first = bisect_right(self._starts, place) - 1
            row = place - self._starts[first]
            with self._lock:
                shard = self._open_shard(self._shards[first])
            if shard is not None and shard["identities"][row].numpy().tobytes() == identity:
                bits = int(shard["flags"][row])
                flags = tuple(flag for position, flag in enumerate(FLAGS) if bits >> position & 1)
                width, height = shard["sizes"][row].tolist()
                return CachedImage(shard["features"][row], flags, (width, height) if width else None)
        return None

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
        if not self._writable:
            return
        unique = {identity: rest for identity, *rest in rows}
        features, flags, sizes = zip(*unique.values(), strict=True)
        bits = [sum(1 << FLAGS.index(flag) for flag in each) for each in flags]
        tensors = {
            "identities": torch.frombuffer(bytearray(b"".join(unique)), dtype=torch.uint8).view(-1, 32),
            "features": torch.stack(features),
            "flags": torch.tensor(bits, dtype=torch.int32),
            "sizes": torch.tensor([size or (0, 0) for size in sizes], dtype=torch.int32),
        }
        shard = self.folder / f"{tensors_sha256(tensors)[:32]}.safetensors"
        try:
            save_tensors(shard, tensors, {"format": SHARD_FORMAT})
        except (OSError, GenprError) as error:
            self._writable = False  # one notice, not one per shard
            reason = getattr(error.__cause__ or error, "strerror", None) or error
            self.notices.append(notice("cache-write-failed", folder=self.folder, reason=reason))

    def _read_index(self) -> None:
        """Where each image is: the last 8 bytes of all hashes in order, and the places of their rows, shard after shard."""
        self._shards: list[Path] = []
        self._starts = [0]
        keys = [np.empty(0, np.uint64)]
        foreign: list[Path] = []
        for shard in shards_in(self.folder):
            identities = self._read_identities(shard, foreign)
            if identities is not None:
                keys.append(np.ascontiguousarray(identities[:, -8:]).view(np.uint64)[:, 0])
                self._shards.append(shard)
                self._starts.append(self._starts[-1] + len(identities))
        if foreign:
            self.notices.append(notice("cache-foreign", count=len(foreign), file=foreign[0].name))
        every = np.concatenate(keys)
        self._order = np.argsort(every, kind="stable")
        self._keys = every[self._order]

    def _read_identities(self, shard: Path, foreign: list[Path]) -> NDArray[np.uint8] | None:
        """The hashes in a shard; None if it is unusable, or is added to `foreign`."""
        from safetensors import SafetensorError, safe_open

        try:
            if not is_own_file(shard):
                foreign.append(shard)
                shard.unlink()  # a shard written to its name would otherwise follow a link
                return None
            open_regular(shard).close()  # the library would wait for a writer of a pipe
            with safe_open(shard, framework="pt") as file:
                identities: NDArray[np.uint8] = file.get_tensor("identities").numpy()
        except OSError as error:
            self._skip_unreadable(shard, error)
            return None
        except (SafetensorError, ValueError, KeyError, TypeError):  # TypeError of what numpy has no type for
            self._discard(shard)
            return None
        if identities.dtype == np.uint8 and identities.ndim == 2 and identities.shape[1] == 32:
            return identities
        self._discard(shard)
        return None

    def _places(self, identity: bytes) -> list[int]:
        """Where the image with sha256 `identity` may be."""
        key = np.frombuffer(identity[-8:], np.uint64)[0]
        first, end = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        places: list[int] = self._order[first:end].tolist()
        return places

    def _open_shard(self, shard: Path) -> dict[str, Tensor] | None:
        """The verified content of a shard, from the few kept open; None if it is damaged or gone."""
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        if shard in self._unusable:
            return None
        try:
            tensors, _ = load_tensors(shard)
            self._check(tensors, shard)
        except DataError as error:
            self._unusable.add(shard)
            if isinstance(error.__cause__, OSError):
                self._skip_unreadable(shard, error.__cause__)
            else:
                self._discard(shard)
            return None
        with contextlib.suppress(OSError):  # in a read-only folder
            os.utime(shard)  # used now; the time of access is kept by few file systems
        self._open[shard] = tensors
        if len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        return tensors

    def _check(self, tensors: Mapping[str, Tensor], shard: Path) -> None:
        """Refuse tensors of the wrong shape or type, since a checksum does not authenticate the file."""
        n = tensors["flags"].numel() if "flags" in tensors else 0
        found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        if found != {
            "identities": (torch.uint8, (n, 32)),
            "features": (torch.float32, (n, self._dim)),
            "flags": (torch.int32, (n,)),
            "sizes": (torch.int32, (n, 2)),
        }:
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
        return CachedImage(torch.cat([part.features for part in parts]), parts[0].flags, parts[0].size)

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
