"""Classifiers trained on one of two labelled sides and tested on the other, and on the reals themselves by other reals.

Both kinds answer the same questions: `genpr.metrics.label.conditional` asks them and knows nothing of neighbours or weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from genpr.metrics.label.linear_probe import LinearProbe
from genpr.metrics.label.recognition import NOBODY, Voters
from genpr.neighbors.plan import choose_frame

FOLDS = 5

_MAY_FALL_SHORT = 0.1
_MOST_LEFT_OUT = 0.25  # on either side, so that others may still vote on the only image of a class
_FOLD_STREAM, _CHOICE_STREAM, _SHARE_STREAM = 21, 22, 23


class Match(Protocol):
    """Two sides that recognise each other. Classes are numbers among those of both sides; NOBODY is none."""

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
    """Classes by their places among others; NOBODY stays."""
    return places[recognised.clamp(min=0)].where(recognised >= 0, recognised)


@dataclass(frozen=True, slots=True)
class KnnMatch:
    """By votes: see `Match`."""

    fakes: Tensor
    reals: Tensor
    k: int
    places: Tensor
    by_reals: Voters
    by_fakes: Voters

    def fakes_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        return renamed(self.by_reals.elected(self.k, rows=rows, may_vote=trained_on), self.places)

    def reals_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        return self.by_fakes.elected(self.k, rows=rows, may_vote=trained_on)


class KnnReals:
    """Reals that vote.

    Args:
        features: (n, d) float32.
        labels: (n,) int64, from 0.
        k: Voters.
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
            wanted: (classes,) int64, how many of each class should vote, as `sizes_like` allows; None for all.
        """
        every = torch.arange(len(self._labels), device=self._labels.device)
        chosen = every if wanted is None else chosen_like(self._labels, wanted, self._seed)
        points = self._points.frame.place(self._points.features[chosen])
        places = torch.full_like(every, NOBODY)
        places[chosen] = torch.arange(len(chosen), device=every.device)
        voters = Voters.of(self._points, points, self._labels[chosen], self._k, places=places)
        left_out = _like_itself(self._labels[chosen], voters.index, places, self._seed)
        return voters.without(left_out).elected(self._k)

    def against(self, features: Tensor, labels: Tensor, places: Tensor) -> Match:
        """Meet fakes.

        Args:
            features: (m, d) float32.
            labels: (m,) int64, classes among those of both sides.
            places: (classes of the reals,) int64, ascending, what these are among those of both sides.
        """
        fakes = self._points.frame.place(features)
        by_reals = Voters.of(fakes, self._points, self._labels, self._k)
        by_fakes = Voters.of(self._points, fakes, labels, self._k)
        of_fakes = renamed(by_reals.elected(self._k), places)
        return KnnMatch(of_fakes, by_fakes.elected(self._k), self._k, places, by_reals, by_fakes)


@dataclass(frozen=True, slots=True)
class Probed:
    """A labelled side with its probe, of which others can be fitted on parts."""

    features: Tensor
    labels: Tensor
    n_classes: int
    probe: LinearProbe

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> Probed:
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
        places: As in `KnnReals.against`.
        of_halves: Probes of halves of the reals, by the bytes of their membership: those known, and those to come.
    """

    def __init__(
        self, real_side: Probed, fake_side: Probed, places: Tensor, of_halves: dict[bytes, LinearProbe]
    ) -> None:
        self._real_side, self._fake_side = real_side, fake_side
        self._places, self._of_halves = places, of_halves
        self.fakes = renamed(real_side.probe.recognised(fake_side.features), places)
        self.reals = fake_side.probe.recognised(real_side.features)

    def fakes_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        half = np.packbits(trained_on.cpu().numpy()).tobytes()
        if half not in self._of_halves:
            self._of_halves[half] = self._real_side.part(trained_on)
        return renamed(self._of_halves[half].recognised(self._fake_side.features[rows]), self._places)

    def reals_in_half(self, rows: Tensor, trained_on: Tensor) -> Tensor:
        """See `Match`."""
        return self._fake_side.part(trained_on).recognised(self._real_side.features[rows])


class LinearReals:
    """Reals on which a probe is fitted.

    Args:
        features: (n, d) float32.
        labels: (n,) int64, from 0.
        seed: Chooses folds.
    """

    halves = 10
    """Half-samples for an interval: each is a fit on both sides."""

    def __init__(self, features: Tensor, labels: Tensor, *, seed: int) -> None:
        self._side, self._seed = Probed.of(features, labels), seed
        self._of_halves: dict[bytes, LinearProbe] = {}

    def by_others(self, wanted: Tensor | None) -> Tensor:
        """The class of each real, by a probe fitted on the other folds: (n,) int64; see `KnnReals.by_others`."""
        features, labels = self._side.features, self._side.labels
        n = len(labels)
        folds = folds_of(labels, self._seed)
        found = torch.full_like(labels, NOBODY)
        for fold in range(min(FOLDS, n)):
            rows = (folds != fold).nonzero()[:, 0]
            if wanted is not None:
                rows = rows[chosen_like(labels[rows], wanted, self._seed)]
            tested = (folds == fold).nonzero()[:, 0]
            probe = LinearProbe.fit(features[rows], labels[rows], self._side.n_classes)
            found[tested] = probe.recognised(features[tested])
        return found

    def against(self, features: Tensor, labels: Tensor, places: Tensor) -> Match:
        """Meet fakes: see `KnnReals.against`."""
        return LinearMatch(self._side, Probed.of(features, labels), places, self._of_halves)


def sizes_like(wanted: Tensor, there: Tensor) -> Tensor:
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


def chosen_like(labels: Tensor, wanted: Tensor, seed: int) -> Tensor:
    """Random rows of (n,) `labels`, of each class as many as `sizes_like` says, ascending."""
    sizes = sizes_like(wanted, torch.bincount(labels, minlength=len(wanted)))
    order = by_class(labels, seed, _CHOICE_STREAM)
    ordered = labels[order]
    first = torch.searchsorted(ordered, torch.arange(len(sizes), device=labels.device))
    rank = torch.arange(len(labels), device=labels.device) - first[ordered]
    return order[rank < sizes[ordered]].sort().values


def folds_of(labels: Tensor, seed: int) -> Tensor:
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
    shuffled = _shuffled(len(labels), seed, stream).to(labels.device)
    return shuffled[labels[shuffled].argsort(stable=True)]


def _shuffled(n: int, seed: int, stream: int) -> Tensor:
    """A random order of n rows that depends on the arguments alone."""
    # Streams of a bit generator never change between versions of NumPy; permutations may.
    raw = np.random.PCG64(np.random.SeedSequence([seed, n, stream])).random_raw(n)
    return torch.from_numpy(np.argsort(raw, kind="stable"))
