"""Do fakes look like the classes that they were asked to be? GAN-test, GAN-train and rates by class, with intervals and nulls.

**GAN-test** is the accuracy on fakes of a classifier trained on reals: the share recognised as the class asked for. Like
precision, it sees wrong and poor images, and not how few different ones there are. **GAN-train**, or the classification
accuracy score, is the accuracy on reals of a classifier trained on fakes. Like recall, it sees what fakes leave out; also
poor images, as far as a classifier learns less from them. The classifiers are `genpr.metrics.label.recognition` (a vote of the k
nearest) and `genpr.metrics.label.linear_probe`. Rates by class are those of GAN-test.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from genpr.metrics.label.recogniser import KnnReals, LinearReals, Match, renamed, sizes_like
from genpr.metrics.label.tally import Tally
from genpr.neighbors.halves import Halves, unpacked

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
        k: Voters.
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
        self._reals: KnnReals | LinearReals = (
            KnnReals(features, labels, k, seed=seed)
            if kind == "knn"
            else LinearReals(features, labels, seed=seed)
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
        share = float(sizes_like(wanted, there).sum() / there.sum())
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
    return float(sizes_like(wanted, there).sum() / wanted.sum().clamp(min=1)) if wanted.any() else 1.0


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
