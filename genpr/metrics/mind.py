"""Monge Inception Distance: the difference between the sorted projections of two feature sets onto random directions.

    MIND = 3 d * mean over directions u and ranks j of (sort(X u)_j - sort(Y u)_j)^2

X and Y hold d features of equally many images. The mean is the squared sliced 2-Wasserstein distance; by the factor, a pure
shift by v has about 3 |v|^2.

**Influence.** Along one direction, a row moves the distance by its Kantorovich potential, whose slope is twice the distance
that the row is moved (Santambrogio 2015, "Optimal Transport for Applied Mathematicians", section 7.2). Each set is cut into
two halves with separate potentials A and B. The mean over rows of ((A + B) / 2)^2 has the expectation V1 + 2 V2, that of
A B has V1, since the errors of A and B are independent.

References:
    Q. Berthet et al., MIND: Monge Inception Distance for Generative Models Evaluation, 2026, arXiv:2605.06797.
    Random numbers as in toshas/torch-fidelity, metric_mind.py, and in fd_evaluator of End2End-Diffusion/diffusionbench-evals.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from genpr.metrics.blocks import Blocks, held_on
from genpr.metrics.influence import Influence, SquaredDistance
from genpr.validation import Features, check_count, checked_pair, choose_device, entry_point

_MIN_ROWS = 4
_PROJECTIONS = 2**22  # of one set that are sorted at once, at least those onto one direction


@entry_point
def monge_inception_distance(
    real: Features,
    fake: Features,
    *,
    directions: int = 1000,
    seed: int = 2020,
    device: str | torch.device = "auto",
) -> float:
    """MIND: 3 d times the mean squared sliced 2-Wasserstein distance over random directions.

    One CPU generator of torch draws a permutation of the larger set, if the sizes differ, of which the first rows are used, and
    then the directions: float32 Gaussian vectors divided by their norm. Projections and sums are float64.

    Args:
        real: (n, d) features of real images, n >= 2.
        fake: (m, d) features of generated images by the same extractor, m >= 2.
        directions: Number of random directions.
        seed: Seed of the generator, below 2^32.
        device: "auto" is the GPU that holds the input, else the best device available.

    Returns:
        At least 0, in feature units squared. It is biased upward: two samples of one distribution have more than 0.

    Raises:
        FeatureError: Malformed, non-finite, too few rows, or different widths.
        UsageError: directions or seed is out of range.

    Example:
        >>> import numpy as np
        >>> real = np.random.default_rng(0).normal(size=(500, 8))
        >>> round(monge_inception_distance(real, real + 1))  # about 3 * 8
        24
    """
    return mind_influence(real, fake, directions=directions, seed=seed, device=device, has_influence=False)[0]


def mind_influence(
    real: Features,
    fake: Features,
    *,
    directions: int = 1000,
    seed: int = 2020,
    device: str | torch.device = "auto",
    has_influence: bool = True,
) -> tuple[float, Influence | None]:
    """`monge_inception_distance` with the influence of each image; None for fewer than 4 images of a set.

    Rows of the larger set that were not drawn have none.
    """
    count = check_count(directions, "directions", minimum=1)
    generator = torch.Generator().manual_seed(check_count(seed, "seed", minimum=0, maximum=2**32 - 1))
    (real, fake), where = checked_pair(real, fake, k=1), choose_device(real, device)
    n, d = min(len(real), len(fake)), real.shape[1]
    (fakes, fake_rows), (reals, real_rows) = (_drawn(side, n, generator, where) for side in (fake, real))
    normals = torch.randn(count, d, generator=generator, dtype=torch.float32, device="cpu")
    units = F.normalize(normals, dim=1, eps=1e-12).to(where, torch.float64)
    total = torch.zeros((), dtype=torch.float64, device=where)
    potentials = None
    if has_influence and n >= _MIN_ROWS:
        potentials = _Potentials((len(real), len(fake)), (real_rows, fake_rows), 3 * d / count, where)
    for block in torch.split(units, max(1, _PROJECTIONS // n)):
        sides = [_sorted_projections(reals, block), _sorted_projections(fakes, block)]
        if potentials is not None:
            potentials.add(*sides)
        differences = sides[0].values.sub_(sides[1].values)
        total += differences.square_().sum(dim=1).sum()
    value = 3 * d * float(total) / (n * count)
    return value, None if potentials is None else potentials.influence(value)


class _Potentials:
    """Potentials of the rows of both sets between halves of them, added up over directions."""

    def __init__(
        self,
        sizes: tuple[int, int],
        rows: tuple[Tensor | None, Tensor | None],
        scale: float,
        device: torch.device,
    ) -> None:
        self._sizes, self._rows, self._scale = sizes, rows, scale
        n, self._size = min(sizes), min(sizes) // 2
        # Random, since images may be in the order of their classes.
        generator, self._halves = torch.Generator().manual_seed(0), []
        for _ in sizes:
            order, in_half = torch.randperm(n, generator=generator), torch.zeros(2, n, dtype=torch.bool)
            in_half[0, order[: self._size]] = True
            in_half[1, order[self._size : 2 * self._size]] = True
            self._halves.append(in_half.to(device))
        self._sums = torch.zeros(2, 2, n, dtype=torch.float64, device=device)  # by half and set

    def add(self, real: torch.return_types.sort, fake: torch.return_types.sort) -> None:
        """Sorted projections (directions, n) of either set with their rows."""
        sides = list(zip((real, fake), self._halves, strict=True))
        for half in range(2):
            masks = [in_half[half][side.indices] for side, in_half in sides]
            halves = [
                side.values[mask].view(-1, self._size) for (side, _), mask in zip(sides, masks, strict=True)
            ]
            moved = halves[0] - halves[1]
            for at, ((side, _), mask) in enumerate(zip(sides, masks, strict=True)):
                potentials = _potentials(side.values, mask, halves[at], moved)
                # `index_add_` would add in a random order on a GPU.
                self._sums[half, at] += (
                    torch.empty_like(potentials).scatter_(1, side.indices, potentials).sum(dim=0)
                )
                moved.neg_()

    def influence(self, value: float) -> Influence:
        """The influence of each image on the metric, whose value is given."""
        phis, first, crossed = [], 0.0, 0.0
        for at, (size, rows) in enumerate(zip(self._sizes, self._rows, strict=True)):
            a, b = self._scale * (self._sums[:, at] - self._sums[:, at].mean(dim=1, keepdim=True))
            mean = (a + b) / 2
            first += float(mean.square().mean()) / len(mean)
            crossed += float((a * b).mean()) / len(mean)
            phi = torch.zeros(size, dtype=torch.float64, device=mean.device)
            phi[slice(None) if rows is None else rows.to(mean.device)] = mean * (size / len(mean))
            phis.append(phi)
        second_order, squared = (first - max(crossed, 0.0)) / 2, SquaredDistance(value, None)
        return Influence(phis[0], phis[1], second_order=second_order, squared=squared)


def _potentials(values: Tensor, mask: Tensor, half: Tensor, moved: Tensor) -> Tensor:
    """Potential (directions, n) at sorted `values` from those of a `half`, which are moved by `moved`."""
    increments = (moved[:, 1:] + moved[:, :-1]) * (half[:, 1:] - half[:, :-1])
    potential = torch.nn.functional.pad(increments.cumsum(dim=1), (1, 0))
    nearest = mask.cumsum(dim=1).sub_(1).clamp_(min=0)  # the next lower value of the half
    slopes = 2 * moved.gather(1, nearest)
    return potential.gather(1, nearest) + slopes * (values - half.gather(1, nearest))


def _drawn(
    side: Tensor, n: int, generator: torch.Generator, device: torch.device
) -> tuple[Blocks | list[Tensor], Tensor | None]:
    """The whole set, or n random rows of a larger one, and their indices."""
    held, rows = held_on(side, device), None
    if len(side) > n:
        rows = torch.randperm(len(side), generator=generator)[:n].sort().values.to(held.device)
    return Blocks(held, device, rows=rows).kept(), rows


def _sorted_projections(blocks: Blocks | list[Tensor], units: Tensor) -> torch.return_types.sort:
    """(directions, n) float64, ascending in each row, with their indices."""
    return torch.cat([units @ block.T for block in blocks], dim=1).sort(dim=1)
