"""Similarities of two sets of features: float64 by one definition, and float32 tiles that are near it by a known slack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from genpr.neighbors.pieces import pieces_of
from genpr.neighbors.verify import products_at, sq_distances

Similarity: TypeAlias = Literal["cosine", "inner"]

_ROUNDING = 2.0**-24
_WIDE = 512  # rows at least, beside which columns are worth a tile of their own


class FeaturePairs:
    """Cosines or inner products of rows of two sets.

    A tile holds x . y / (|x| s) in float32, s being |y| for cosines and the largest |y| for inner products. Both factors
    are rounded once, and the product of d terms errs by d u, so it is within 1.1 (d + 4) u of the exact number,
    u = 2^-24, for up to a million features.

    Args:
        left: (n, d) float32.
        right: (m, d) float32, on the same device.
        similarity: "cosine" or "inner".
    """

    def __init__(self, left: Tensor, right: Tensor, similarity: Similarity) -> None:
        self.left, self.right = left, right
        self._is_cosine = similarity == "cosine"
        self._left_norm, self._right_norm = _norms(left), _norms(right)
        self._scale = torch.ones_like(self._right_norm) * self._right_norm.max()
        if self._is_cosine:
            self._scale = self._right_norm
        self.slack = 1.1 * (left.shape[1] + 4) * _ROUNDING

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.left.device

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Similarities of rows `i` (p,) and `j` (p,): (p,) float64."""
        products = products_at(self.left, self.right, i, j)
        return products / self._left_norm[i] / self._right_norm[j] if self._is_cosine else products

    def in_tile_units(self, i: Tensor, similarity: Tensor) -> Tensor:
        """Similarities (p,) of rows `i` as a tile has them."""
        if self._is_cosine:
            return similarity
        unit = self._left_norm[i] * self._scale[0]
        return torch.where(unit > 0, similarity / unit, 0.0)

    def tiles(self, budget: int) -> Iterator[tuple[slice, int, Tensor]]:
        """All pairs in tiles: the rows, the first column, and values (b, w) float32.

        Args:
            budget: Bytes that a tile and what it is made of may take.
        """
        n, m, d = len(self.left), len(self.right), self.left.shape[1]
        most_rows = max(1, budget // (12 * d))
        columns = max(1, min(m, most_rows, budget // (8 * min(n, _WIDE))))
        rows = max(1, min(n, most_rows, budget // (8 * columns)))
        for first in range(0, m, columns):
            right = _scaled(self.right[first : first + columns], self._scale[first : first + columns]).T
            for start in range(0, n, rows):
                chunk = slice(start, min(start + rows, n))
                yield chunk, first, _scaled(self.left[chunk], self._left_norm[chunk]) @ right


def _norms(features: Tensor) -> Tensor:
    """(n,) float64; numpy's roots are rounded correctly, torch's are an ulp off here and there."""
    zero = features.new_zeros(1, features.shape[1])
    sq = torch.cat([sq_distances(features[piece], zero) for piece in pieces_of(features)])
    return torch.from_numpy(np.sqrt(sq.cpu().numpy())).to(features.device)


def _scaled(rows: Tensor, by: Tensor) -> Tensor:
    """Rows divided by a number each, rounded once; zeros stay."""
    return (rows.double() / torch.where(by > 0, by, 1.0)[:, None]).float()
