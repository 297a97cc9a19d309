"""Find copies of training images among the images, in the same features."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from genpr.conditional.options import AlignOptions
from genpr.conditional.prompt_ranking import metric_value
from genpr.errors import DataError, UsageError, short
from genpr.evaluation.tables import delimiter_of, is_file, read_csv, read_text
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import open_input
from genpr.features.source_features import Embedder, ExtractorKey, SourceFeatures
from genpr.images.item import plain_path
from genpr.metrics.copy_detection import CopyDetection, copy_detection
from genpr.metrics.value import MetricValue

_HEADING = {"image", "file", "name", "fake", "generated"}


@dataclass(frozen=True)
class Copies:
    """Which images are near a training image.

    Attributes:
        found: The nearest one of each, and the shares.
        source: The training images as the user wrote them.
        names: Of the training images.
        identities: (n, 32) uint8, sha256 of their bytes; None where they are not known.
    """

    found: CopyDetection
    source: str
    names: Sequence[str]
    identities: NDArray[np.uint8] | None


def find_copies(
    images: FeatureSet, options: AlignOptions, extractor: ExtractorKey, embedder: Embedder
) -> Copies:
    """Compare images with the training images of `options.copies_of`, which are embedded alike.

    Raises:
        GenprError: Training images cannot be used, or pairs name others.
    """
    source = SourceFeatures(
        open_input(options.copies_of, "real"), "training images", embedder, declared=(extractor,)
    )
    source.require([extractor], minimum=2)
    train = source[extractor]
    names = [train.name_of(row) for row in range(len(train))]
    pairs = read_pairs(options.pairs)
    rows = None if pairs is None else _rows(pairs, [images.name_of(row) for row in range(len(images))], names)
    found = copy_detection(
        images.features.float(),
        train.features.float(),
        threshold=options.threshold,
        true_pairs=rows,
        seed=options.seed,
        device=embedder.device,
    )
    hashes = None if train.identities is None else train.identities.numpy()
    return Copies(found, train.source, names, hashes)


def copy_values(copies: Copies, *, extractor: str) -> dict[str, MetricValue]:
    """`retrieval.copy_rate` with the rate of training images as null, and `retrieval.copy_ap` of known pairs."""
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


def read_pairs(pairs: object) -> list[tuple[str, str]] | None:
    """Known copies as names of an image and of a training image, from a .csv or .tsv file or pairs; None without them.

    Raises:
        UsageError: There is no such file ("path-not-found"), or they are no pairs of names ("bad-pairs").
        DataError: The file is damaged.
    """
    if pairs is None:
        return None
    if isinstance(pairs, str | os.PathLike):
        rows: list[Sequence[str]] = _rows_of_file(Path(pairs))
    else:
        rows = list(pairs) if isinstance(pairs, Iterable) else []
        if not rows or not all(
            isinstance(row, tuple | list) and len(row) == 2 and all(isinstance(name, str) for name in row)
            for row in rows
        ):
            raise UsageError("pairs must be (image, training image) by their names", code="bad-pairs")
    return [(plain_path(image.strip()), plain_path(train.strip())) for image, train in rows]


def _rows_of_file(path: Path) -> list[Sequence[str]]:
    if path.suffix.lower() not in {".csv", ".tsv"} or not is_file(path):
        raise UsageError(
            f"there is no .csv or .tsv file {short(str(path), 60)!r} with the known copies; needed are lines of image,training image",
            code="path-not-found",
            path=str(path),
        )
    text = read_text(path, "known copies", code="prompts-damaged", encoding_code="prompts-encoding")
    rows = [row for _, row in read_csv(text, str(path), delimiter_of(path), code="bad-pairs")]
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
    return list(rows)


def _rows(pairs: Sequence[tuple[str, str]], images: Sequence[str], train: Sequence[str]) -> NDArray[np.int64]:
    """Indices of named pairs, (t, 2)."""
    columns = []
    for column, (names, what) in enumerate(((images, "images"), (train, "training images"))):
        row_of = {plain_path(name): row for row, name in enumerate(names)}
        unknown = next((pair[column] for pair in pairs if pair[column] not in row_of), None)
        if unknown is not None:
            raise DataError(
                f"known copies name {short(unknown)!r}, which is not among the {what}, such as {short(next(iter(row_of)))!r}",
                code="bad-pairs",
            )
        columns.append([row_of[pair[column]] for pair in pairs])
    return np.array(columns, dtype=np.int64).T.copy()
