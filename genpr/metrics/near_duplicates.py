"""Near-duplicates: rows whose nearest neighbors in their own set are copies of one image, slightly changed.

Frames of one video shot, or re-encoded and augmented copies of one photograph, lie far closer to each other than
independent draws do. Their balls end inside the group, so few images of the other set are counted in them, and the
nulls, which hold for independent draws, do not account for that.

A row belongs to a group of near-duplicates if its first j neighbors are within a distance that independent draws reach
with a probability of .003, neighbor j + 1 is more than twice as far as neighbor j, and so is the nearest row of the
other set. The distance follows from the distance of neighbor 64 and the intrinsic dimension between neighbors 32 and 64,
since k (r_j / r_k)^d of independent draws is near a Gamma(j) variable. A group that the other set shares lowers no metric:
where rows of the other set lie in such groups as often as they would by chance, the groups are clusters.

References:
    Levina and Bickel 2004, "Maximum Likelihood Estimation of Intrinsic Dimension" (the local Poisson process).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.neighbors.engine import Engine
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import nearest_between

_ROWS = 128  # of each set that are examined
_NEIGHBORS = 64  # of each row; groups are looked for in the first half of them
_LOCAL = 5  # at most one in so many rows of a set is a neighbor
_CHANCE = 0.003  # that neighbor j of a row is as close among independent draws
_GAP = 2.0  # times as far is the next neighbor, and the other set
_PLACES = 3  # nearest neighbors that are weighed, the k of precision and recall
_LEAST_WEIGHT = 0.1
_LEAST_ROWS = 5


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Groups of near-duplicates in one set, estimated from a sample of its rows.

    Attributes:
        share: Share of the rows that belong to a group.
        size: Median number of rows of their groups.
        weight: Share of the three nearest neighbors that near-duplicates occupy, on average over all rows; metrics with
            k = 3 lose about this share.
        weight_unequal: The same, without groups of rows that are exactly equal.
        is_shared: Whether the other set has rows in these groups, as independent draws would.
        rows: Number of rows that were found in a group.
    """

    share: float
    size: int
    weight: float
    weight_unequal: float
    is_shared: bool
    rows: int

    def matters(self, *, equal: bool = True) -> bool:
        """Whether metrics are lower by about a tenth or more; `equal` includes groups of rows that are exactly equal."""
        weight = self.weight if equal else self.weight_unequal
        return weight >= _LEAST_WEIGHT and self.rows >= _LEAST_ROWS and not self.is_shared


def near_duplicates(own: Placed, other: Placed, *, engine: Engine) -> NearDuplicates | None:
    """Groups of near-duplicates among the rows of a set; None for fewer than ten rows.

    Args:
        own: (n, d) the set.
        other: (m, d) the set that it is compared with, in the same frame.
        engine: What proposes candidate pairs.
    """
    n, m = len(own), len(other)
    count = min(_NEIGHBORS, n // _LOCAL)
    if count < 2:
        return None
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:_ROWS].sort().values
    queries = own.frame.place(own.features[rows.to(own.device)])
    sq = nearest_between(queries, own, count + 1, engine=engine)[1][
        :, 1:
    ].cpu()  # the first is the row itself
    nearest_other = nearest_between(queries, other, 1, engine=engine)[1][:, 0].sqrt().cpu()
    radii = sq.sqrt()
    half = count // 2
    order = torch.arange(1, half + 1)
    reach = radii[:, -1:] * _chance_ratios(radii, half)
    ends = (radii[:, :half] <= reach) & (radii[:, 1 : half + 1] > _GAP * radii[:, :half])
    mates = (ends * order).amax(dim=1)
    extent = radii.gather(1, (mates - 1).clamp(min=0)[:, None])[:, 0]
    grouped = mates > 0
    alone = grouped & (nearest_other > _GAP * extent)
    near_others = nearest_other <= torch.where(grouped, _GAP * extent, reach[:, 0])
    by_chance = -torch.expm1(-mates * (m / n))
    places = mates.clamp(max=_PLACES) * alone / _PLACES
    return NearDuplicates(
        share=float(alone.double().mean()),
        size=int(mates[alone].median()) + 1 if alone.any() else 0,
        weight=float(places.mean()),
        weight_unequal=float((places * (extent > 0)).mean()),
        is_shared=float(near_others.double().mean()) >= float(by_chance.mean()) / 2,
        rows=int(alone.sum()),
    )


def _chance_ratios(radii: Tensor, half: int) -> Tensor:
    """Distance of neighbor j over that of the last one that independent draws stay below with `_CHANCE`, (half,)."""
    from scipy.special import digamma, gammaincinv

    count = radii.shape[1]
    growth = (radii[:, -1] / radii[:, half - 1]).log()
    growth = growth[growth.isfinite() & (growth > 0)]
    slope = float(growth.median()) / float(digamma(count) - digamma(half)) if len(growth) else 0.0
    within = torch.from_numpy(gammaincinv(range(1, half + 1), _CHANCE)) / count
    return (within.log() * slope).exp().clamp(max=1 / _GAP)
