"""Intervals of numbers over units that are drawn one by one: fakes, queries, prompts with all of their images.

The halves are those of `genpr.metrics.uncertainty`, which says why complementary ones are compared; for a mean their
differences give the usual standard error, for ratios and averages over classes that of what is really computed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.neighbors.halves import Halves, unpacked

N_HALVES = 100
LEAST_UNITS = 10
"""Of fewer, halves say nothing."""

_MOST_WEIGHTS = 2**22  # held at once
_STREAM = 2  # those of reals and fakes are other ones


def halved(statistic: Callable[[Tensor], Tensor], n: int, *, seed: int = 0) -> Tensor:
    """A statistic of 100 halves of n units: (100,) float64, complementary ones side by side.

    Args:
        statistic: Turns weights (B, n) float64, 1 where a unit is in the half and 0 elsewhere, into (B,) values.
        n: Units, at least 10.
        seed: Chooses the halves.

    Raises:
        UsageError: There are too few units ("too-few-units").

    Example:
        >>> values = torch.arange(20.0, dtype=torch.float64)
        >>> means = halved(lambda weights: weights @ values / weights.sum(dim=1), 20)
        >>> means.shape, bool((means[::2] + means[1::2] == 19).all())
        (torch.Size([100]), True)
    """
    if n < LEAST_UNITS:
        raise UsageError(f"halves need at least {LEAST_UNITS} units, not {n}", code="too-few-units")
    halves = Halves.drawn(n, seed=seed, stream=_STREAM, count=N_HALVES, device=torch.device("cpu"))
    member = unpacked(halves.member)[:, :N_HALVES]
    at_once = max(1, _MOST_WEIGHTS // n)
    parts = torch.split(member.T, at_once)
    return torch.cat([statistic(part.double()).double() for part in parts])
