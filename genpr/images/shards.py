"""Shards of a source, for tasks that embed it together, and the information that identifies shards of one source.

A shard consists of whole blocks of consecutive images. So each task reads only its images, the concatenated shards are
the source in its order, and blocks of images do not depend on the number of tasks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from genpr.errors import UsageError
from genpr.images.item import ImageSource, SubsetSource, known_length

BLOCK = 2048
"""Consecutive images that are never divided among shards."""


@dataclass(frozen=True)
class Shard:
    """Shard `index` of `count`, counted from 1; invalid numbers are a `UsageError` ("bad-shard")."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            text = f"a shard I/N must have I from 1 to N, found {self.index}/{self.count}; shards are counted from 1"
            raise UsageError(text, code="bad-shard")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From text such as "3/16"."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
        if match is None:
            message = f"a shard must have the form I/N, such as 3/16, not {text!r}"
            raise UsageError(message, code="bad-shard")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def rows(self, total: int) -> range:
        """The images of this shard among `total`: whole blocks, whose numbers differ by at most one between shards."""
        blocks = -(-total // BLOCK)
        first, end = (blocks * index // self.count for index in (self.index - 1, self.index))
        return range(min(first * BLOCK, total), min(end * BLOCK, total))


@dataclass(frozen=True)
class ShardInfo:
    """Information about the source in a file with the features of one shard: the images `start` to `end` of `total`.

    `names_sha256` is the hash of the names of all images in order, equal for shards of equal sources. `max_bad` is the fraction
    of all images that may be unusable.
    """

    index: int
    count: int
    start: int
    end: int
    total: int
    names_sha256: str
    max_bad: float

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.end <= self.total and 0 <= self.max_bad <= 1):
            raise ValueError(f"a shard cannot contain the images {self.start} to {self.end} of {self.total}")
        _ = self.shard

    @property
    def shard(self) -> Shard:
        """The shard."""
        return Shard(self.index, self.count)


@dataclass(frozen=True)
class ShardSource(SubsetSource):
    """The images of one shard of a source."""

    rows: range
    shard: Shard

    def info(self, *, max_bad: float) -> ShardInfo:
        """Information about the shard; reads the names of all images."""
        return ShardInfo(
            index=self.shard.index,
            count=self.shard.count,
            start=self.rows.start,
            end=self.rows.stop,
            total=len(self.source),
            names_sha256=names_sha256(self.source.names() or (item.name for item in self.source)),
            max_bad=max_bad,
        )


def shard_of(source: ImageSource, shard: Shard) -> ShardSource:
    """One shard of a source, which must have a known length ("unknown-length")."""
    total = known_length(source)
    if total is None:
        text = f"{source.name} has an unknown number of images, so it cannot be divided into shards; write them to files first"
        raise UsageError(text, code="unknown-length", path=source.name)
    return ShardSource(source.name, source, shard.rows(total), shard)


def names_sha256(names: Iterable[str]) -> str:
    """Hex sha256 of names in their order."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
