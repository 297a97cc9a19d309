"""Copies of training images among generated ones: the nearest training image of each, and the share above a threshold.

No (n, m) array is held: float32 tiles select candidates, with a slack that covers their rounding; these are computed by the
definition of `genpr.metrics.similarity`. The share is of Somepalli et al. 2023, "Diffusion Art or Digital Forgery?".
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from genpr.content_order import random_order
from genpr.errors import UsageError
from genpr.metrics.ranking import Counts, Numbers, QueryMetric, feature_pairs, query_metrics
from genpr.metrics.similarity import FeaturePairs
from genpr.neighbors.engine import plain_arithmetic
from genpr.validation import Features, check_count, check_rows, entry_point


def most_similar(pairs: FeaturePairs, *, own: Tensor | None = None) -> tuple[Counts, Numbers]:
    """The right row with the largest cosine to each left one (n,), the first of equal ones, and the cosine.

    `own` (n,) is the index of each left row among the right ones, which is left out.
    """
    n, m = pairs.shape
    near = torch.full((n,), -torch.inf, dtype=torch.float32, device=pairs.device)
    best = torch.full((n,), -torch.inf, dtype=torch.float64, device=pairs.device)
    index = torch.full((n,), m, device=pairs.device)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles():
            if own is not None:
                column = own[rows] - first
                row = ((column >= 0) & (column < values.shape[1])).nonzero()[:, 0]
                values[row, column[row]] = -torch.inf
            near[rows] = torch.maximum(near[rows], values.max(dim=1).values)
            # Exact values differ from those of the tile by at most the slack.
            low = near[rows].double() - 2 * pairs.slack
            row, column = (values.double() >= low[:, None]).nonzero(as_tuple=True)
            row, column = row + rows.start, column + first
            cosine, before = pairs.exact(row, column), best.clone()
            best.scatter_reduce_(0, row, cosine, "amax")
            index[best > before] = torch.iinfo(torch.int64).max
            is_best = cosine == best[row]
            index.scatter_reduce_(0, row[is_best], column[is_best], "amin")
    return index.cpu().numpy(), best.cpu().numpy()


@dataclass(frozen=True, slots=True, eq=False)
class CopyDetection:
    """Which generated images are too similar to a training image.

    `rate` is the share of generated images whose nearest training image (m,), the first of equally near ones, has a cosine above
    the threshold; `null` is the same share of (r,) training images, each with its nearest other one.
    """

    rate: QueryMetric
    null: QueryMetric
    threshold: float
    nearest: Counts
    similarity: Numbers
    null_similarity: Numbers


@entry_point
def copy_detection(
    generated: Features,
    train: Features,
    *,
    threshold: float = 0.5,
    null_rows: int = 10_000,
    seed: int = 0,
    device: str | torch.device = "auto",
    block_bytes: int | None = None,
) -> CopyDetection:
    """Share of generated images that are too similar to a training image.

    Args:
        generated: (m, d) features of generated images; SSCD's are made for this, Inception's are not.
        train: (n, d) features of training images.
        threshold: Cosine above which an image counts as a copy. 0.5 is Somepalli's for SSCD; for other features, choose
            one that few training images reach among themselves (`null`).
        null_rows: Number of training images for the null. If there are more, their content decides which are taken.
        seed: Seed of the intervals.
        device: "auto" is the GPU that holds the input, else the best device available.
        block_bytes: Maximum size of a block of cosines; None uses a small share of free memory. Results do not depend on it.

    Example:
        >>> import numpy as np
        >>> train = np.eye(4)
        >>> copies = copy_detection(train[:2] + 0.1, train)
        >>> copies.rate.value, copies.null.value, copies.nearest.tolist()
        (1.0, 0.0, [0, 1])
    """
    if not isinstance(threshold, Real) or isinstance(threshold, bool) or not -1 <= threshold <= 1:
        raise UsageError(f"threshold must be a cosine, not {threshold!r:.60}", code="bad-threshold")
    check_count(seed, "seed", minimum=0)
    check_count(null_rows, "null_rows", minimum=1)
    if block_bytes is not None:
        check_count(block_bytes, "block_bytes", minimum=1)
    pairs = feature_pairs((generated, train), ("generated", "train"), device, block_bytes)
    reals = pairs.right
    check_rows(reals, "train", k=1)
    rows = random_order(reals)[:null_rows].sort().values.to(reals.device)
    among = FeaturePairs(reals[rows], reals, block_bytes)
    nearest, similarity = most_similar(pairs)
    _, null_similarity = most_similar(among, own=rows)
    rate, null = (
        query_metrics({"share": np.where(each > threshold, 1.0, 0.0)}, seed=seed)["share"]
        for each in (similarity, null_similarity)
    )
    return CopyDetection(rate, null, float(threshold), nearest, similarity, null_similarity)
