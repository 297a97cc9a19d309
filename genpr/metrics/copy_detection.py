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
from genpr.memory import tile_budget
from genpr.metrics.blocks import check_no_zero_rows
from genpr.metrics.given import MOST, as_integers, is_number
from genpr.metrics.halved import LEAST_UNITS, halved
from genpr.metrics.ranking_values import Counts, Numbers, QueryMetric, TiedRanks, query_metrics
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
    pairs: FeaturePairs, budget: int, *, own: Tensor | None = None, advance: Advance = no_advance
) -> tuple[Tensor, Tensor]:
    """The right row with the largest cosine to each left one, the first of equal ones.

    Args:
        pairs: n left rows, m right ones, compared by cosine.
        budget: Bytes for a tile.
        own: (n,) int64, the right row that each left one is itself, which does not count; then m is at least 2. None if
            they are different sets.
        advance: Called with the number of pairs that are done.

    Returns:
        Indices (n,) int64 and cosines (n,) float64.
    """
    n = len(pairs.left)
    near = torch.full((n,), -torch.inf, device=pairs.device)
    best = torch.full((n,), -torch.inf, dtype=torch.float64, device=pairs.device)
    index = torch.full((n,), len(pairs.right), device=pairs.device)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles(budget):
            if own is not None:
                _leave_out(values, own[rows] - first)
            near[rows] = torch.maximum(near[rows], values.max(dim=1).values)
            # The best is at most the slack above what its tile says, and any other at most that below.
            low = near[rows].double() - 2 * pairs.slack
            row, column = (values.double() >= low[:, None]).nonzero(as_tuple=True)
            row, column = row + rows.start, column + first
            _improve(best, index, row, column, pairs.exact(row, column))
            advance(values.numel())
    return index, best


def _leave_out(values: Tensor, column: Tensor) -> None:
    """Put values (b, w) at `column` (b,) of each row, where the tile has it, below all others."""
    row = ((column >= 0) & (column < values.shape[1])).nonzero()[:, 0]
    values[row, column[row]] = -torch.inf


def _improve(best: Tensor, index: Tensor, row: Tensor, column: Tensor, cosine: Tensor) -> None:
    """Let pairs (o,) take the place of what was best of their rows, in place."""
    before = best.clone()
    best.scatter_reduce_(0, row, cosine, "amax")
    index[best > before] = torch.iinfo(torch.int64).max
    is_best = cosine == best[row]
    index.scatter_reduce_(0, row[is_best], column[is_best], "amin")


class BestPairs(NamedTuple):
    """The pairs of largest cosine, best first, equal ones in any order; no pair that is left out has a cosine as large.

    Attributes:
        cosine: (k,) float64.
        left: (k,) int64.
        right: (k,) int64.
    """

    cosine: Tensor
    left: Tensor
    right: Tensor


def best_pairs(
    pairs: FeaturePairs, least: float, *, most: int, budget: int, advance: Advance = no_advance
) -> BestPairs:
    """Every pair with a cosine of `least` or more; or if these are more than `most`, the best of them.

    Of pairs that tie for the last places none is kept, so that what is kept depends on neither order nor tiles.

    Args:
        pairs: Left and right rows, compared by cosine.
        least: The least cosine.
        most: Pairs kept, at most.
        budget: Bytes for a tile.
        advance: Called with the number of pairs that are done.
    """
    no_row = torch.empty(0, dtype=torch.int64)
    kept = BestPairs(torch.empty(0, dtype=torch.float64), no_row, no_row)
    with plain_arithmetic(pairs.device):
        for rows, first, values in pairs.tiles(budget):
            row, column = _open_pairs(values, least, pairs.slack, most).unbind(dim=1)
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


def _open_pairs(values: Tensor, least: float, slack: float, most: int) -> Tensor:
    """Which pairs of a tile (b, w) may reach `least` and be among its best `most`: (o, 2)."""
    open_ = values.double() >= least - slack
    if int(open_.sum()) > most:
        # At least `most` pairs have a cosine no more than the slack below this value.
        open_ = values.double() >= float(values.flatten().topk(most).values[-1]) - 2 * slack
    return open_.nonzero()


@dataclass(frozen=True, slots=True, eq=False)
class MicroAP:
    """Average precision of one ranking of all pairs, normalized by the number of true ones.

    Attributes:
        value: The number; where some true pairs are not ranked, the least that it can be.
        interval: 95 %, over left rows; None where those with a true pair are fewer than 10.
        chance: What a random order scores.
        n_true: True pairs.
        n_unranked: Those of a smaller cosine than all that were ranked: they count as never found.
        n_pairs: Pairs that there are.
        replicates: (100,) float64, values for halves of the left rows; None where there is no interval.
    """

    value: float
    interval: Interval | None
    chance: float
    n_true: int
    n_unranked: int
    n_pairs: int
    replicates: Tensor | None = field(repr=False, default=None)

    def __str__(self) -> str:
        between = f" ({self.interval.low:.4f} .. {self.interval.high:.4f})" if self.interval else ""
        beyond = f", {self.n_unranked:,} beyond those ranked" if self.n_unranked else ""
        return (
            f"micro-AP  {self.value:.4f}{between} of {self.n_true:,} true pairs among {self.n_pairs:,}{beyond}; "
            f"chance {self.chance:.2g}"
        )


def micro_ap(
    pairs: FeaturePairs,
    true_pairs: Counts,
    *,
    most: int,
    budget: int,
    seed: int = 0,
    advance: Advance = no_advance,
) -> MicroAP:
    """Rank all pairs as far down as true ones go, or `most` of them.

    Pairs of equal cosine have no order: the value is the mean over all orders of them.

    Args:
        pairs: Left and right rows, compared by cosine.
        true_pairs: (t, 2) different rows of both, t at least 1.
        most: Pairs ranked, at most.
        budget: Bytes for a tile.
        seed: Of the halves for the interval.
        advance: Called with the number of pairs that are done.
    """
    left, right = torch.from_numpy(true_pairs).to(pairs.device).unbind(dim=1)
    own = pairs.exact(left, right).cpu()
    best = best_pairs(pairs, float(own.min()), most=most, budget=budget, advance=advance)
    ranked = _Ranked.of(best, true_pairs, len(pairs.left))
    value = ranked.average_precision(np.ones(len(pairs.left)))
    replicates, n_units = None, len(np.unique(true_pairs[:, 0]))
    if n_units >= LEAST_UNITS:
        replicates = halved(ranked.average_precisions, len(pairs.left), seed=seed)
        replicates = None if replicates.isnan().any() else replicates
    interval = None if replicates is None else interval_of(value, replicates, n=n_units, upper=None)
    n_pairs = len(pairs.left) * len(pairs.right)
    return MicroAP(
        value=value,
        interval=interval and Interval(interval.low, min(interval.high, 1.0)),
        chance=chance_of_ap(len(own), n_pairs),
        n_true=len(own),
        n_unranked=len(own) - len(ranked.true_level),
        n_pairs=n_pairs,
        replicates=replicates,
    )


def chance_of_ap(relevant: int, pool: int) -> float:
    """Average precision of a random order, on average: (H + (N - H) (R - 1) / (N - 1)) / N, H = 1 + 1/2 + ... + 1/N.

    Args:
        relevant: R, from 1.
        pool: N.
    """
    from scipy.special import digamma  # scipy.special takes a moment to import

    harmonic = float(digamma(pool + 1) + np.euler_gamma)
    return (harmonic + (pool - harmonic) * (relevant - 1) / max(pool - 1, 1)) / pool


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The pairs that are ranked, by level: those of one cosine."""

    left: Counts
    level: Counts
    true_left: Counts
    true_level: Counts
    ranked_left: Counts

    @classmethod
    def of(cls, best: BestPairs, true_pairs: Counts, n_left: int) -> _Ranked:
        cosine, left, right = (part.numpy() for part in best)
        level = np.concatenate([[0], np.cumsum(cosine[1:] != cosine[:-1])]) if len(cosine) else left
        is_true = np.isin(left + n_left * right, true_pairs[:, 0] + n_left * true_pairs[:, 1])
        return cls(left, level, true_pairs[:, 0], level[is_true], left[is_true])

    def average_precisions(self, weights: Tensor) -> Tensor:
        """Of halves (B, n) of the rows, (B,)."""
        return torch.from_numpy(np.array([self.average_precision(one) for one in weights.numpy()]))

    def average_precision(self, weight: Numbers) -> float:
        """Of the rows with a weight of 1 (n,), the others having 0; NaN without any true pair."""
        n_true = float(weight[self.true_left].sum())
        return self._precisions(weight) / n_true if n_true else math.nan

    def _precisions(self, weight: Numbers) -> float:
        level = self.true_level[weight[self.ranked_left] > 0]
        if not len(level):
            return 0.0
        tied = np.bincount(self.level, weight[self.left]).astype(np.int64)
        above = np.cumsum(tied) - tied
        query = np.zeros_like(level)
        places = TiedRanks.of(query, above[level], tied[level], np.ones(len(level)))
        return float(places.precisions(np.array([int(tied.sum())]))[0])


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
        ap: Average precision of known copies among all pairs; None if no pairs are known.
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
        progress: Called with the pairs that are done and their number.

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
    advance = tally(passes * len(sets[1]), progress)
    pairs = FeaturePairs(*sets, "cosine")
    nearest, similarity = most_similar(pairs, budget, advance=advance)
    others = FeaturePairs(sets[1][rows], sets[1], "cosine")
    null_similarity = (
        most_similar(others, budget, own=rows.to(pairs.device), advance=advance)[1].cpu().numpy()
    )
    ap = (
        None
        if known is None
        else micro_ap(pairs, known, most=most_pairs, budget=budget, seed=seed, advance=advance)
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
