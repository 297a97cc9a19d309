"""The feature cache: content-keyed shards, so that no image is embedded twice by the same extractor.

Images are identified by the sha256 of their bytes, independent of their path. A shard is one checksummed file of up to
`SHARD_ROWS` images; shards are written when full and at the end of a run. The folder depends on extractor, weights, resize
rule, decoder and type of device. The modification time of a shard is the time of its last use, for `genpr cache prune`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, GenprError, ResourceError
from genpr.features.extractor import ExtractorInfo
from genpr.images.decode import decoder_versions
from genpr.images.loading import CachedImage
from genpr.images.policy import DEFAULTS, FLAGS, DecodePolicy
from genpr.notices import Notice, notice
from genpr.runtime import is_owned_by_user, private_folder
from genpr.storage import load_tensors, opened_tensors, replace_file, save_tensors, tensors_sha256

FEATURE_VERSION = 3  # raise it whenever decoding, resizing or embedding changes any feature
SHARD_ROWS = 2048
_OPEN_SHARDS = 8  # 16 MB each at 2048 dimensions


def _switched_off() -> dict[str, list[str]]:
    """The libraries and kernels that are switched off, without which features differ in their last bits; empty if there are none."""
    backends, timm = torch.backends, sys.modules.get("timm.layers")
    has_mode = torch.overrides.has_torch_function((torch.empty(0),))  # such as a default device
    is_on = {
        "cudnn": backends.cudnn.enabled,
        "mkldnn": backends.mkldnn.enabled,
        "fast path of attention": backends.mha.get_fastpath_enabled() and not has_mode,
        "cudnn attention": backends.cuda.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
        "flash attention": backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        "memory-efficient attention": backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        "plain attention": backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
        "fused attention of timm": timm is None or bool(timm.use_fused_attn()),
    }
    off = [name for name, on in is_on.items() if not on]
    return {"switched_off": off} if off else {}


class FeatureCache:
    """Features of one extractor, or of one layer of it, on disk.

    Reading is thread-safe, and several processes may share a folder: shards are named after their content and never change.
    Features that a run adds are available to the next run. The `device_type`, "cpu" or "cuda", is part of the key, since
    features differ in their last bits, and so is `policy`, so that limits on image size also apply to cached images.
    """

    def __init__(
        self, root: Path, info: ExtractorInfo, device_type: str, *, policy: DecodePolicy = DEFAULTS
    ) -> None:
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
            **policy.choices,  # empty for the defaults, so that older folders stay valid
            **_switched_off(),
        }
        text = json.dumps(key, sort_keys=True, indent=1)
        slug = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")[-40:]
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.folder = private_folder(root, "features", f"{slug}-{digest[:16]}")
        self.notices: list[Notice] = []
        self.dim = info.dim
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, dict[str, Tensor]] = OrderedDict()
        self._pending: list[tuple[bytes, CachedImage]] = []
        self._writable = True
        self._unusable: set[Path] = set()
        # The index: the last 8 bytes of all digests, sorted, with the positions of their rows in the shards.
        self._shards, self._starts, keys = list[Path](), [0], [np.empty(0, np.uint64)]
        try:
            listed = sorted(self.folder.iterdir())
        except OSError as error:
            text = f"{self.folder} cannot be listed ({error.strerror}); check its owner and permissions"
            raise ResourceError(text, code="cache-unusable", path=str(self.folder)) from error
        for shard in listed:
            identities = self._read_identities(shard) if shard.suffix == ".safetensors" else None
            if identities is not None:
                keys.append(np.ascontiguousarray(identities[:, -8:]).view(np.uint64)[:, 0])
                self._shards.append(shard)
                self._starts.append(self._starts[-1] + len(identities))
        every = np.concatenate(keys)
        self._order = np.argsort(every, kind="stable")
        self._keys = every[self._order]
        description = self.folder / "key.json"  # for users and `genpr cache`
        with contextlib.suppress(OSError, GenprError):
            is_there = description.is_file()
            if not is_there or description.stat().st_size != len(text) + 1:  # a truncated file
                replace_file(description, text + "\n")

    @property
    def keys(self) -> tuple[NDArray[np.uint64], ...]:
        """The last 8 bytes of the sha256 of each image, sorted."""
        return (self._keys,)

    def __contains__(self, identity: bytes) -> bool:
        """Whether the image with sha256 `identity` is stored; wrong with a probability of 2^-64."""
        return any(shard not in self._unusable for shard, _ in self._locations(identity))

    def get(self, identity: bytes) -> CachedImage | None:
        """The stored features of the image with sha256 `identity`, or None."""
        for path, row in self._locations(identity):
            with self._lock:
                shard = self._open_shard(path)
            if shard is not None and shard["identities"][row].numpy().tobytes() == identity:
                bits = int(shard["flags"][row])
                flags = tuple(flag for position, flag in enumerate(FLAGS) if bits >> position & 1)
                width, height = shard["sizes"][row].tolist()
                return CachedImage(shard["features"][row], flags, (width, height) if width else None)
        return None

    def add(self, identities: Sequence[bytes], images: Sequence[CachedImage]) -> None:
        """Store new images by their sha256."""
        self._pending += zip(identities, images, strict=True)
        while len(self._pending) >= SHARD_ROWS:
            self._write(self._pending[:SHARD_ROWS])
            del self._pending[:SHARD_ROWS]

    def flush(self) -> None:
        """Write all pending images."""
        if self._pending:
            self._write(self._pending)
            self._pending = []

    def _write(self, rows: Sequence[tuple[bytes, CachedImage]]) -> None:
        if not self._writable:
            return
        unique = dict(rows)
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
            save_tensors(shard, tensors, {"format": "genpr.cache/1"})
        except (OSError, GenprError) as error:
            self._writable = False  # one notice, not one per shard
            reason = getattr(error.__cause__ or error, "strerror", None) or error
            self.notices.append(notice("cache-write-failed", folder=self.folder, reason=reason))

    def _read_identities(self, shard: Path) -> NDArray[np.uint8] | None:
        """The digests in a shard; None if it is unusable, for example owned by another user."""
        try:
            if is_owned_by_user(shard):
                with opened_tensors(shard) as file:
                    identities: NDArray[np.uint8] = file.get_tensor("identities").numpy()
                if identities.dtype == np.uint8 and identities.ndim == 2 and identities.shape[1] == 32:
                    return identities
            self._reject(shard)
        except (DataError, OSError, TypeError) as error:
            self._reject(shard, error.__cause__ if isinstance(error, DataError) else error)
        return None

    def _locations(self, identity: bytes) -> list[tuple[Path, int]]:
        """The shards and rows that may have the image with sha256 `identity`."""
        key = np.frombuffer(identity[-8:], np.uint64)[0]
        first, end = np.searchsorted(self._keys, key, "left"), np.searchsorted(self._keys, key, "right")
        locations = []
        for position in self._order[first:end].tolist():
            number = bisect_right(self._starts, position) - 1
            locations.append((self._shards[number], position - self._starts[number]))
        return locations

    def _open_shard(self, shard: Path) -> dict[str, Tensor] | None:
        """The verified content of a shard, of which the last used are kept open; None if it is damaged or removed."""
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        if shard in self._unusable:
            return None
        try:
            tensors, _ = load_tensors(shard)
        except DataError as error:
            self._reject(shard, error.__cause__)
            return None
        n = tensors["flags"].numel() if "flags" in tensors else 0
        form = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        if form != {  # a checksum does not authenticate the file
            "identities": (torch.uint8, (n, 32)),
            "features": (torch.float32, (n, self.dim)),
            "flags": (torch.int32, (n,)),
            "sizes": (torch.int32, (n, 2)),
        }:
            self._reject(shard)
            return None
        with contextlib.suppress(OSError):  # in a read-only folder
            os.utime(shard)  # mark as used, since many file systems do not store access times
        self._open[shard] = tensors
        if len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        return tensors

    def _reject(self, shard: Path, error: BaseException | None = None) -> None:
        """Do not use a shard again. Unreadable files are kept, since a network file system may fail temporarily."""
        self._unusable.add(shard)
        if not isinstance(error, OSError):
            self.notices.append(notice("cache-discarded", file=shard.name))
            with contextlib.suppress(OSError):  # in a read-only folder, where it stays but is ignored
                shard.unlink(missing_ok=True)
        elif not isinstance(error, FileNotFoundError):  # removed by another process
            self.notices.append(notice("cache-unreadable", file=shard.name, reason=error.strerror or error))


class JoinedCache:
    """Concatenated features of several layers, each in a separate cache, which runs with other layers share."""

    def __init__(self, layers: Sequence[FeatureCache]) -> None:
        self.layers = tuple(layers)

    @property
    def notices(self) -> list[Notice]:
        """The notices of all layers without duplicates."""
        return list(dict.fromkeys(notice for layer in self.layers for notice in layer.notices))

    @property
    def keys(self) -> tuple[NDArray[np.uint64], ...]:
        """The keys of each layer."""
        return tuple(keys for layer in self.layers for keys in layer.keys)

    def get(self, identity: bytes) -> CachedImage | None:
        """As `FeatureCache.get`; None unless all layers are cached."""
        parts = []
        for layer in self.layers:
            known = layer.get(identity)
            if known is None:
                return None
            parts.append(known)
        return parts[0]._replace(features=torch.cat([part.features for part in parts]))

    def add(self, identities: Sequence[bytes], images: Sequence[CachedImage]) -> None:
        """As `FeatureCache.add`; cached layers are not stored again."""
        columns = [torch.split(image.features, [layer.dim for layer in self.layers]) for image in images]
        for layer, *features in zip(self.layers, *columns, strict=True):
            rows = zip(identities, images, features, strict=True)
            new = {key: image._replace(features=part) for key, image, part in rows if key not in layer}
            layer.add(list(new), list(new.values()))

    def flush(self) -> None:
        """As `FeatureCache.flush`."""
        for layer in self.layers:
            layer.flush()
