"""Classifiers that are fitted on labeled images: a vote of the k nearest neighbors, and multinomial logistic regression.

References:
    Cover and Hart 1967, "Nearest neighbor pattern classification".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genpr.metrics.real_manifold import choose_engine
from genpr.neighbors.engine import Engine, plain_arithmetic
from genpr.neighbors.halves import others_for
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import nearest_between
from genpr.neighbors.search import Advance, no_advance

L2 = 0.1
"""Weight of the penalty."""

_STEPS, _TOLERANCE = 200, 3e-5
_ROWS = 2**14


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """Multinomial logistic regression on features of mean 0 and standard deviation 1.

    It minimizes

        mean over images of -log softmax(W x + b)[class] + (l2 / 2) |W|^2

    with a fixed l2 of .1, which is scikit-learn's `LogisticRegression(C=1 / (l2 * n))`. The problem is convex, so the start of
    L-BFGS does not matter and nothing is drawn at random. Features are float32; weights, sums of losses and of gradients float64.

    Attributes:
        mean: (d,) float64, of the features that it was fitted on.
        scale: (d,) float64, their standard deviation; 1 where they are constant.
        weight: (d, classes) float64.
        bias: (classes,) float64.
        present: (classes,) bool; no other class is ever predicted.
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    present: Tensor

    @classmethod
    def fit(
        cls,
        features: Tensor,
        labels: Tensor,
        n_classes: int,
        *,
        l2: float = L2,
        start: LinearProbe | None = None,
    ) -> LinearProbe:
        """Fit it.

        Args:
            features: (n, d) float32.
            labels: (n,) int64, from 0; a class may have no image.
            n_classes: How many classes there are.
            l2: Weight of the penalty.
            start: A probe of the same classes on similar features, from which few steps are left; None starts at 0.
        """
        mean, scale = _moments(features)
        present = torch.bincount(labels, minlength=n_classes) > 0
        known = present.nonzero()[:, 0]
        place = torch.zeros(n_classes, dtype=torch.int64, device=labels.device)
        place[known] = torch.arange(len(known), device=labels.device)
        with plain_arithmetic(features.device):
            scaled = ((features - mean.float()) / scale.float()).float()
            first = torch.zeros(
                features.shape[1] + 1, len(known), dtype=torch.float64, device=features.device
            )
            if start is not None:
                first[:-1], first[-1] = start.weight[:, known], start.bias[known]
            fitted = _minimised(scaled, place[labels], first, l2)
        weight, bias = fitted.new_zeros(features.shape[1], n_classes), fitted.new_zeros(n_classes)
        weight[:, known], bias[known] = fitted[:-1], fitted[-1]
        return cls(mean, scale, weight, bias, present)

    def predict(self, features: Tensor) -> Tensor:
        """The class of the highest score of each of (m, d) features, the first of equal ones: (m,) int64."""
        found = []
        for block in torch.split(features, _ROWS):
            scores = ((block.double() - self.mean) / self.scale) @ self.weight + self.bias
            scores = scores.masked_fill(~self.present, -torch.inf)
            is_best = scores == scores.max(dim=1, keepdim=True).values
            found.append(is_best.long().argmax(dim=1))
        return torch.cat(found)


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the columns, float64, block by block."""
    n = len(features)
    mean = torch.stack([block.double().sum(dim=0) for block in torch.split(features, _ROWS)]).sum(dim=0) / n
    blocks = [(block.double() - mean).square().sum(dim=0) for block in torch.split(features, _ROWS)]
    scale = (torch.stack(blocks).sum(dim=0) / n).sqrt()
    return mean, scale.where(scale > 0, torch.ones_like(scale))


def _minimised(x: Tensor, labels: Tensor, start: Tensor, l2: float) -> Tensor:
    """Weights, and the bias in the last row: (d + 1, classes) float64 like `start`, of standardized float32 `x` (n, d).

    Features are correlated, and L-BFGS takes hundreds of steps in them. It takes a fraction of that in coordinates in which
    the second derivative at 0, here of a Cholesky factor, is nearly the identity.
    """
    n = len(x)
    factor = _factor(x, start.shape[1], l2)
    parameters = torch.cat([factor.T @ start[:-1], start[-1:]])
    optimizer: Any = torch.optim.LBFGS(
        [parameters],
        max_iter=_STEPS,
        tolerance_grad=_TOLERANCE,
        tolerance_change=1e-9,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        weight, bias = _solved(factor.T, parameters[:-1], upper=True), parameters[-1]
        gradient, excesses = l2 * weight, torch.zeros_like(bias)
        loss = l2 / 2 * weight.square().sum()
        for block, wanted in zip(torch.split(x, _ROWS), torch.split(labels, _ROWS), strict=True):
            log_share = ((block @ weight.float()).double() + bias).log_softmax(dim=1)
            loss = loss - log_share.gather(1, wanted[:, None]).sum() / n
            excess = log_share.exp() / n
            excess[torch.arange(len(block), device=x.device), wanted] -= 1 / n
            gradient += (
                excess.T.float() @ block
            ).T.double()  # in this order many times as fast as block.T @ excess
            excesses += excess.sum(dim=0)
        parameters.grad = torch.cat([_solved(factor, gradient, upper=False), excesses[None]])
        return loss

    with torch.no_grad():
        optimizer.step(closure)
        return torch.cat([_solved(factor.T, parameters[:-1], upper=True), parameters[-1:]])


def _factor(x: Tensor, n_classes: int, l2: float) -> Tensor:
    """Lower Cholesky factor of the second derivative at 0, of one class: (d, d) float64."""
    d = x.shape[1]
    squares = torch.zeros(d, d, dtype=torch.float64, device=x.device)
    for block in torch.split(x, _ROWS):
        squares += (block.T @ block).double()
    curvature = (1 - 1 / n_classes) / n_classes / len(x)
    factor: Tensor = torch.linalg.cholesky(squares.mul_(curvature) + l2 * torch.eye(d, device=x.device))
    return factor


def _solved(factor: Tensor, right: Tensor, *, upper: bool) -> Tensor:
    solution: Tensor = torch.linalg.solve_triangular(factor, right, upper=upper)
    return solution


UNKNOWN = -1
"""The class where there are no votes."""

_VOTE_ROWS, _PAIRS = 2**16, 2**28  # of lists looked at together, and of voters of one list compared


@dataclass(frozen=True, slots=True)
class KNNClassifier:
    """The nearest labeled images of each query, in the order in which they vote.

    Neighbors are in the order of their distance, and of equally far ones those of the first class come first. The first k of
    this order vote, one vote each; of classes with equally many votes, that of the first neighbor wins. So the nearest class
    wins, then the order of the classes, and the result does not depend on the order of the images.

    A list holds as many neighbors as k voters need of random halves, for intervals. If more than that are equally far, such as
    copies, those of lower index are in it.

    Attributes:
        index: (m, L) int64, which images.
        labels: (m, L) int64, their classes, UNKNOWN after the last one.
    """

    index: Tensor
    labels: Tensor

    @classmethod
    def of(
        cls,
        queries: Placed,
        points: Placed,
        labels: Tensor,
        k: int,
        *,
        own_index: Tensor | None = None,
        engine: Engine | None = None,
        advance: Advance = no_advance,
    ) -> KNNClassifier:
        """Find them.

        Args:
            queries: m rows.
            points: n rows in the same frame.
            labels: (n,) int64, the classes of the points, from 0.
            k: Neighbors that vote.
            own_index: (m,) int64, which point each query is, negative for none of them; None if no query is a point. None votes
                on itself; its copies do.
            engine: As in `nearest_between`.
            advance: As in `nearest_between`.
        """
        n = len(points)
        length = min(others_for(k) + (own_index is not None), n)
        index, sq = nearest_between(
            queries, points, length, engine=engine or choose_engine(points.device), advance=advance
        )
        if own_index is not None:
            index, sq = _without_themselves(index, sq, own_index)
        classes = labels[index]
        by_class = classes.argsort(dim=1, stable=True)
        order = by_class.gather(1, sq.gather(1, by_class).argsort(dim=1, stable=True))
        return cls(index.gather(1, order), classes.gather(1, order))

    def predict(self, k: int, *, rows: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """The class with most votes of the first `k`, UNKNOWN if there are none: (m,) or (r,) int64.

        Args:
            k: Neighbors of each that vote; fewer vote where a list has no more.
            rows: (r,) int64, of whom; None for all.
            mask: (n,) bool, which points may vote; None for all.
        """
        rows = torch.arange(len(self.index), device=self.index.device) if rows is None else rows
        parts = [
            self._predict(k, part, mask)
            for part in torch.split(rows, max(1, min(_VOTE_ROWS, _PAIRS // k**2)))
        ]
        return torch.cat(parts) if parts else rows

    def without(self, left_out: Tensor) -> KNNClassifier:
        """Lists without the voters that (m, L) bool `left_out` names; the others keep their order."""
        order = left_out.long().argsort(dim=1, stable=True)
        labels = self.labels.masked_fill(left_out, UNKNOWN)
        return KNNClassifier(self.index.gather(1, order), labels.gather(1, order))

    def _predict(self, k: int, rows: Tensor, mask: Tensor | None) -> Tensor:
        labels = self.labels[rows]
        if mask is None:
            return plurality(labels[:, :k])
        votes = mask[self.index[rows]]
        place = votes.cumsum(dim=1) - 1
        # Images that do not vote go to an index behind the last one, which is cut off.
        place = place.where(votes & (place < k), torch.full_like(place, k))
        first = labels.new_full((len(rows), k + 1), UNKNOWN).scatter_(1, place, labels)
        return plurality(first[:, :k])


def _without_themselves(index: Tensor, sq: Tensor, own_index: Tensor) -> tuple[Tensor, Tensor]:
    """Lists (m, L) without the query itself, or without their last one if it is not among them: (m, L - 1)."""
    dropped = index == own_index[:, None]
    dropped[:, -1] |= ~dropped.any(dim=1)
    shape = len(index), index.shape[1] - 1
    return index[~dropped].view(shape), sq[~dropped].view(shape)


def plurality(votes: Tensor) -> Tensor:
    """The class with most of the votes (r, k), of equal ones the one that comes first; UNKNOWN where there are none: (r,)."""
    if not votes.shape[1]:
        return votes.new_full((len(votes),), UNKNOWN)
    k = votes.shape[1]
    counts = (votes[:, :, None] == votes[:, None, :]).sum(dim=2) * (votes != UNKNOWN)
    order = counts * k - torch.arange(k, device=votes.device)  # all different where any is not 0
    winner = order.argmax(dim=1)
    return votes.gather(1, winner[:, None])[:, 0]
