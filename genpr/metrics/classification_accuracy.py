"""Do fakes look like the classes that they were generated for? GAN-test, GAN-train and rates by class, with intervals and nulls.

**GAN-test** is the accuracy on fakes of a classifier trained on reals: the share predicted as the class requested. Like
precision, it sees wrong and poor images, and not how few different ones there are. **GAN-train**, or the classification
accuracy score, is the accuracy on reals of a classifier trained on fakes. Like recall, it sees what fakes leave out; also
poor images, as far as a classifier learns less from them. The classifiers are those of
`genpr.metrics.label_classifiers`. Rates by class are those of GAN-test.

**Null.** A perfect generator does not score 1, since no classifier is perfect. Its fakes are other reals, so that each real is
classified by the others: by all others for the vote (leave-one-out), by those of the other four fifths of each class for the
probe. Its class lacks one of n, so other classes lack as large a share: else classes of few images had a null far too low. For
GAN-test, classes count by their share of the fakes. For GAN-train, as many others of each class vote as there are fakes of it,
or fewer in the same proportions where there are not as many.

**Chance.** What an answer that knows nothing but the size of classes scores: always the largest class for accuracies, each
class equally often for rates by class.

**Intervals.** Halves of both sets are drawn, as `genpr.metrics.uncertainty` says, and classified by halves: 100 for the vote,
which looks them up in lists of neighbors, and 10 for the probe, which is fitted again on each. So intervals are of other draws
of both sets. Halves are not drawn class by class: docs/labels.md has what was measured.

References:
    Shmelkov, Schmid and Alahari 2018, "How good is my GAN?", arXiv:1807.09499; Ravuri and Vinyals 2019, "Classification
    Accuracy Score for Conditional Generative Models", arXiv:1905.10887.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.label_classifiers import UNKNOWN, KNNClassifier, LinearProbe
from genpr.metrics.labels import mean_of_defined, ratios
from genpr.neighbors.halves import Halves, unpacked
from genpr.neighbors.index import Placed

Counts = NDArray[np.float64]

RATES = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
"""What a tally knows, of single labels."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Images by class, in float64 since they may be weighted.

    Attributes:
        right: (..., classes), requested and predicted.
        requested: (..., classes).
        predicted: (..., classes); images without a prediction are counted in none.
    """

    right: Counts
    requested: Counts
    predicted: Counts

    @classmethod
    def of(cls, requested: Tensor, predicted: Tensor, n_classes: int, weights: Tensor | None = None) -> Tally:
        """Count.

        Args:
            requested: (m,) int64, the class that each image was generated for.
            predicted: (m,) int64, the class that it was predicted as; negative for none.
            n_classes: How many there are.
            weights: (m,) float64, by class requested; None counts each image once.
        """
        requested, predicted = requested.cpu(), predicted.cpu()  # where sums have one order
        weights = torch.ones_like(requested, dtype=torch.float64) if weights is None else weights.cpu()

        def count(labels: Tensor, keep: Tensor) -> Counts:
            found: Counts = torch.bincount(labels[keep], weights[keep], minlength=n_classes).numpy()
            return found

        return cls(
            count(requested, requested == predicted),
            count(requested, torch.ones_like(requested, dtype=torch.bool)),
            count(predicted, predicted >= 0),
        )

    @classmethod
    def stacked(cls, tallies: Iterable[Tally]) -> Tally:
        """Several in one, (B, classes)."""
        columns = zip(*((each.right, each.requested, each.predicted) for each in tallies), strict=True)
        return cls(*(np.stack(column) for column in columns))

    def rates(self) -> dict[str, Counts]:
        """Accuracy, and the macro averages of what is defined, by name: (...) float64, NaN where nothing is."""
        precision, recall, f = ratios(self.right, self.requested, self.predicted)
        return {
            "accuracy": np.asarray(self.right.sum(axis=-1) / self.requested.sum(axis=-1)),
            "macro_precision": mean_of_defined(precision),
            "macro_recall": mean_of_defined(recall),
            "macro_f1": mean_of_defined(f),
        }


FOLDS = 5

_MAY_FALL_SHORT = 0.1
_MOST_LEFT_OUT = 0.25  # on either set, so that others may still vote on the only image of a class
_FOLD_STREAM, _CHOICE_STREAM, _SHARE_STREAM = 21, 22, 23


InHalf: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Rows (r,) of one set, and bool (n,) which images of the other set to train on, to the predicted classes (r,)."""


@dataclass(frozen=True, slots=True)
class Match:
    """Two sets that classify each other. Classes are indices in those of both; UNKNOWN is none.

    Attributes:
        fakes: (m,) int64, the class of each fake, by the reals.
        reals: (n,) int64, the class of each real, by the fakes.
        fakes_in_half: The class of some fakes, by some of the reals.
        reals_in_half: The class of some reals, by some of the fakes.
    """

    fakes: Tensor
    reals: Tensor
    fakes_in_half: InHalf
    reals_in_half: InHalf


def renamed(predicted: Tensor, classes_of_reals: Tensor) -> Tensor:
    """Classes by their classes_of_reals among others; UNKNOWN stays."""
    return classes_of_reals[predicted.clamp(min=0)].where(predicted >= 0, predicted)


class KNNReference:
    """Reals that vote.

    Args:
        features: (n, d) float32.
        labels: (n,) int64, from 0.
        k: Neighbors that vote.
        seed: Chooses who votes where not all may.
    """

    halves = 100
    """Half-samples for an interval."""

    def __init__(self, features: Tensor, labels: Tensor, k: int, *, seed: int) -> None:
        self._labels, self._k, self._seed = labels, k, seed
        self._points = Placed.of(features, k)

    def by_others(self, requested: Tensor | None) -> Tensor:
        """The class of each real, by other reals: (n,) int64.

        Its class lacks the real itself, one of n; so all classes lack a share of 1 / n. Else it would be outvoted: with 5
        images of each class, 4 of its own would stand against 5 of every other, as they never do for a fake.

        Args:
            requested: (classes,) int64, how many of each class should vote, as `class_sizes_like` allows; None for all.
        """
        every = torch.arange(len(self._labels), device=self._labels.device)
        chosen = every if requested is None else sample_like(self._labels, requested, self._seed)
        points = self._points.beside(self._points.features[chosen])
        own_index = torch.full_like(every, UNKNOWN)
        own_index[chosen] = torch.arange(len(chosen), device=every.device)
        voters = KNNClassifier.of(self._points, points, self._labels[chosen], self._k, own_index=own_index)
        left_out = _like_itself(self._labels[chosen], voters.index, own_index, self._seed)
        return voters.without(left_out).predict(self._k)

    def against(self, features: Tensor, labels: Tensor, classes_of_reals: Tensor) -> Match:
        """Classify fakes, and reals by them.

        Args:
            features: (m, d) float32.
            labels: (m,) int64, classes among those of both sets.
            classes_of_reals: (classes of the reals,) int64, ascending, what these are among those of both sets.
        """
        fakes = self._points.beside(features)
        by_reals = KNNClassifier.of(fakes, self._points, self._labels, self._k)
        by_fakes = KNNClassifier.of(self._points, fakes, labels, self._k)
        k = self._k
        return Match(
            renamed(by_reals.predict(k), classes_of_reals),
            by_fakes.predict(k),
            lambda rows, half: renamed(by_reals.predict(k, rows=rows, mask=half), classes_of_reals),
            lambda rows, half: by_fakes.predict(k, rows=rows, mask=half),
        )


class LinearReference:
    """Reals on which a probe is fitted.

    Args:
        features: (n, d) float32.
        labels: (n,) int64, from 0.
        seed: Chooses folds.
    """

    halves = 10
    """Half-samples for an interval: each is a fit on both sets."""

    def __init__(self, features: Tensor, labels: Tensor, *, seed: int) -> None:
        self._features, self._labels, self._seed = features, labels, seed
        self._n_classes = int(labels.max()) + 1
        self._probe = LinearProbe.fit(features, labels, self._n_classes)
        self._of_halves: dict[bytes, LinearProbe] = {}  # by the bytes of their membership

    def by_others(self, requested: Tensor | None) -> Tensor:
        """The class of each real, by a probe fitted on the other folds: (n,) int64; see `KNNReference.by_others`."""
        features, labels = self._features, self._labels
        folds = class_folds(labels, self._seed)
        found = torch.full_like(labels, UNKNOWN)
        for fold in range(min(FOLDS, len(labels))):
            rows = (folds != fold).nonzero()[:, 0]
            if requested is not None:
                rows = rows[sample_like(labels[rows], requested, self._seed)]
            tested = (folds == fold).nonzero()[:, 0]
            probe = LinearProbe.fit(features[rows], labels[rows], self._n_classes)
            found[tested] = probe.predict(features[tested])
        return found

    def against(self, features: Tensor, labels: Tensor, classes_of_reals: Tensor) -> Match:
        """Classify fakes, and reals by them: see `KNNReference.against`. Probes are fitted again on every half."""
        n_classes = int(labels.max()) + 1
        by_fakes = LinearProbe.fit(features, labels, n_classes)

        def fakes_in_half(rows: Tensor, half: Tensor) -> Tensor:
            key = np.packbits(half.cpu().numpy()).tobytes()
            if key not in self._of_halves:
                parts = self._features[half], self._labels[half]
                self._of_halves[key] = LinearProbe.fit(*parts, self._n_classes, start=self._probe)
            return renamed(self._of_halves[key].predict(features[rows]), classes_of_reals)

        def reals_in_half(rows: Tensor, half: Tensor) -> Tensor:
            probe = LinearProbe.fit(features[half], labels[half], n_classes, start=by_fakes)
            return probe.predict(self._features[rows])

        return Match(
            renamed(self._probe.predict(features), classes_of_reals),
            by_fakes.predict(self._features),
            fakes_in_half,
            reals_in_half,
        )


def class_sizes_like(requested: Tensor, there: Tensor) -> Tensor:
    """How many of each class to take: as many as requested, or fewer in the same proportions where there are not as many.

    Proportions matter: a classifier prefers classes that it saw often. But classes of which far too few are there shall not
    cost all others: those with a tenth of what is requested at most may fall short.

    Args:
        requested: (classes,) int64.
        there: (classes,) int64.
    """
    common = ((requested > 0) & (there > 0)).nonzero()[:, 0]
    if not len(common):
        return torch.minimum(requested, there)
    ratios = there[common].double() / requested[common]
    order = ratios.argsort(stable=True)
    mass = requested[common][order].cumsum(dim=0)
    first = int((mass <= _MAY_FALL_SHORT * mass[-1]).sum())
    scale = min(1.0, float(ratios[order[first]]))
    return torch.minimum((requested * scale).round().long().clamp(min=1), there).where(
        requested > 0, torch.zeros_like(there)
    )


def sample_like(labels: Tensor, requested: Tensor, seed: int) -> Tensor:
    """Random rows of (n,) `labels`, of each class as many as `class_sizes_like` says, ascending."""
    sizes = class_sizes_like(requested, torch.bincount(labels, minlength=len(requested)))
    order = by_class(labels, seed, _CHOICE_STREAM)
    ordered = labels[order]
    first = torch.searchsorted(ordered, torch.arange(len(sizes), device=labels.device))
    rank = torch.arange(len(labels), device=labels.device) - first[ordered]
    return order[rank < sizes[ordered]].sort().values


def class_folds(labels: Tensor, seed: int) -> Tensor:
    """Random folds of (n,) `labels`, each with a fifth of every class: (n,) int64.

    Folds that do not mind classes lack, of two classes, more of the one that they are tested on.
    """
    order = by_class(labels, seed, _FOLD_STREAM)
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(labels), device=labels.device) % FOLDS)


def _like_itself(labels: Tensor, voters: Tensor, own_index: Tensor, seed: int) -> Tensor:
    """Which voters stand for the same share of their class as the one whom they vote on does for its own.

    Images of a class are spread evenly over 0 to 1, in a random order. One of n stands for the 1 / n around it.

    Args:
        labels: (n,) int64 of all who may vote.
        voters: (m, L) int64, which of these vote on each.
        own_index: (m,) int64, which of these each is itself, negative for none, who have no share.
        seed: Chooses the order.
    """
    sizes, order = torch.bincount(labels), by_class(labels, seed, _SHARE_STREAM)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    at = (rank - (sizes.cumsum(dim=0) - sizes)[labels] + 0.5).double() / sizes[labels]
    itself = own_index.clamp(min=0)
    share = (0.5 / sizes[labels].double()).clamp(max=_MOST_LEFT_OUT)[itself]
    is_near = (at[voters] - at[itself][:, None]).abs() < share[:, None]
    return is_near & (own_index >= 0)[:, None]


def by_class(labels: Tensor, seed: int, stream: int) -> Tensor:
    """A random order of (n,) `labels`, class by class."""
    # Streams of a bit generator never change between versions of NumPy; permutations may.
    raw = np.random.PCG64(np.random.SeedSequence([seed, len(labels), stream])).random_raw(len(labels))
    shuffled = torch.from_numpy(np.argsort(raw, kind="stable")).to(labels.device)
    return shuffled[labels[shuffled].argsort(stable=True)]


Kind = Literal["knn", "linear"]

LEAST_IN_HALF = 10
"""Images of each set that a half needs, beside k."""

_NEARLY_ALL = 0.95  # of the reals: fewer would cost another search and move the null by less than its error
_REAL_STREAM, _FAKE_STREAM = 0, 1  # the halves of metrics of neighbors


@dataclass(frozen=True, slots=True)
class Direction:
    """A classifier trained on one set and tested on the other.

    Attributes:
        predicted: (m,) int64, the class of each image that it was tested on; negative for none.
        tally: Of these images.
        null: Of a perfect generator.
        chance: What guessing scores, by rate.
        halves: Of complementary halves, (B, classes); None where a half is too small, or none were requested.
        n: Images that it was tested on.
    """

    predicted: Tensor
    tally: Tally
    null: Tally
    chance: Mapping[str, float]
    halves: Tally | None
    n: int


@dataclass(frozen=True, slots=True)
class Conditional:
    """Both directions.

    Attributes:
        test: Trained on reals, tested on fakes (GAN-test).
        train: Trained on fakes, tested on reals (GAN-train).
        null_share: Reals that vote for the null of `train`, per fake of a class that reals have; at most 1.
    """

    test: Direction
    train: Direction
    null_share: float = 1.0


class ConditionalReals:
    """Labeled reals, fitted once, against which any number of labeled fake sets is scored.

    Args:
        features: (n, d) float32, at least two.
        labels: (n,) int64, the class of each, from 0.
        kind: "knn" for the vote, "linear" for the probe.
        k: Neighbors that vote.
        intervals: Whether to score halves.
        seed: Chooses halves and folds.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        *,
        kind: Kind,
        k: int = 5,
        intervals: bool = True,
        seed: int = 0,
    ) -> None:
        self._labels = labels
        self._k = k if kind == "knn" else 0
        self._intervals, self._seed = intervals, seed
        self._reals: KNNReference | LinearReference = (
            KNNReference(features, labels, k, seed=seed)
            if kind == "knn"
            else LinearReference(features, labels, seed=seed)
        )
        self._by_others = self._reals.by_others(None)

    def score(
        self, features: Tensor, labels: Tensor, *, classes_of_reals: Tensor, n_classes: int
    ) -> Conditional:
        """Score one fake set.

        Args:
            features: (m, d) float32.
            labels: (m,) int64, the class that each was generated for, from 0.
            classes_of_reals: (classes of the reals,) int64, ascending: what the classes of the reals are among those of both sets.
            n_classes: Classes of both sets.
        """
        requested, real = labels, classes_of_reals[self._labels]
        match = self._reals.against(features, labels, classes_of_reals)
        fakes_of, reals_of = (torch.bincount(each, minlength=n_classes) for each in (requested, real))
        test_halves, train_halves = self._halved(match, requested, real, n_classes)
        return Conditional(
            Direction(
                match.fakes,
                Tally.of(requested, match.fakes, n_classes),
                self._null_of_test(fakes_of, reals_of, real, classes_of_reals),
                _chance(fakes_of, known=reals_of),
                test_halves,
                len(requested),
            ),
            Direction(
                match.reals,
                Tally.of(real, match.reals, n_classes),
                self._null_of_train(fakes_of, reals_of, real, classes_of_reals),
                _chance(reals_of, known=fakes_of),
                train_halves,
                len(real),
            ),
            _share_there(fakes_of[classes_of_reals], reals_of[classes_of_reals]),
        )

    def _null_of_test(
        self, fakes_of: Tensor, reals_of: Tensor, real: Tensor, classes_of_reals: Tensor
    ) -> Tally:
        """Reals by others, each class counted as often as it was requested."""
        weights = (fakes_of / reals_of.clamp(min=1)).double()[real]
        found = Tally.of(real, renamed(self._by_others, classes_of_reals), len(fakes_of), weights)
        # Of a class without reals, no fake is right, whoever made it.
        lacking = fakes_of.where(reals_of == 0, torch.zeros_like(fakes_of))
        return Tally(found.right, found.requested + lacking.double().cpu().numpy(), found.predicted)

    def _null_of_train(
        self, fakes_of: Tensor, reals_of: Tensor, real: Tensor, classes_of_reals: Tensor
    ) -> Tally:
        """Reals by others, of each class as many as there are fakes of it."""
        requested, there = fakes_of[classes_of_reals], reals_of[classes_of_reals]
        share = float(class_sizes_like(requested, there).sum() / there.sum())
        by_others = self._by_others if share >= _NEARLY_ALL else self._reals.by_others(requested)
        return Tally.of(real, renamed(by_others, classes_of_reals), len(fakes_of))

    def _halved(
        self, match: Match, requested: Tensor, real: Tensor, n_classes: int
    ) -> tuple[Tally | None, Tally | None]:
        if not self._intervals or min(len(requested), len(real)) // 2 < max(LEAST_IN_HALF, self._k):
            return None, None
        of_reals, of_fakes = (
            members(len(labels), self._seed, stream, self._reals.halves, labels.device)
            for labels, stream in ((real, _REAL_STREAM), (requested, _FAKE_STREAM))
        )
        found = []
        for in_reals, in_fakes in zip(of_reals, of_fakes, strict=True):
            fakes, reals = in_fakes.nonzero()[:, 0], in_reals.nonzero()[:, 0]
            found.append(
                (
                    Tally.of(requested[fakes], match.fakes_in_half(fakes, in_reals), n_classes),
                    Tally.of(real[reals], match.reals_in_half(reals, in_fakes), n_classes),
                )
            )
        test, train = zip(*found, strict=True)
        return Tally.stacked(test), Tally.stacked(train)


def members(n: int, seed: int, stream: int, count: int, device: torch.device) -> Tensor:
    """Which of n images are in each half: (count, n) bool, complementary halves side by side."""
    halves = Halves.drawn(n, seed=seed, stream=stream, count=count, device=device)
    return unpacked(halves.member).T[:count]


def _share_there(requested: Tensor, there: Tensor) -> float:
    return (
        float(class_sizes_like(requested, there).sum() / requested.sum().clamp(min=1))
        if requested.any()
        else 1.0
    )


def _chance(sizes: Tensor, *, known: Tensor) -> dict[str, float]:
    """By rate, what is scored without looking at images."""
    sizes_of, may = sizes.double().cpu().numpy(), (known > 0).cpu().numpy()
    uniform = may / max(1, may.sum()) * sizes_of.sum()
    rates = Tally(sizes_of * may / max(1, may.sum()), sizes_of, uniform).rates()
    largest = float((sizes_of * may).max() / sizes_of.sum())
    return {name: float(rate) for name, rate in rates.items()} | {"accuracy": largest}
