"""Monge Inception Distance: the difference between the sorted projections of two feature sets onto random directions.

    MIND = 3 d * mean over directions u and ranks j of (sort(X u)_j - sort(Y u)_j)^2

X and Y hold d features of equally many images. The mean is the squared sliced 2-Wasserstein distance; by the factor, a pure
shift by v has about 3 |v|^2.

References:
    Q. Berthet et al., MIND: Monge Inception Distance for Generative Models Evaluation, 2026, arXiv:2605.06797.
    Random numbers as in toshas/torch-fidelity, metric_mind.py, and in fd_evaluator of End2End-Diffusion/diffusionbench-evals.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from genpr.metrics.blocks import Blocks, held_on
from genpr.metrics.real_manifold import checked_pair
from genpr.validation import Features, check_count, choose_device, entry_point

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
        device: "auto" is the GPU that holds the tensors, else the best device here.

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
    count = check_count(directions, "directions", minimum=1)
    generator = torch.Generator().manual_seed(check_count(seed, "seed", minimum=0, maximum=2**32 - 1))
    (real, fake), where = checked_pair(real, fake, k=1), choose_device(real, device)
    n, d = min(len(real), len(fake)), real.shape[1]
    fakes, reals = (_drawn(side, n, generator, where) for side in (fake, real))
    normals = torch.randn(count, d, generator=generator, dtype=torch.float32, device="cpu")
    units = F.normalize(normals, dim=1, eps=1e-12).to(where, torch.float64)
    total = torch.zeros((), dtype=torch.float64, device=where)
    for part in torch.split(units, max(1, _PROJECTIONS // n)):
        differences = _sorted_projections(reals, part).sub_(_sorted_projections(fakes, part))
        total += differences.square_().sum(dim=1).sum()
    return 3 * d * float(total) / (n * count)


def _drawn(side: Tensor, n: int, generator: torch.Generator, device: torch.device) -> Blocks | list[Tensor]:
    """The whole set, or n random rows of a larger one."""
    held, rows = held_on(side, device), None
    if len(side) > n:
        rows = torch.randperm(len(side), generator=generator)[:n].sort().values.to(held.device)
    return Blocks(held, device, rows=rows).kept()


def _sorted_projections(blocks: Blocks | list[Tensor], units: Tensor) -> Tensor:
    """(directions, n) float64, ascending in each row."""
    return torch.cat([units @ block.T for block in blocks], dim=1).sort(dim=1).values
