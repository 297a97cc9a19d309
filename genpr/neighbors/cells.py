"""A partition of the rows of a set that tells which of them are too far from a block of rows to matter.

Rows belong to the nearest of a few centres. Two functions of position that never change by more than the
distance moved bound how near a row y can be to a block of rows of one cell a: the distance to the centre of a,
and, for the centre c of the cell of y, the distance to the plane half-way between a and c.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Cells need a distance from every row to every centre.
_MAX_DISTANCES = 2**24
# Far more than all errors together, relative to norms: of float64 distances (their squares are good to 2^-44, so
# the root of a small one to 2^-22), and of the coordinates themselves (`bounds`: below 2^-16).
_MARGIN = 2.0**-14
# Planes between centres that are closer than this, relative to norms, are too uncertain.
_MIN_GAP = 2.0**-10


@dataclass(frozen=True, slots=True)
class Cells:
    """Which centre each row is nearest to.

    Attributes:
        label: (n,) int64; c for rows without usable coordinates.
        sq_distances: (c, n) float64, from every centre to the coordinates of every row.
        own: (n,) float64, the one among them to the row's own centre; zero for the label c.
        gaps: (c + 1, c) float64, distances between centres; zero for the label c.
        norms: (n,) float64, of the coordinates, and of the farthest centre if that is larger.
    """

    label: Tensor
    sq_distances: Tensor
    own: Tensor
    gaps: Tensor
    norms: Tensor

    @classmethod
    def of(cls, coordinates: Tensor, slack: Tensor, centres: Tensor) -> Cells | None:
        """Cells of (n, w) `coordinates`; None where there are no centres."""
        n = len(coordinates)
        centres = centres[: _MAX_DISTANCES // max(1, n)]
        if len(centres) == 0:
            return None
        sq_distances = torch.empty(len(centres), n, dtype=torch.float64, device=coordinates.device)
        norms = torch.empty(n, dtype=torch.float64, device=coordinates.device)
        sq_centres = centres.square().sum(dim=1)
        for start in range(0, n, 8192):
            rows = slice(start, start + 8192)
            some = coordinates[rows].double()
            sq_norms = some.square().sum(dim=1)
            products = centres @ some.T
            sq_distances[:, rows] = (sq_norms + sq_centres[:, None] - 2 * products).clamp_(min=0)
            norms[rows] = sq_norms.clamp_(min=sq_centres.max()).sqrt_()
        own, label = sq_distances.min(dim=0)
        label[slack.isinf()] = len(centres)
        gaps = torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")
        return cls(label, sq_distances, own, torch.cat([gaps, torch.zeros_like(gaps[:1])]), norms)

    def within_reach(self, reach: Tensor, others: Cells, block: Tensor) -> Tensor:
        """Which rows may be within `reach` of a block of `others`: (n,) bool, True wherever that is uncertain.

        Args:
            reach: (n,) float64, distances in the unit of the coordinates.
            others: The cells of another set, of the same centres.
            block: (b,) rows of `others`, all of one label.
        """
        a, count = int(others.label[block[0]]), len(self.sq_distances)
        if a >= count or len(others.sq_distances) != count:
            return torch.ones_like(self.label, dtype=torch.bool)
        norms = torch.maximum(self.norms, others.norms[block].max())
        reach = reach + _MARGIN * norms
        from_a, members = self.sq_distances[a], others.sq_distances[:, block]
        near = from_a <= (reach + members[a].max().sqrt()).square()
        # Twice the gap times the distance to the plane is |y - a|^2 - |y - c|^2, which is at most `extent` for the block.
        extent = (members[a] - members).amax(dim=1)
        extent = torch.cat([extent, extent.new_zeros(1)])[self.label]
        gap = self.gaps[:, a][self.label]
        near &= (from_a - self.own - extent <= 2 * gap * reach) | (gap <= _MIN_GAP * norms)
        return near | (self.label == count)
