"""GAN-test, GAN-train and rates by class: agreement of fakes with the classes that they were generated for.

GAN-test is the accuracy on fakes of a classifier trained on reals, GAN-train (classification accuracy score) that on reals of one
trained on fakes (Shmelkov, Schmid and Alahari 2018, arXiv:1807.09499; Ravuri and Vinyals 2019, arXiv:1905.10887). The vote of
neighbors is that of Cover and Hart 1967. docs/labels.md explains the nulls and intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.neighbors.halves import FAKE_STREAM, REAL_STREAM, Halves, neighbors_needed
from genpr.neighbors.index import IndexedPoints, choose_projection
from genpr.neighbors.nearest import nearest_between

Counts = NDArray[np.float64]

RATES = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
UNKNOWN = -1  # the class where there are no votes
MIN_IN_HALF = 10  # images of each set; also at least k

_VOTE_ROWS, _PAIRS = 2**16, 2**28  # lists per block, and pairs of voters compared at once
_MAY_FALL_SHORT = 0.1
_NEARLY_ALL = 0.95  # of the reals: fewer would cost another search and move the null by less than its error
_MAX_LEFT_OUT = 0.25  # on either set, so that others may still vote on the only image of a class
_CHOICE_STREAM, _SHARE_STREAM = 22, 23


@dataclass(frozen=True, slots=True)
class KNNClassifier:
    """The nearest labeled images of each query: `index` and `labels` (m, L) int64, UNKNOWN after the last one.

    They are sorted by distance and, at equal distance, by class; the first k vote. Lists are long enough to contain k voters
    in random halves, for intervals.
    """

    index: Tensor
    labels: Tensor

    @classmethod
    def from_points(
        cls,
        queries: IndexedPoints,
        points: IndexedPoints,
        labels: Tensor,
        k: int,
        *,
        own_index: Tensor | None = None,
    ) -> KNNClassifier:
        """Find the neighbors; `own_index` (m,) is the index of each query among the points, negative for none.

        A query does not vote on itself, but its copies do.
        """
        length = min(neighbors_needed(k) + (own_index is not None), len(points.features))
        index, sq = nearest_between(queries, points, length)
        if own_index is not None:
            dropped = index == own_index[:, None]
            dropped[:, -1] |= ~dropped.any(dim=1)
            index, sq = index[~dropped].view(len(index), -1), sq[~dropped].view(len(index), -1)
        classes = labels[index]
        by_label = classes.argsort(dim=1, stable=True)
        order = by_label.gather(1, sq.gather(1, by_label).argsort(dim=1, stable=True))
        return cls(index.gather(1, order), classes.gather(1, order))

    def predict(self, k: int, rows: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """The class with most votes of the first `k`, UNKNOWN without votes, for all queries or `rows` (r,).

        `mask` selects the voters: (n,) bool over points, or (m, L) bool over lists.
        """
        rows = torch.arange(len(self.index), device=self.index.device) if rows is None else rows
        blocks = torch.split(rows, max(1, min(_VOTE_ROWS, _PAIRS // k**2)))
        return torch.cat([plurality(self._first(k, block, mask)) for block in blocks])

    def _first(self, k: int, rows: Tensor, mask: Tensor | None) -> Tensor:
        """Classes of the first k voters of each row, (r, k)."""
        labels = self.labels[rows]
        if mask is None:
            return labels[:, :k]
        votes = mask[rows] if mask.ndim == 2 else mask[self.index[rows]]
        place = votes.cumsum(dim=1) - 1
        # Images that do not vote get an index past the last one, which is cut off.
        place = place.where(votes & (place < k), torch.full_like(place, k))
        return labels.new_full((len(rows), k + 1), UNKNOWN).scatter_(1, place, labels)[:, :k]


def plurality(votes: Tensor) -> Tensor:
    """The class with most of the votes (r, k), the first of several; UNKNOWN where there are none: (r,)."""
    k = votes.shape[1]
    if not k:
        return votes.new_full((len(votes),), UNKNOWN)
    counts = (votes[:, :, None] == votes[:, None, :]).sum(dim=2) * (votes != UNKNOWN)
    order = counts * k - torch.arange(k, device=votes.device)  # all different where any is not 0
    return votes.gather(1, order.argmax(dim=1)[:, None])[:, 0]


class Ratios(NamedTuple):
    """Precision, recall and F1 by class, NaN where they are 0/0."""

    precision: Counts
    recall: Counts
    f: Counts


@dataclass(frozen=True, slots=True)
class ClassTotals:
    """Numbers of images by class, (..., classes) float64: right, requested, predicted (without missing predictions)."""

    right: Counts
    requested: Counts
    predicted: Counts

    @classmethod
    def from_labels(
        cls, requested: Tensor, predicted: Tensor, n_classes: int, weights: Tensor | None = None
    ) -> ClassTotals:
        """Count (m,) int64 labels, each image with its weight (m,) or 1; a missing prediction is negative."""
        requested, predicted = requested.cpu(), predicted.cpu()  # where the order of summation is fixed
        weights = torch.ones(len(requested), dtype=torch.float64) if weights is None else weights.cpu()
        every = torch.ones_like(requested, dtype=torch.bool)
        sides = (requested, requested == predicted), (requested, every), (predicted, predicted >= 0)
        return cls(
            *(torch.bincount(side[keep], weights[keep], minlength=n_classes).numpy() for side, keep in sides)
        )

    @classmethod
    def stacked(cls, totals: Iterable[ClassTotals]) -> ClassTotals:
        """Stack several to (B, classes)."""
        columns = zip(*((each.right, each.requested, each.predicted) for each in totals), strict=True)
        return cls(*map(np.stack, columns))

    def ratios(self) -> Ratios:
        """Precision, recall and F1 of each class."""
        f = _over(2 * self.right, self.requested + self.predicted)
        return Ratios(_over(self.right, self.predicted), _over(self.right, self.requested), f)

    def rates(self) -> dict[str, Counts]:
        """Accuracy and macro averages over the classes where they are defined, by name: (...) float64, NaN without any."""
        precision, recall, f = self.ratios()
        return {
            "accuracy": np.asarray(self.right.sum(axis=-1) / self.requested.sum(axis=-1)),
            "macro_precision": _mean_of_defined(precision),
            "macro_recall": _mean_of_defined(recall),
            "macro_f1": _mean_of_defined(f),
        }


def _over(part: Counts, whole: Counts) -> Counts:
    shares: Counts = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return shares


def _mean_of_defined(values: Counts) -> Counts:
    """The mean over the last axis without NaN, as scikit-learn's `zero_division=np.nan`; NaN where nothing is left."""
    known = ~np.isnan(values)
    return _over(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1))


def renamed(predicted: Tensor, classes_of_reals: Tensor) -> Tensor:
    """Classes of the reals as classes of both sets; UNKNOWN stays."""
    return classes_of_reals[predicted.clamp(min=0)].where(predicted >= 0, predicted)


def class_sizes_like(requested: Tensor, there: Tensor) -> Tensor:
    """Rows to take of each class (classes,): as many as requested, or fewer in the same proportions if classes are too small.

    A classifier prefers frequent classes. Classes with at most a tenth of the requested images may fall short.
    """
    common = ((requested > 0) & (there > 0)).nonzero()[:, 0]
    if not len(common):
        return torch.minimum(requested, there)
    shares = there[common].double() / requested[common]
    order = shares.argsort(stable=True)
    mass = requested[common][order].cumsum(dim=0)
    first = int((mass <= _MAY_FALL_SHORT * mass[-1]).sum())
    scale = min(1.0, float(shares[order[first]]))
    sizes = torch.minimum((requested * scale).round().long().clamp(min=1), there)
    return sizes.where(requested > 0, torch.zeros_like(there))


def sample_like(labels: Tensor, requested: Tensor, seed: int) -> Tensor:
    """Random rows of (n,) `labels`, `class_sizes_like` of each class, ascending."""
    there = torch.bincount(labels, minlength=len(requested))
    before = there.cumsum(dim=0) - there
    rank = _inverse(by_class(labels, seed, _CHOICE_STREAM)) - before[labels]
    return (rank < class_sizes_like(requested, there)[labels]).nonzero()[:, 0]


def _like_itself(labels: Tensor, voters: Tensor, own_index: Tensor, seed: int) -> Tensor:
    """Which voters (m, L) represent the same share of their class as the classified image does of its class.

    Images of a class are spread evenly over 0 to 1, in a random order. One of n represents the interval of length 1 / n around it.
    """
    sizes, rank = torch.bincount(labels), _inverse(by_class(labels, seed, _SHARE_STREAM))
    at = (rank - (sizes.cumsum(dim=0) - sizes)[labels] + 0.5).double() / sizes[labels]
    itself = own_index.clamp(min=0)
    share = (0.5 / sizes[labels].double()).clamp(max=_MAX_LEFT_OUT)[itself]
    is_near = (at[voters] - at[itself][:, None]).abs() < share[:, None]
    return is_near & (own_index >= 0)[:, None]


def _inverse(order: Tensor) -> Tensor:
    """The inverse of a permutation."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def by_class(labels: Tensor, seed: int, stream: int) -> Tensor:
    """A random order of (n,) `labels`, class by class."""
    # Streams of a bit generator never change between versions of NumPy; permutations may.
    raw = np.random.PCG64(np.random.SeedSequence([seed, len(labels), stream])).random_raw(len(labels))
    shuffled = torch.from_numpy(np.argsort(raw, kind="stable")).to(labels.device)
    return shuffled[labels[shuffled].argsort(stable=True)]


@dataclass(frozen=True, slots=True)
class Direction:
    """Classification results of the n images of one set.

    `predicted` (n,) is negative without a prediction; `null` is that of a perfect generator, None if unknown; `chance` is the
    chance level by rate; `halves` (B, classes) hold complementary halves, None if a half is too small or none were requested.
    """

    predicted: Tensor
    totals: ClassTotals
    null: ClassTotals | None
    chance: Mapping[str, float]
    halves: ClassTotals | None
    n: int


def direction_of(
    labels: Tensor,
    predicted: Tensor,
    known: Tensor,
    null: ClassTotals | None = None,
    halves: ClassTotals | None = None,
) -> Direction:
    """Results of images with (n,) `labels`; `known` (classes,) counts the training images of the classifier by class."""
    totals, may = ClassTotals.from_labels(labels, predicted, len(known)), (known > 0).cpu().numpy()
    # Chance levels are those of guesses of a class that the classifier knows, or for accuracy, of the most frequent one.
    sizes, n_known = totals.requested, max(1, may.sum())
    rates = ClassTotals(sizes * may / n_known, sizes, may / n_known * sizes.sum()).rates()
    chance = {name: float(rate) for name, rate in rates.items()}
    chance["accuracy"] = float((sizes * may).max() / sizes.sum())
    return Direction(predicted, totals, null, chance, halves, len(labels))


def _halves_of(labels: Tensor, seed: int, stream: int) -> Tensor:
    """Which images (n,) are in each half: (B, n) bool, complementary halves adjacent."""
    return Halves.drawn(len(labels), seed=seed, stream=stream, device=labels.device).members()


def recognized_elsewhere(labels: Tensor, predicted: Tensor, *, intervals: bool, seed: int) -> Direction:
    """Results of (n,) classes predicted by another tool; halves contain these images alone, and the null is unknown."""
    halves, n_classes = None, int(max(labels.max(), predicted.max())) + 1
    if intervals and len(labels) // 2 >= MIN_IN_HALF:
        inside = _halves_of(labels, seed, FAKE_STREAM)
        halves = ClassTotals.stacked(
            ClassTotals.from_labels(labels[half], predicted[half], n_classes) for half in inside
        )
    return direction_of(labels, predicted, torch.bincount(labels, minlength=n_classes), halves=halves)


class Conditional(NamedTuple):
    """GAN-test and GAN-train; `null_share` is how many reals vote for the null of `train`, per fake of a class of reals."""

    test: Direction
    train: Direction
    null_share: float = 1.0


# Predicts the classes of rows (r,) of one set from the rows of the other in a bool mask (n,); None selects all.
_Vote = Callable[[Tensor | None, Tensor | None], Tensor]


class ConditionalReals:
    """Labeled reals, (n, d) float32 with (n,) int64 labels from 0, against which any number of labeled fake sets is scored.

    The classifier is the vote of the k nearest images.
    """

    def __init__(
        self, features: Tensor, labels: Tensor, *, k: int = 5, intervals: bool = True, seed: int = 0
    ) -> None:
        self._labels, self._k, self._intervals, self._seed = labels, k, intervals, seed
        self._points = choose_projection(features, k).place(features)
        self._by_others = self.by_others(None)

    def by_others(self, requested: Tensor | None) -> Tensor:
        """Predict the class of each real, (n,), from other reals: all, or `class_sizes_like(requested)` of each class.

        A voter is left out if it represents the same share of its class as the image does of its class. Otherwise, with 5 images
        of each class, 4 of the image's class would compete with 5 of every other.
        """
        every = torch.arange(len(self._labels), device=self._labels.device)
        chosen = every if requested is None else sample_like(self._labels, requested, self._seed)
        points = self._points.projection.place(self._points.features[chosen])
        own_index = torch.full_like(every, UNKNOWN)
        own_index[chosen] = torch.arange(len(chosen), device=every.device)
        voters = KNNClassifier.from_points(
            self._points, points, self._labels[chosen], self._k, own_index=own_index
        )
        left_out = _like_itself(self._labels[chosen], voters.index, own_index, self._seed)
        return voters.predict(self._k, mask=~left_out)

    def score(
        self, features: Tensor, labels: Tensor, *, classes_of_reals: Tensor, n_classes: int
    ) -> Conditional:
        """Score (m, d) fakes that were generated for (m,) labels; `classes_of_reals` are the reals' classes among those of both."""
        requested, real = labels, classes_of_reals[self._labels]
        fakes = self._points.projection.place(features)
        by_reals = KNNClassifier.from_points(fakes, self._points, self._labels, self._k)
        by_fakes = KNNClassifier.from_points(self._points, fakes, requested, self._k)

        def of_fakes(rows: Tensor | None = None, half: Tensor | None = None) -> Tensor:
            return renamed(by_reals.predict(self._k, rows, half), classes_of_reals)

        def of_reals(rows: Tensor | None = None, half: Tensor | None = None) -> Tensor:
            return by_fakes.predict(self._k, rows, half)

        fake_sizes, real_sizes = (torch.bincount(each, minlength=n_classes) for each in (requested, real))
        test_halves, train_halves = self._halved((of_fakes, of_reals), requested, real, n_classes)
        wanted, there = fake_sizes[classes_of_reals], real_sizes[classes_of_reals]
        voting = class_sizes_like(wanted, there).sum()
        is_nearly_all = float(voting / there.sum()) >= _NEARLY_ALL
        by_as_many = self._by_others if is_nearly_all else self.by_others(wanted)
        # Reals classified by other reals, each class weighted by its requested images. No fake of a class without reals
        # can be right.
        weights = (fake_sizes / real_sizes.clamp(min=1)).double()[real]
        by_others = renamed(self._by_others, classes_of_reals)
        totals = ClassTotals.from_labels(real, by_others, n_classes, weights)
        lacking = fake_sizes.where(real_sizes == 0, torch.zeros_like(fake_sizes)).double().cpu().numpy()
        null_of_test = ClassTotals(totals.right, totals.requested + lacking, totals.predicted)
        null_of_train = ClassTotals.from_labels(real, renamed(by_as_many, classes_of_reals), n_classes)
        return Conditional(
            direction_of(requested, of_fakes(), real_sizes, null_of_test, test_halves),
            direction_of(real, of_reals(), fake_sizes, null_of_train, train_halves),
            float(voting / wanted.sum()) if wanted.any() else 1.0,
        )

    def _halved(
        self, votes: tuple[_Vote, _Vote], requested: Tensor, real: Tensor, n_classes: int
    ) -> tuple[ClassTotals | None, ClassTotals | None]:
        if not self._intervals or min(len(requested), len(real)) // 2 < max(MIN_IN_HALF, self._k):
            return None, None
        of_reals = _halves_of(real, self._seed, REAL_STREAM)
        of_fakes, test, train = _halves_of(requested, self._seed, FAKE_STREAM), [], []
        for in_reals, in_fakes in zip(of_reals, of_fakes, strict=True):
            fakes, reals = in_fakes.nonzero()[:, 0], in_reals.nonzero()[:, 0]
            test.append(ClassTotals.from_labels(requested[fakes], votes[0](fakes, in_reals), n_classes))
            train.append(ClassTotals.from_labels(real[reals], votes[1](reals, in_fakes), n_classes))
        return ClassTotals.stacked(test), ClassTotals.stacked(train)
