"""Copies of training images among the images, found in the same features."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genpr.conditional.prompts import text_of
from genpr.errors import DataError, UsageError, printable, short
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder, Space
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, open_side
from genpr.images.naming import plain_path
from genpr.limits import csv_rows
from genpr.metrics.copy_detection import CopyDetection, copy_detection
from genpr.metrics.value import MetricValue

THRESHOLD = 0.5
_HEADING = {"image", "file", "name", "fake", "generated"}


@dataclass(frozen=True, kw_only=True)
class CopyQuestion:
    """What the images may be copies of.

    Attributes:
        train: The training images, or their features.
        threshold: Cosine above which an image counts as a copy.
        pairs: Known copies, as names of an image and of a training image: a .csv or .tsv file, or pairs; None if unknown.
    """

    train: object
    threshold: float = THRESHOLD
    pairs: object = None

    def __post_init__(self) -> None:
        number = self.threshold
        if isinstance(number, bool) or not isinstance(number, int | float) or not -1 <= number <= 1:
            raise UsageError(
                f"threshold must be a cosine, from -1 to 1, not {number!r}", code="bad-threshold"
            )

    def opened(self) -> OpenedSide:
        """The training images, found and not read yet."""
        return open_side(self.train, "real")

    def named_pairs(self) -> list[tuple[str, str]] | None:
        """Known copies by name.

        Raises:
            UsageError: There is no such file, or they are no pairs of names.
            DataError: The file is damaged.
        """
        if self.pairs is None:
            return None
        if isinstance(self.pairs, str | os.PathLike):
            return _from_file(Path(self.pairs))
        found = list(self.pairs) if isinstance(self.pairs, Iterable) else []
        if not found or not all(_is_pair(pair) for pair in found):
            raise UsageError("pairs must be (image, training image) by their names", code="bad-pairs")
        return [(plain_path(image), plain_path(train)) for image, train in found]


@dataclass(frozen=True)
class Copies:
    """Which images are near a training image.

    Attributes:
        found: The nearest one of each, and the shares.
        source: The training images as the user wrote them.
        names: What they are called.
        identities: (n, 32) uint8, sha256 of their bytes; None where they are not known.
    """

    found: CopyDetection
    source: str
    names: Sequence[str]
    identities: NDArray[np.uint8] | None


def find_copies(images: FeatureSet, asked: CopyQuestion, space: Space, embedder: Embedder) -> Copies:
    """Compare images with training images, which are embedded alike.

    Raises:
        GenprError: Training images cannot be used, or pairs name others.
    """
    side = SideFeatures(asked.opened(), "training images", embedder, own=(space,))
    side.require([space], minimum=2)
    train = side[space]
    names = [train.name_of(row) for row in range(len(train))]
    pairs = asked.named_pairs()
    rows = None if pairs is None else _rows(pairs, [images.name_of(row) for row in range(len(images))], names)
    found = copy_detection(
        images.features.float(),
        train.features.float(),
        threshold=asked.threshold,
        true_pairs=rows,
        seed=embedder.seed,
        device=embedder.device,
    )
    hashes = None if train.identities is None else train.identities.numpy()
    return Copies(found, train.source, names, hashes)


def copy_values(copies: Copies, *, extractor: str) -> dict[str, MetricValue]:
    """`retrieval.copy_rate` beside what training images score among themselves, and `retrieval.copy_ap` of known pairs."""
    found = copies.found
    rate, ap = found.rate, found.ap
    assert rate.value is not None
    variant = f"cosine above {found.threshold:g} to one of {len(copies.names):,} training images"
    values = {
        "retrieval.copy_rate": MetricValue(
            rate.value,
            None,
            extractor=extractor,
            variant=variant,
            null=found.null.value,
            interval=None if rate.interval is None else (rate.interval.low, rate.interval.high),
            replicates=None if rate.replicates is None else tuple(rate.replicates.tolist()),
            n_counted=rate.n,
        )
    }
    if ap is not None:
        values["retrieval.copy_ap"] = MetricValue(
            ap.value,
            None,
            extractor=extractor,
            variant=f"{ap.n_true:,} known pairs",
            interval=None if ap.interval is None else (ap.interval.low, ap.interval.high),
            replicates=None if ap.replicates is None else tuple(ap.replicates.tolist()),
            n_counted=ap.n_true,
            chance=ap.chance,
            pool=ap.n_pairs,
        )
    return values


def _from_file(path: Path) -> list[tuple[str, str]]:
    shown = printable(str(path))
    if path.suffix.lower() not in {".csv", ".tsv"} or not path.is_file():
        raise UsageError(
            f"there is no .csv or .tsv file {shown!r} with the known copies; needed are lines of image,training image",
            code="path-not-found",
            path=str(path),
        )
    text = text_of(path, what="known copies")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        rows = [row for _, row in csv_rows(text, delimiter)]
    except (csv.Error, ValueError) as error:
        raise DataError(
            f"{shown} is no CSV of image,training image ({error})", code="bad-pairs", path=str(path)
        ) from error
    if rows and rows[0][0].strip().lower() in _HEADING:
        rows = rows[1:]
    wrong = next((row for row in rows if len(row) != 2 or not all(row)), None)
    if wrong is not None or not rows:
        came = "nothing" if wrong is None else short(repr(wrong))
        raise DataError(
            f"{shown} must hold lines of image,training image, but holds {came}",
            code="bad-pairs",
            path=str(path),
        )
    return [(plain_path(image.strip()), plain_path(train.strip())) for image, train in rows]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)


def _rows(pairs: Sequence[tuple[str, str]], images: Sequence[str], train: Sequence[str]) -> NDArray[np.int64]:
    """Places of named pairs."""
    of_images, of_train = (
        {plain_path(name): row for row, name in enumerate(names)} for names in (images, train)
    )
    for place, known, what in ((0, of_images, "images"), (1, of_train, "training images")):
        lost = next((pair[place] for pair in pairs if pair[place] not in known), None)
        if lost is not None:
            raise DataError(
                f"known copies name {short(lost)!r}, which is not among the {what}, such as {short(next(iter(known)))!r}",
                code="bad-pairs",
            )
    return np.array([(of_images[image], of_train[other]) for image, other in pairs], dtype=np.int64)
