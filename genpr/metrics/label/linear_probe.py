"""Which class an image looks like, by a linear classifier fitted on labelled images.

Multinomial logistic regression on features of mean 0 and standard deviation 1: minimised is

    mean over images of -log softmax(W x + b)[class] + (l2 / 2) |W|^2

with a fixed l2 of .1, which is scikit-learn's `LogisticRegression(C=1 / (l2 * n))`. The problem is convex so the start of
L-BFGS does not matter and nothing is drawn at random. Features are float32; weights, sums of losses and of gradients float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genpr.neighbors.engine import plain_arithmetic

L2 = 0.1
"""Weight of the penalty."""

_STEPS, _TOLERANCE = 200, 3e-5
_ROWS = 2**14


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """A fitted classifier.

    Attributes:
        mean: (d,) float64, of the features that it was fitted on.
        scale: (d,) float64, their standard deviation; 1 where they are constant.
        weight: (d, classes) float64.
        bias: (classes,) float64.
        present: (classes,) bool; no other class is ever recognised.
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

    def recognised(self, features: Tensor) -> Tensor:
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
    """Weights, and the bias in the last row: (d + 1, classes) float64 like `start`, of standardised float32 `x` (n, d).

    Features are correlated, and L-BFGS takes hundreds of steps in them. It takes a fraction of that in coordinates in which
    the second derivative at 0, here of a Cholesky factor, is nearly the identity.
    """
    n = len(x)
    factor = _factor(x, start.shape[1], l2)
    parameters = torch.cat([factor.T @ start[:-1], start[-1:]])
    optimiser: Any = torch.optim.LBFGS(
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
        optimiser.step(closure)
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
