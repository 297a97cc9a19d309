"""Embedded images in the order of their source, whichever rank embedded them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from genpr.distributed import Communicator
from genpr.errors import DataError, ImageError
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.image_facts import ImageFacts
from genpr.features.read_ahead import LoadedImage
from genpr.features.registry import describe
from genpr.images.item import ImageSource, Item, known_length, printable
from genpr.images.policy import in_order
from genpr.images.shards import BLOCK, names_sha256
from genpr.memory import empty_rows

_HASH = 32


class RankShare:
    """The images of a source that are this rank's: block r, r + size, r + 2 size, ...

    Every rank goes through the whole list, and reads only its own images.

    Args:
        source: The same on every rank.
        communicator: The ranks that share it.

    Attributes:
        names: Of all images met so far, the other ranks' too.
        total: How many images the source has; None if it does not know.

    Raises:
        DataError: It has another number of images elsewhere ("ranks-differ").
    """

    def __init__(self, source: ImageSource, communicator: Communicator) -> None:
        self._source, self._communicator = source, communicator
        self.names: list[str] = []
        self.total = known_length(source)
        self._check(self.total, "images")

    def __iter__(self) -> Iterator[Item]:
        rank, size = self._communicator.rank, self._communicator.size
        names = None if self._communicator.is_single_process or self.total is None else self._source.names()
        if (
            names is not None
        ):  # others' images are not even passed by, which for parquet would be to read them
            self.names.extend(names)
            own = (start for start in range(0, self.total or 0, BLOCK) if start // BLOCK % size == rank)
            places = (place for start in own for place in range(start, min(start + BLOCK, self.total or 0)))
            yield from self._source.pick(places)
            return
        for position, item in enumerate(self._source):
            self.names.append(item.name)
            if position // BLOCK % size == rank:
                yield item

    def check_names(self) -> None:
        """Make sure that all ranks went through the same list.

        Raises:
            DataError: They did not ("ranks-differ").
        """
        if not self._communicator.is_single_process:
            facts = [len(self.names), names_sha256(self.names)[:16]]
            self._check(facts, "images and hash of their names")

    def place(self, number: int) -> int:
        """Where in the source this rank's image of a `number` (from 0) is."""
        block, row = divmod(number, BLOCK)
        return (block * self._communicator.size + self._communicator.rank) * BLOCK + row

    @property
    def most(self) -> int | None:
        """How many images this rank has at most; None if unknown."""
        blocks = None if self.total is None else -(-self.total // BLOCK)
        if self.total is None or blocks is None:
            return None
        return min(self.total, -(-blocks // self._communicator.size) * BLOCK)

    def _check(self, own: Any, what: str) -> None:  # noqa: ANN401 - plain JSON types
        if self._communicator.is_single_process:
            return
        for rank, other in enumerate(self._communicator.all_gather_object(own)):
            if other != own:
                raise DataError(
                    f"{printable(self._source.name)} is not the same everywhere: {what} are {own} on rank "
                    f"{self._communicator.rank} and {other} on rank {rank}; do all machines see one file system?",
                    code="ranks-differ",
                    path=self._source.name,
                )


@dataclass
class Collected:
    """What is known of the images of one rank, or of all, in source order whatever the order of batches.

    Attributes:
        features: float32, a row per usable image, and perhaps room for more.
        counts: Usable images by block.
        identities: sha256 of each usable image, 32 bytes after 32 bytes, where bytes objects take 90.
        flags: How many images each decoding flag applies to.
        formats: How many files are of which format.
        sizes: How many are of which (width, height).
        bad: By position in the source, the images that cannot be used.
        n_cached: Images whose features were known.
    """

    features: Tensor
    counts: Counter[int] = field(default_factory=Counter)
    identities: bytearray = field(default_factory=bytearray)
    flags: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    bad: dict[int, ImageError] = field(default_factory=dict)
    n_cached: int = 0

    def new_row(self, image: LoadedImage, place: int) -> int:
        """The row of a usable image at `place` in the source; images come in order."""
        self.counts[place // BLOCK] += 1
        self.identities += image.identity
        self.flags.update(image.flags)
        if image.format is not None:
            self.formats[image.format] += 1
        if image.size is not None:
            self.sizes[image.size] += 1
        if self.n > len(self.features):
            n, dim = self.features.shape
            more = empty_rows(2 * n, dim, torch.float32)
            more[:n] = self.features
            self.features = more
        return self.n - 1

    @property
    def n(self) -> int:
        """Usable images."""
        return len(self.identities) // _HASH

    def put(self, rows: list[int], features: Tensor) -> None:
        """Features (r, d) of some rows."""
        self.features[rows] = features

    def of_all(self, communicator: Communicator) -> Collected:
        """The same of the images of all ranks."""
        if communicator.is_single_process:
            return self
        told = communicator.all_gather_object(self._record())
        counts = {int(block): count for each in told for block, count in each["counts"].items()}
        rows, hashes = self.features[: self.n], self._hashes()
        errors = sorted(entry for each in told for entry in each["bad"])
        return Collected(
            features=_in_order(rows, counts, communicator),
            counts=Counter(counts),
            identities=bytearray(_in_order(hashes, counts, communicator).numpy()),
            flags=_summed(each["flags"].items() for each in told),
            formats=_summed(each["formats"].items() for each in told),
            sizes=_summed((((w, h), count) for w, h, count in each["sizes"]) for each in told),
            bad={place: ImageError(text, code=code, path=path) for place, code, text, path in errors},
            n_cached=sum(each["n_cached"] for each in told),
        )

    def _hashes(self) -> Tensor:
        """(n, 32) uint8, in the same memory."""
        if not self.n:
            return torch.empty(0, _HASH, dtype=torch.uint8)
        return torch.frombuffer(self.identities, dtype=torch.uint8).view(self.n, _HASH)

    def _record(self) -> dict[str, Any]:
        """What is not a tensor, as plain JSON types."""
        return {
            "counts": self.counts,
            "flags": self.flags,
            "formats": self.formats,
            "sizes": [[*size, count] for size, count in self.sizes.items()],
            "bad": [[place, error.code, str(error), error.path] for place, error in self.bad.items()],
            "n_cached": self.n_cached,
        }

    def feature_set(
        self, source: str, names: list[str], extractor: FeatureExtractor, *, seconds: float
    ) -> FeatureSet:
        """All rows, called by the `names` of all images of the source."""
        n = self.n
        return FeatureSet(
            features=self.features[:n],
            source=source,
            extractor=describe(extractor),
            names=tuple(name for place, name in enumerate(names) if place not in self.bad),
            identities=self._hashes(),
            flags=in_order(self.flags),
            facts=ImageFacts.of(self.formats, self.sizes),
            sizes=self.sizes,
            skipped=tuple(self.bad.values()),
            n_embedded=n - self.n_cached,
            n_cached=self.n_cached,
            seconds=seconds,
        )


def _in_order(rows: Tensor, counts: dict[int, int], communicator: Communicator) -> Tensor:
    """The rows of all blocks, of which this rank has its own: (n, ...)."""
    blocks = sorted(counts)
    every = empty_rows(sum(counts.values()), rows.shape[1], rows.dtype)
    parts = dict(zip(blocks, torch.split(every, [counts[block] for block in blocks]), strict=True))
    own = [block for block in blocks if block % communicator.size == communicator.rank]
    for block, part in zip(own, torch.split(rows, [counts[block] for block in own]), strict=True):
        parts[block].copy_(part)
    communicator.broadcast_parts([(block % communicator.size, parts[block]) for block in blocks])
    return every


def _summed(entries: Any) -> Counter[Any]:  # noqa: ANN401 - pairs of some key and a count, of each rank
    total: Counter[Any] = Counter()
    for each in entries:
        for key, count in each:
            total[key] += count
    return total
