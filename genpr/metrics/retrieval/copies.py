"""Copies of training images among generated ones, as a retrieval task.

References:
    Somepalli et al. 2023, "Diffusion Art or Digital Forgery?" (share of generated images above a similarity).
    Pizzi et al. 2022, "A Self-Supervised Descriptor for Image Copy Detection" (micro-AP on DISC2021, and features).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.memory import tile_budget
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.given import MOST, as_integers, is_number
from genpr.metrics.progress import PairProgress, tally
from genpr.metrics.retrieval.micro_ap import MicroAP, micro_ap
from genpr.metrics.retrieval.places import Counts, Numbers
from genpr.metrics.retrieval.query_means import QueryMetric, query_metrics
from genpr.metrics.retrieval.similar_pairs import most_similar
from genpr.metrics.retrieval.similarities import FeaturePairs
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    check_two_rows,
    choose_device,
)


@dataclass(frozen=True, slots=True, eq=False)
class CopyDetection:
    """Which generated images are too similar to a training image.

    Attributes:
        rate: Share of the generated images whose nearest training image has a cosine above the threshold.
        null: The same share of training images, each with its nearest other training image: what images that are no
            copies score, and copies within the training set.
        threshold: The cosine.
        nearest: (m,) int64, the training image nearest to each generated one, the first of equally near ones.
        similarity: (m,) float64, its cosine.
        null_similarity: (r,) float64, the same of training images.
        ap: How well known copies are told from all other pairs; None if no pairs are known.
    """

    rate: QueryMetric
    null: QueryMetric
    threshold: float
    nearest: Counts = field(repr=False)
    similarity: Numbers = field(repr=False)
    null_similarity: Numbers = field(repr=False)
    ap: MicroAP | None

    def __str__(self) -> str:
        lines = [
            f"copy rate {_with_interval(self.rate)} above a cosine of {self.threshold:g}",
            f"null      {_with_interval(self.null)} of {self.null.n:,} training images near another one",
        ]
        return "\n".join(lines if self.ap is None else [*lines, str(self.ap)])


def copy_detection(
    generated: Features,
    train: Features,
    *,
    threshold: float = 0.5,
    true_pairs: NDArray[Any] | Tensor | Sequence[tuple[int, int]] | None = None,
    null_rows: int = 10_000,
    most_pairs: int = 2_000_000,
    seed: int = 0,
    device: str | torch.device = "auto",
    block_bytes: int | None = None,
    progress: PairProgress | None = None,
) -> CopyDetection:
    """Share of generated images that are too similar to a training image, and average precision of known copies.

    Cosines are float64, of features cast to float32, the same on every device; never more than a block of them is held.

    Args:
        generated: (m, d) features of generated images. Whether a copy is near depends on them: SSCD's are made for
            this, Inception's are not.
        train: (n, d) features of training images.
        threshold: Cosine above which an image counts as a copy. 0.5 is Somepalli's for SSCD; for other features, choose
            one that few training images reach among themselves (`null`).
        true_pairs: (t, 2) rows of `generated` and `train` that are known to be copies, as in DISC2021; None if unknown.
        null_rows: Training images that the null is taken of, drawn at random where there are more.
        most_pairs: Pairs that are ranked for average precision, at most; known copies of a smaller cosine than all of
            these count as never found, and are counted.
        seed: Of what is drawn.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.
        block_bytes: Most that a block of cosines takes; None for a small share of what is free. No number depends on it.
        progress: Called with the pairs that are done with and their number.

    Raises:
        FeatureError: The features are malformed, not finite, too few, of different width, or without direction.
        UsageError: An option is impossible.
        DataError: True pairs are no such rows, or one is there twice ("bad-pairs").

    Example:
        >>> import numpy as np
        >>> train = np.eye(4)
        >>> found = copy_detection(train[:2] + 0.1, train, true_pairs=[(0, 0), (1, 1)])
        >>> found.rate.value, found.null.value, found.ap.value
        (1.0, 0.0, 1.0)
    """
    if not is_number(threshold) or not -1 <= threshold <= 1:
        raise UsageError(
            f"threshold must be a cosine, from -1 to 1, not {threshold!r:.60}", code="bad-threshold"
        )
    check_count(seed, "seed", least=0, most=MOST)
    check_count(most_pairs, "most_pairs", least=1)
    sets = _checked(generated, train, device)
    known = None if true_pairs is None else _check_pairs(true_pairs, len(sets[0]), len(sets[1]))
    rows = _rows_of_null(len(sets[1]), check_count(null_rows, "null_rows", least=1), seed)
    budget = (
        tile_budget(sets[0].device)
        if block_bytes is None
        else check_count(block_bytes, "block_bytes", least=1)
    )
    passes = len(sets[0]) * (1 if known is None else 2) + len(rows)
    tick = tally(passes * len(sets[1]), progress)
    pairs = FeaturePairs(*sets, "cosine")
    nearest, similarity = most_similar(pairs, budget, tick=tick)
    others = FeaturePairs(sets[1][rows], sets[1], "cosine")
    null_similarity = most_similar(others, budget, own=rows.to(pairs.device), tick=tick)[1].cpu().numpy()
    ap = (
        None
        if known is None
        else micro_ap(pairs, known, most=most_pairs, budget=budget, seed=seed, tick=tick)
    )
    of_generated = similarity.cpu().numpy()
    return CopyDetection(
        rate=_share(of_generated, threshold, seed),
        null=_share(null_similarity, threshold, seed),
        threshold=float(threshold),
        nearest=nearest.cpu().numpy(),
        similarity=of_generated,
        null_similarity=null_similarity,
        ap=ap,
    )


def _checked(generated: Features, train: Features, device: str | torch.device) -> tuple[Tensor, Tensor]:
    ours, theirs = check_features(generated, "generated"), check_features(train, "train")
    check_same_width(ours, theirs, names=("generated", "train"))
    check_rows(ours, "generated", k=0)
    check_two_rows(theirs, "train")
    for features, name in ((ours, "generated"), (theirs, "train")):
        check_no_zero_rows(features, name)
    where = choose_device(generated, device)
    return ours.to(where), theirs.to(where)


def _check_pairs(given: object, generated: int, train: int) -> Counts:
    array = as_integers(given)
    if array is None or array.ndim != 2 or array.shape[1] != 2:
        raise DataError(
            "true_pairs must be pairs of rows (t, 2), of a generated and of a training image, at least one",
            code="bad-pairs",
        )
    if array.min() < 0 or array[:, 0].max() >= generated or array[:, 1].max() >= train:
        raise DataError(
            f"true_pairs must hold rows of generated (0 to {generated - 1}) and of train (0 to {train - 1}), but hold others",
            code="bad-pairs",
        )
    if len(np.unique(array, axis=0)) < len(array):
        raise DataError("true_pairs hold a pair twice", code="bad-pairs")
    return array


def _rows_of_null(n: int, most: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator)[:most].sort().values


def _share(similarity: Numbers, threshold: float, seed: int) -> QueryMetric:
    return query_metrics({"share": np.where(similarity > threshold, 1.0, 0.0)}, None, groups=None, seed=seed)[
        "share"
    ]


def _with_interval(metric: QueryMetric) -> str:
    value = math.nan if metric.value is None else metric.value
    between = f" ({metric.interval.low:.4f} .. {metric.interval.high:.4f})" if metric.interval else ""
    return f"{value:.4f}{between}"
