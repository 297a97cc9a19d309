"""Find copies of training images among the images, in the same features."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genpr.conditional.prompt_ranking import metric_value
from genpr.conditional.text_files import is_file, read_csv, read_text
from genpr.errors import DataError, UsageError, short
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, open_input
from genpr.features.source_features import Embedder, ExtractorKey, SourceFeatures
from genpr.images.item import plain_path
from genpr.metrics.copy_detection import CopyDetection, copy_detection
from genpr.metrics.value import MetricValue

_HEADING = {"image", "file", "name", "fake", "generated"}


@dataclass(frozen=True, kw_only=True)
class CopyDetectionConfig:
    """Training images, and when an image counts as a copy of one.

    Attributes:
        train: The training images, or their features.
        threshold: Cosine above which an image counts as a copy.
        pairs: Known copies, as names of an image and of a training image: a .csv or .tsv file, or pairs; None if unknown.
    """

    train: object
    threshold: float = 0.5
    pairs: object = None

    def __post_init__(self) -> None:
        number = self.threshold
        if isinstance(number, bool) or not isinstance(number, int | float) or not -1 <= number <= 1:
            raise UsageError(
                f"threshold must be a cosine, from -1 to 1, not {number!r}", code="bad-threshold"
            )

    def opened(self) -> OpenedInput:
        """The training images, found and not read yet."""
        return open_input(self.train, "real")

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
        if not found or not all(
            isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
            for pair in found
        ):
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


def find_copies(
    images: FeatureSet, config: CopyDetectionConfig, space: ExtractorKey, embedder: Embedder
) -> Copies:
    """Compare images with training images, which are embedded alike.

    Raises:
        GenprError: Training images cannot be used, or pairs name others.
    """
    side = SourceFeatures(config.opened(), "training images", embedder, declared=(space,))
    side.require([space], minimum=2)
    train = side[space]
    names = [train.name_of(row) for row in range(len(train))]
    pairs = config.named_pairs()
    rows = None if pairs is None else _rows(pairs, [images.name_of(row) for row in range(len(images))], names)
    found = copy_detection(
        images.features.float(),
        train.features.float(),
        threshold=config.threshold,
        true_pairs=rows,
        seed=embedder.options.seed,
        device=embedder.device,
    )
    hashes = None if train.identities is None else train.identities.numpy()
    return Copies(found, train.source, names, hashes)


def copy_values(copies: Copies, *, extractor: str) -> dict[str, MetricValue]:
    """`retrieval.copy_rate` beside what training images score among themselves, and `retrieval.copy_ap` of known pairs."""
    found = copies.found
    values = {
        "retrieval.copy_rate": metric_value(
            found.rate,
            found.rate.n,
            extractor=extractor,
            variant=f"cosine above {found.threshold:g} to one of {len(copies.names):,} training images",
            null=found.null.value,
        )
    }
    if found.ap is not None:
        values["retrieval.copy_ap"] = metric_value(
            found.ap,
            found.ap.n_true,
            extractor=extractor,
            variant=f"{found.ap.n_true:,} known pairs",
            pool=found.ap.n_pairs,
        )
    return values


def _from_file(path: Path) -> list[tuple[str, str]]:
    if path.suffix.lower() not in {".csv", ".tsv"} or not is_file(path):
        raise UsageError(
            f"there is no .csv or .tsv file {str(path)!r} with the known copies; needed are lines of image,training image",
            code="path-not-found",
            path=str(path),
        )
    text = read_text(path, "known copies", damaged="prompts-damaged", encoding="prompts-encoding")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = [row for _, row in read_csv(text, str(path), delimiter, code="bad-pairs")]
    if rows and rows[0][0].strip().lower() in _HEADING:
        rows = rows[1:]
    wrong = next((row for row in rows if len(row) != 2 or not all(row)), None)
    if wrong is not None or not rows:
        found = "nothing" if wrong is None else short(repr(wrong))
        raise DataError(
            f"{path} must hold lines of image,training image, but holds {found}",
            code="bad-pairs",
            path=str(path),
        )
    return [(plain_path(image.strip()), plain_path(train.strip())) for image, train in rows]


def _rows(pairs: Sequence[tuple[str, str]], images: Sequence[str], train: Sequence[str]) -> NDArray[np.int64]:
    """Indices of named pairs."""
    columns = []
    for side, (names, what) in enumerate(((images, "images"), (train, "training images"))):
        row_of = {plain_path(name): row for row, name in enumerate(names)}
        unknown = next((pair[side] for pair in pairs if pair[side] not in row_of), None)
        if unknown is not None:
            raise DataError(
                f"known copies name {short(unknown)!r}, which is not among the {what}, such as {short(next(iter(row_of)))!r}",
                code="bad-pairs",
            )
        columns.append([row_of[pair[side]] for pair in pairs])
    return np.array(columns, dtype=np.int64).T.copy()
