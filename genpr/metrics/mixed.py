"""Two sets in one, in random order: what is arbitrary in a search must not hang on which set comes first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mixed:
    """Images of two sets.

    Attributes:
        features: (n, d).
        is_real: (n,) bool, which set each is of.
        rows: (n,) int64, which row of that set.
    """

    features: Tensor
    is_real: NDArray[np.bool_]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, real: Tensor, fake: Tensor, *, most: int, seed: int) -> Mixed:
        """All images of both sets, of each at most `most`, chosen and ordered at random.

        Args:
            real: (n, d).
            fake: (m, d).
            most: Of each set.
            seed: Of choice and order.
        """
        generator = torch.Generator().manual_seed(seed)
        parts = [torch.randperm(len(side), generator=generator)[:most].sort().values for side in (real, fake)]
        total = sum(map(len, parts))
        # Written in place: there never is a second copy.
        features = torch.empty(
            total, real.shape[1], dtype=torch.promote_types(real.dtype, fake.dtype), device="cpu"
        )
        places = torch.split(torch.randperm(total, generator=generator), [len(part) for part in parts])
        is_real, rows = np.zeros(total, dtype=bool), np.empty(total, dtype=np.int64)
        is_real[places[0].numpy()] = True
        for side, part, place in zip((real, fake), parts, places, strict=True):
            rows[place.numpy()] = part.numpy()
            for own, at in zip(torch.split(part, _BLOCK), torch.split(place, _BLOCK), strict=True):
                features[at] = side[own].to(features.dtype)
        return cls(features, is_real, rows)


_BLOCK = 4096
