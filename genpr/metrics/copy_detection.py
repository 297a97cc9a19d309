"""Copies of training images among generated ones: nearest training images, and average precision of known copies.

No (n, m) array is held: float32 tiles propose, with a slack that covers their rounding; what they leave open is computed by the
definition of `genpr.metrics.similarity`.

References:
    Somepalli et al. 2023, "Diffusion Art or Digital Forgery?" (share of generated images above a similarity).
    Pizzi et al. 2022, "A Self-Supervised Descriptor for Image Copy Detection" (micro-AP on DISC2021, and features).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.ranking import MOST, integers_of, is_number
from genpr.metrics.ranking_values import (
    LEAST_UNITS,
    Counts,
    Numbers,
    QueryMetric,
    TiedRanks,
    halved,
    query_metrics,
)
from genpr.metrics.real_manifold import PairProgress, tally
from genpr.metrics.similarity import FeaturePairs
from genpr.metrics.uncertainty import Interval, interval_of
from genpr.neighbors.engine import plain_arithmetic
from genpr.neighbors.search import Advance, no_advance
from genpr.validation import (
    Features,
    check_count,
    check_features,
    check_rows,
    check_same_width,
    check_two_rows,
    choose_device,
)


def most_similar(
    pairs: FeaturePairs, *, own: Tensor | None = None, advance: Advance = no_advance
) -> tuple[Counts, Numbers]:
    """The right row with the largest cosine to each left one (n,), the first of equal ones, and the cosine.

    `own` (n,) is the right row that each left one is itself, which does not count.
    """
    n, m = pairs.shape
    near = torch.full((n,), -torch.inf, device=pairs.device)
    best = torch.full((n,), -torch.inf, dtype=torch.float64, device=pairs.device)
    index = torch.full((n,), m, device=pairs.device)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles():
            if own is not None:
                column = own[rows] - first
                row = ((column >= 0) & (column < values.shape[1])).nonzero()[:, 0]
                values[row, column[row]] = -torch.inf
            near[rows] = torch.maximum(near[rows], values.max(dim=1).values)
            # The best is at most the slack above what its tile says, and any other at most that below.
            low = near[rows].double() - 2 * pairs.slack
            row, column = (values.double() >= low[:, None]).nonzero(as_tuple=True)
            row, column = row + rows.start, column + first
            cosine, before = pairs.exact(row, column), best.clone()
            best.scatter_reduce_(0, row, cosine, "amax")
            index[best > before] = torch.iinfo(torch.int64).max
            is_best = cosine == best[row]
            index.scatter_reduce_(0, row[is_best], column[is_best], "amin")
            advance(values.numel())
    return index.cpu().numpy(), best.cpu().numpy()


class BestPairs(NamedTuple):
    """The k pairs of largest cosine, best first, equal ones in any order: (k,) each."""

    cosine: Tensor
    left: Tensor
    right: Tensor


def best_pairs(pairs: FeaturePairs, least: float, *, most: int, advance: Advance = no_advance) -> BestPairs:
    """Every pair with a cosine of `least` or more; or if these are more than `most`, the best of them.

    Of pairs that tie for the last places none is kept, so that what is kept depends on neither order nor tiles.
    """
    no_row = torch.empty(0, dtype=torch.int64)
    kept = BestPairs(torch.empty(0, dtype=torch.float64), no_row, no_row)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles():
            open_ = values.double() >= least - pairs.slack
            if int(open_.sum()) > most:
                # At least `most` pairs have a cosine no more than the slack below this value.
                open_ = values.double() >= float(values.flatten().topk(most).values[-1]) - 2 * pairs.slack
            row, column = open_.nonzero(as_tuple=True)
            row, column = row + rows.start, column + first
            found = pairs.exact(row, column), row, column
            kept = BestPairs(*(torch.cat([old, new.cpu()]) for old, new in zip(kept, found, strict=True)))
            if len(kept.cosine) > most:
                beyond = kept.cosine.sort(descending=True).values[most]
                least = max(least, float(torch.nextafter(beyond, beyond.new_tensor(torch.inf))))
            enough = kept.cosine >= least
            kept = BestPairs(*(part[enough] for part in kept))
            advance(values.numel())
    order = kept.cosine.sort(descending=True).indices
    return BestPairs(*(part[order] for part in kept))


@dataclass(frozen=True, slots=True, eq=False)
class MicroAP:
    """Average precision of one ranking of all pairs, normalized by the number of true ones, and what a random order scores.

    `n_unranked` true pairs of a smaller cosine than all that were ranked count as never found. The interval (95 %) and its
    replicates (100,) are over left rows; None where those with a true pair are fewer than 10.
    """

    value: float
    interval: Interval | None
    chance: float
    n_true: int
    n_unranked: int
    n_pairs: int
    replicates: Tensor | None = field(repr=False, default=None)


def micro_ap(
    pairs: FeaturePairs, true_pairs: Counts, *, most: int, seed: int = 0, advance: Advance = no_advance
) -> MicroAP:
    """Rank all pairs as far down as (t, 2) true ones go, or `most` of them; the mean over all orders of equal cosines."""
    n, n_pairs = pairs.shape[0], math.prod(pairs.shape)
    own = pairs.exact(*torch.from_numpy(true_pairs).unbind(dim=1)).cpu()
    best = best_pairs(pairs, float(own.min()), most=most, advance=advance)
    cosine, left, right = (part.numpy() for part in best)
    level = np.concatenate([[0], np.cumsum(cosine[1:] != cosine[:-1])]) if len(cosine) else left
    is_true = np.isin(left + n * right, true_pairs[:, 0] + n * true_pairs[:, 1])

    def average_precision(weight: Numbers) -> float:
        """Of the left rows with a weight of 1 (n,), the others having 0; NaN without any true pair."""
        n_true = float(weight[true_pairs[:, 0]].sum())
        of_true = level[is_true][weight[left[is_true]] > 0]
        if not n_true or not len(of_true):
            return 0.0 if n_true else math.nan
        tied = np.bincount(level, weight[left]).astype(np.int64)
        above = np.cumsum(tied) - tied
        places = TiedRanks.of(np.zeros_like(of_true), above[of_true], tied[of_true], np.ones(len(of_true)))
        return float(places.precisions(np.array([int(tied.sum())]))[0]) / n_true

    value = average_precision(np.ones(n))
    interval, replicates, n_units = None, None, len(np.unique(true_pairs[:, 0]))
    if n_units >= LEAST_UNITS:
        replicates = halved(
            lambda weights: torch.tensor(
                [average_precision(w) for w in weights.numpy()], dtype=torch.float64
            ),
            n,
            seed=seed,
        )
        replicates = None if replicates.isnan().any() else replicates
    if replicates is not None:
        found = interval_of(value, replicates, n=n_units, upper=None)
        interval = Interval(found.low, min(found.high, 1.0))
    return MicroAP(
        value,
        interval,
        chance_of_ap(len(own), n_pairs),
        n_true=len(own),
        n_unranked=len(own) - int(is_true.sum()),
        n_pairs=n_pairs,
        replicates=replicates,
    )


def chance_of_ap(relevant: int, pool: int) -> float:
    """Average precision of a random order, on average, of R relevant among N.

    It is (H + (N - H) (R - 1) / (N - 1)) / N with H = 1 + 1/2 + ... + 1/N.
    """
    from scipy.special import digamma  # scipy.special takes a moment to import

    harmonic = float(digamma(pool + 1) + np.euler_gamma)
    return (harmonic + (pool - harmonic) * (relevant - 1) / max(pool - 1, 1)) / pool


@dataclass(frozen=True, slots=True, eq=False)
class CopyDetection:
    """Which generated images are too similar to a training image.

    `rate` is the share of generated images whose nearest training image (m,), the first of equally near ones, has a cosine above
    the threshold; `null` the same of (r,) training images, each with its nearest other one. `ap` is None if no pairs are known.
    """

    rate: QueryMetric
    null: QueryMetric
    threshold: float
    nearest: Counts = field(repr=False)
    similarity: Numbers = field(repr=False)
    null_similarity: Numbers = field(repr=False)
    ap: MicroAP | None


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

    Args:
        generated: (m, d) features of generated images; SSCD's are made for this, Inception's are not.
        train: (n, d) features of training images.
        threshold: Cosine above which an image counts as a copy. 0.5 is Somepalli's for SSCD; for other features, choose
            one that few training images reach among themselves (`null`).
        true_pairs: (t, 2) rows of `generated` and `train` that are known to be copies, as in DISC2021; None if unknown.
        null_rows: Training images that the null is taken of, drawn at random where there are more.
        most_pairs: Pairs that are ranked for average precision, at most; known copies beyond these count as never found.
        seed: Of what is drawn.
        device: "auto" is where the tensors are if that is a GPU, else the best device here.
        block_bytes: Most that a block of cosines takes; None for a small share of what is free. No number depends on it.
        progress: Called with the pairs that are done and their number.

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
    check_count(null_rows, "null_rows", least=1)
    if block_bytes is not None:
        check_count(block_bytes, "block_bytes", least=1)
    ours, theirs = _checked(generated, train, device)
    known = None if true_pairs is None else _check_pairs(true_pairs, len(ours), len(theirs))
    rows = rows_of_null(len(theirs), null_rows, seed).to(theirs.device)
    passes = len(ours) * (1 if known is None else 2) + len(rows)
    advance = tally(passes * len(theirs), progress)
    pairs = FeaturePairs(ours, theirs, "cosine", block_bytes)
    nearest, similarity = most_similar(pairs, advance=advance)
    among = FeaturePairs(theirs[rows], theirs, "cosine", block_bytes)
    _, null_similarity = most_similar(among, own=rows, advance=advance)
    ap = None if known is None else micro_ap(pairs, known, most=most_pairs, seed=seed, advance=advance)
    return CopyDetection(
        rate=_share(similarity, threshold, seed),
        null=_share(null_similarity, threshold, seed),
        threshold=float(threshold),
        nearest=nearest,
        similarity=similarity,
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
    array = integers_of(given)
    if array is None or array.ndim != 2 or array.shape[1] != 2:
        raise DataError("true_pairs must be at least one pair of rows, (t, 2) integers", code="bad-pairs")
    if array.min() < 0 or array[:, 0].max() >= generated or array[:, 1].max() >= train:
        raise DataError(
            f"true_pairs must hold rows of generated (0 to {generated - 1}) and of train (0 to {train - 1}), but hold others",
            code="bad-pairs",
        )
    if len(np.unique(array, axis=0)) < len(array):
        raise DataError("true_pairs hold a pair twice", code="bad-pairs")
    return array


def rows_of_null(n: int, most: int, seed: int) -> Tensor:
    """Random rows of n, ascending."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator)[:most].sort().values


def _share(similarity: Numbers, threshold: float, seed: int) -> QueryMetric:
    values = {"share": np.where(similarity > threshold, 1.0, 0.0)}
    return query_metrics(values, None, groups=None, seed=seed)["share"]
