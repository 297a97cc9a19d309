"""Do fakes look like the classes that they were asked to be? GAN-test, GAN-train and rates by class, with intervals and nulls.

**GAN-test** is the accuracy on fakes of a classifier trained on reals: the share recognised as the class asked for. Like
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

**Intervals.** Halves of both sides are drawn, as `genpr.metrics.uncertainty` says, and classified by halves: 100 for the vote,
which looks them up in lists of neighbours, and 10 for the probe, which is fitted again on each. So intervals are of other draws
of both sides. Halves are not drawn class by class: docs/labels.md has what was measured.

References:
    Shmelkov, Schmid and Alahari 2018, "How good is my GAN?", arXiv:1807.09499; Ravuri and Vinyals 2019, "Classification
    Accuracy Score for Conditional Generative Models", arXiv:1905.10887.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.metrics.label_classifiers import UNKNOWN, KNNClassifier, LinearProbe
from genpr.metrics.labels import mean_of_defined, ratios
from genpr.neighbors.halves import Halves, unpacked
from genpr.neighbors.index import choose_frame

Counts = NDArray[np.float64]

RATES = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
"""What a tally knows, of single labels."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Images by class, in float64 since they may be weighted.

    Attributes:
        right: (..., classes), asked for and recognised.
        asked: (..., classes).
        recognised: (..., classes); images that nobody recognised are in none.
    """

    right: Counts
    asked: Counts
    recognised: Counts

    @classmethod
    def of(cls, asked: Tensor, recognised: Tensor, n_classes: int, weights: Tensor | None = None) -> Tally:
        """Count.

        Args:
            asked: (m,) int64, the class that each image was asked to be of.
            recognised: (m,) int64, the class that it was recognised as; negative for none.
            n_classes: How many there are.
            weights: (m,) float64, by class asked for; None counts each image once.
        """
        asked, recognised = asked.cpu(), recognised.cpu()  # where sums have one order
        weights = torch.ones_like(asked, dtype=torch.float64) if weights is None else weights.cpu()

        def count(labels: Tensor, keep: Tensor) -> Counts:
            found: Counts = torch.bincount(labels[keep], weights[keep], minlength=n_classes).numpy()
            return found

        return cls(
            count(asked, asked == recognised),
            count(asked, torch.ones_like(asked, dtype=torch.bool)),
            count(recognised, recognised >= 0),
        )

    @classmethod
    def stacked(cls, tallies: Iterable[Tally]) -> Tally:
        """Several in one, (B, classes)."""
        columns = zip(*((each.right, each.asked, each.recognised) for each in tallies), strict=True)
        return cls(*(np.stack(column) for column in columns))

    def rates(self) -> dict[str, Counts]:
        """Accuracy, and the macro averages of what is defined, by name: (...) float64, NaN where nothing is."""
        precision, recall, f = ratios(self.right, self.asked, self.recognised)
        return {
            "accuracy": np.asarray(self.right.sum(axis=-1) / self.asked.sum(axis=-1)),
            "macro_precision": mean_of_defined(precision),
            "macro_recall": mean_of_defined(recall),
            "macro_f1": mean_of_defined(f),
        }


FOLDS = 5

_MAY_FALL_SHORT = 0.1
_MOST_LEFT_OUT = 0.25  # on either side, so that others may still vote on the only image of a class
_FOLD_STREAM, _CHOICE_STREAM, _SHARE_STREAM = 21, 22, 23


class Match(Protocol):
    """Two sides that recognise each other. Classes are numbers among those of both sides; UNKNOWN is none."""

    @property
    def fakes(self) -> Tensor:
        """(m,) int64, the class of each fake, by the reals."""

    @property
    def reals(self) -> Tensor:
        """(n,) int64, the class of each real, by the fakes."""

    def fakes_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """The class of the fakes `rows` (r,), by the reals that (n,) bool `trained_on` names."""

    def reals_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """The class of the reals `rows` (r,), by the fakes that (m,) bool `trained_on` names."""


def renamed(recognised: Tensor, places: Tensor) -> Tensor:
    """Classes by their places among others; UNKNOWN stays."""
    return places[recognised.clamp(min=0)].where(recognised >= 0, recognised)


@dataclass(frozen=True, slots=True)
class KNNMatch:
    """By votes: see `Match`."""

    fakes: Tensor
    reals: Tensor
    k: int
    places: Tensor
    by_reals: KNNClassifier
    by_fakes: KNNClassifier

    def fakes_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        return renamed(self.by_reals.predict(self.k, rows=rows, mask=trained_on), self.places)

    def reals_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        return self.by_fakes.predict(self.k, rows=rows, mask=trained_on)


class KNNReference:
    """Reals that vote.

    Args:
        features: (n, d) float32.
        labels: (n,) int64, from 0.
        k: KNNClassifier.
        seed: Chooses who votes where not all may.
    """

    halves = 100
    """Half-samples for an interval."""

    def __init__(self, features: Tensor, labels: Tensor, k: int, *, seed: int) -> None:
        self._labels, self._k, self._seed = labels, k, seed
        self._points = choose_frame(features, k).place(features)

    def by_others(self, wanted: Tensor | None) -> Tensor:
        """The class of each real, by other reals: (n,) int64.

        Its class lacks the real itself, one of n; so all classes lack a share of 1 / n. Else it would be outvoted: with 5
        images of each class, 4 of its own would stand against 5 of every other, as they never do for a fake.

        Args:
            wanted: (classes,) int64, how many of each class should vote, as `class_sizes_like` allows; None for all.
        """
        every = torch.arange(len(self._labels), device=self._labels.device)
        chosen = every if wanted is None else sample_like(self._labels, wanted, self._seed)
        points = self._points.frame.place(self._points.features[chosen])
        places = torch.full_like(every, UNKNOWN)
        places[chosen] = torch.arange(len(chosen), device=every.device)
        voters = KNNClassifier.of(self._points, points, self._labels[chosen], self._k, places=places)
        left_out = _like_itself(self._labels[chosen], voters.index, places, self._seed)
        return voters.without(left_out).predict(self._k)

    def against(self, features: Tensor, labels: Tensor, places: Tensor) -> Match:
        """Meet fakes.

        Args:
            features: (m, d) float32.
            labels: (m,) int64, classes among those of both sides.
            places: (classes of the reals,) int64, ascending, what these are among those of both sides.
        """
        fakes = self._points.frame.place(features)
        by_reals = KNNClassifier.of(fakes, self._points, self._labels, self._k)
        by_fakes = KNNClassifier.of(self._points, fakes, labels, self._k)
        of_fakes = renamed(by_reals.predict(self._k), places)
        return KNNMatch(of_fakes, by_fakes.predict(self._k), self._k, places, by_reals, by_fakes)


@dataclass(frozen=True, slots=True)
class ProbedSide:
    """A labelled side with its probe, of which others can be fitted on parts."""

    features: Tensor
    labels: Tensor
    n_classes: int
    probe: LinearProbe

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> ProbedSide:
        """Fit the probe of the whole side."""
        n_classes = int(labels.max()) + 1
        return cls(features, labels, n_classes, LinearProbe.fit(features, labels, n_classes))

    def part(self, trained_on: Tensor) -> LinearProbe:
        """The probe of the rows that (n,) bool `trained_on` names, from that of all, which is near."""
        features, labels = self.features[trained_on], self.labels[trained_on]
        return LinearProbe.fit(features, labels, self.n_classes, start=self.probe)


class LinearMatch:
    """By probes, fitted again on every half: see `Match`.

    Args:
        real_side: The reals with their probe.
        fake_side: The fakes with theirs.
        places: As in `KNNReference.against`.
        of_halves: Probes of halves of the reals, by the bytes of their membership: those known, and those to come.
    """

    def __init__(
        self,
        real_side: ProbedSide,
        fake_side: ProbedSide,
        places: Tensor,
        of_halves: dict[bytes, LinearProbe],
    ) -> None:
        self._real_side, self._fake_side = real_side, fake_side
        self._places, self._of_halves = places, of_halves
        self.fakes = renamed(real_side.probe.predict(fake_side.features), places)
        self.reals = fake_side.probe.predict(real_side.features)

    def fakes_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        half = np.packbits(trained_on.cpu().numpy()).tobytes()
        if half not in self._of_halves:
            self._of_halves[half] = self._real_side.part(trained_on)
        return renamed(self._of_halves[half].predict(self._fake_side.features[rows]), self._places)

    def reals_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        return self._fake_side.part(trained_on).predict(self._real_side.features[rows])


class LinearReference:
    """Reals on which a probe is fitted.

    Args:
        features: (n, d) float32.
        labels: (n,) int64, from 0.
        seed: Chooses folds.
    """

    halves = 10
    """Half-samples for an interval: each is a fit on both sides."""

    def __init__(self, features: Tensor, labels: Tensor, *, seed: int) -> None:
        self._side, self._seed = ProbedSide.of(features, labels), seed
        self._of_halves: dict[bytes, LinearProbe] = {}

    def by_others(self, wanted: Tensor | None) -> Tensor:
        """The class of each real, by a probe fitted on the other folds: (n,) int64; see `KNNReference.by_others`."""
        features, labels = self._side.features, self._side.labels
        n = len(labels)
        folds = class_folds(labels, self._seed)
        found = torch.full_like(labels, UNKNOWN)
        for fold in range(min(FOLDS, n)):
            rows = (folds != fold).nonzero()[:, 0]
            if wanted is not None:
                rows = rows[sample_like(labels[rows], wanted, self._seed)]
            tested = (folds == fold).nonzero()[:, 0]
            probe = LinearProbe.fit(features[rows], labels[rows], self._side.n_classes)
            found[tested] = probe.predict(features[tested])
        return found

    def against(self, features: Tensor, labels: Tensor, places: Tensor) -> Match:
        """Meet fakes: see `KNNReference.against`."""
        return LinearMatch(self._side, ProbedSide.of(features, labels), places, self._of_halves)


def class_sizes_like(wanted: Tensor, there: Tensor) -> Tensor:
    """How many of each class to take: as many as wanted, or fewer in the same proportions where there are not as many.

    Proportions matter: a classifier prefers classes that it saw often. But classes of which far too few are there shall not
    cost all others: those with a tenth of what is wanted at most may fall short.

    Args:
        wanted: (classes,) int64.
        there: (classes,) int64.
    """
    asked = ((wanted > 0) & (there > 0)).nonzero()[:, 0]
    if not len(asked):
        return torch.minimum(wanted, there)
    ratios = there[asked].double() / wanted[asked]
    order = ratios.argsort(stable=True)
    mass = wanted[asked][order].cumsum(dim=0)
    first = int((mass <= _MAY_FALL_SHORT * mass[-1]).sum())
    scale = min(1.0, float(ratios[order[first]]))
    return torch.minimum((wanted * scale).round().long().clamp(min=1), there).where(
        wanted > 0, torch.zeros_like(there)
    )


def sample_like(labels: Tensor, wanted: Tensor, seed: int) -> Tensor:
    """Random rows of (n,) `labels`, of each class as many as `class_sizes_like` says, ascending."""
    sizes = class_sizes_like(wanted, torch.bincount(labels, minlength=len(wanted)))
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


def _like_itself(labels: Tensor, voters: Tensor, places: Tensor, seed: int) -> Tensor:
    """Which voters stand for the same share of their class as the one whom they vote on does for its own.

    Images of a class are spread evenly over 0 to 1, in a random order. One of n stands for the 1 / n around it.

    Args:
        labels: (n,) int64 of all who may vote.
        voters: (m, L) int64, which of these vote on each.
        places: (m,) int64, which of these each is itself, negative for none, who have no share.
        seed: Chooses the order.
    """
    sizes, order = torch.bincount(labels), by_class(labels, seed, _SHARE_STREAM)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    at = (rank - (sizes.cumsum(dim=0) - sizes)[labels] + 0.5).double() / sizes[labels]
    itself = places.clamp(min=0)
    share = (0.5 / sizes[labels].double()).clamp(max=_MOST_LEFT_OUT)[itself]
    is_near = (at[voters] - at[itself][:, None]).abs() < share[:, None]
    return is_near & (places >= 0)[:, None]


def by_class(labels: Tensor, seed: int, stream: int) -> Tensor:
    """A random order of (n,) `labels`, class by class."""
    # Streams of a bit generator never change between versions of NumPy; permutations may.
    raw = np.random.PCG64(np.random.SeedSequence([seed, len(labels), stream])).random_raw(len(labels))
    shuffled = torch.from_numpy(np.argsort(raw, kind="stable")).to(labels.device)
    return shuffled[labels[shuffled].argsort(stable=True)]


Kind = Literal["knn", "linear"]

LEAST_IN_HALF = 10
"""Images of each side that a half needs, beside k."""

_NEARLY_ALL = 0.95  # of the reals: fewer would cost another search and move the null by less than its error
_REAL_STREAM, _FAKE_STREAM = 0, 1  # the halves of metrics of neighbours


@dataclass(frozen=True, slots=True)
class Direction:
    """A classifier trained on one side and tested on the other.

    Attributes:
        recognised: (m,) int64, the class of each image that it was tested on; negative for none.
        tally: Of these images.
        null: Of a perfect generator.
        chance: What guessing scores, by rate.
        halves: Of complementary halves, (B, classes); None where a half is too small, or none were asked for.
        n: Images that it was tested on.
    """

    recognised: Tensor
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
    """Labelled reals, fitted once, against which any number of labelled fake sets is scored.

    Args:
        features: (n, d) float32, at least two.
        labels: (n,) int64, the class of each, from 0.
        kind: "knn" for the vote, "linear" for the probe.
        k: KNNClassifier.
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

    def score(self, features: Tensor, labels: Tensor, *, places: Tensor, n_classes: int) -> Conditional:
        """Score one fake set.

        Args:
            features: (m, d) float32.
            labels: (m,) int64, the class that each was asked to be of, from 0.
            places: (classes of the reals,) int64, ascending: what the classes of the reals are among those of both sides.
            n_classes: Classes of both sides.
        """
        asked, real = labels, places[self._labels]
        match = self._reals.against(features, labels, places)
        fakes_of, reals_of = (torch.bincount(each, minlength=n_classes) for each in (asked, real))
        test_halves, train_halves = self._halved(match, asked, real, n_classes)
        return Conditional(
            Direction(
                match.fakes,
                Tally.of(asked, match.fakes, n_classes),
                self._null_of_test(fakes_of, reals_of, real, places),
                _chance(fakes_of, known=reals_of),
                test_halves,
                len(asked),
            ),
            Direction(
                match.reals,
                Tally.of(real, match.reals, n_classes),
                self._null_of_train(fakes_of, reals_of, real, places),
                _chance(reals_of, known=fakes_of),
                train_halves,
                len(real),
            ),
            _share_there(fakes_of[places], reals_of[places]),
        )

    def _null_of_test(self, fakes_of: Tensor, reals_of: Tensor, real: Tensor, places: Tensor) -> Tally:
        """Reals by others, each class counted as often as it was asked for."""
        weights = (fakes_of / reals_of.clamp(min=1)).double()[real]
        found = Tally.of(real, renamed(self._by_others, places), len(fakes_of), weights)
        # Of a class without reals, no fake is right, whoever made it.
        lacking = fakes_of.where(reals_of == 0, torch.zeros_like(fakes_of))
        return Tally(found.right, found.asked + lacking.double().cpu().numpy(), found.recognised)

    def _null_of_train(self, fakes_of: Tensor, reals_of: Tensor, real: Tensor, places: Tensor) -> Tally:
        """Reals by others, of each class as many as there are fakes of it."""
        wanted, there = fakes_of[places], reals_of[places]
        share = float(class_sizes_like(wanted, there).sum() / there.sum())
        by_others = self._by_others if share >= _NEARLY_ALL else self._reals.by_others(wanted)
        return Tally.of(real, renamed(by_others, places), len(fakes_of))

    def _halved(
        self, match: Match, asked: Tensor, real: Tensor, n_classes: int
    ) -> tuple[Tally | None, Tally | None]:
        if not self._intervals or min(len(asked), len(real)) // 2 < max(LEAST_IN_HALF, self._k):
            return None, None
        of_reals, of_fakes = (
            members(len(labels), self._seed, stream, self._reals.halves, labels.device)
            for labels, stream in ((real, _REAL_STREAM), (asked, _FAKE_STREAM))
        )
        found = []
        for in_reals, in_fakes in zip(of_reals, of_fakes, strict=True):
            fakes, reals = in_fakes.nonzero()[:, 0], in_reals.nonzero()[:, 0]
            found.append(
                (
                    Tally.of(asked[fakes], match.fakes_in_half(fakes, in_reals), n_classes),
                    Tally.of(real[reals], match.reals_in_half(reals, in_fakes), n_classes),
                )
            )
        test, train = zip(*found, strict=True)
        return Tally.stacked(test), Tally.stacked(train)


def members(n: int, seed: int, stream: int, count: int, device: torch.device) -> Tensor:
    """Which of n images are in each half: (count, n) bool, complementary halves side by side."""
    halves = Halves.drawn(n, seed=seed, stream=stream, count=count, device=device)
    return unpacked(halves.member).T[:count]


def _share_there(wanted: Tensor, there: Tensor) -> float:
    return float(class_sizes_like(wanted, there).sum() / wanted.sum().clamp(min=1)) if wanted.any() else 1.0


def _chance(sizes: Tensor, *, known: Tensor) -> dict[str, float]:
    """By rate, what is scored without looking at images.

    Args:
        sizes: (classes,) images of each class that are tested.
        known: (classes,) images of each class that were trained on; no other class is ever guessed.
    """
    sizes_of, may = sizes.double().cpu().numpy(), (known > 0).cpu().numpy()
    uniform = may / max(1, may.sum()) * sizes_of.sum()
    rates = Tally(sizes_of * may / max(1, may.sum()), sizes_of, uniform).rates()
    largest = float((sizes_of * may).max() / sizes_of.sum())
    return {name: float(rate) for name, rate in rates.items()} | {"accuracy": largest}
