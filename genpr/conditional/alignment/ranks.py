"""Image by image: which rank its own prompt has among the others, and which prompt is first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from genpr.conditional.alignment.asked import Asked, Counts
from genpr.metrics.retrieval.similarities import FeaturePairs

_PAIRS = 2**18  # compared at once


@dataclass(frozen=True)
class ImageRank:
    """One image and the prompts that it ranked.

    Attributes:
        row: Its place among the images.
        image: Its name.
        prompt: What was asked for; of several, the one that it ranked first.
        rank: Of that prompt in the pool, from 1; the mean one among equals.
        score: Cosine of the two.
        winner: The prompt of another image that it ranked first.
        winner_score: Cosine of image and winner.
        pool: Prompts that it ranked.
    """

    row: int
    image: str
    prompt: str
    rank: float
    score: float
    winner: str
    winner_score: float
    pool: int

    @property
    def is_failure(self) -> bool:
        """Whether another prompt is ranked before its own, or beside it."""
        return self.rank > 1


def image_ranks(
    names: Sequence[str], asked: Asked, pools: Counts, distractors: int, similarity: FeaturePairs
) -> list[ImageRank]:
    """What each image made of its pool.

    Args:
        names: Of the images.
        asked: What was asked for.
        pools: (n, p), as `unit_pools` draws them.
        distractors: How many columns of them, the last ones, are of other images.
        similarity: Of images and texts.
    """
    step = max(1, _PAIRS // pools.shape[1])
    found: list[ImageRank] = []
    for start in range(0, len(pools), step):
        part = torch.from_numpy(pools[start : start + step])
        rows, columns = (part >= 0).nonzero(as_tuple=True)
        scores = np.full(part.shape, -np.inf)
        scores[rows.numpy(), columns.numpy()] = similarity.exact(start + rows, part[rows, columns]).numpy()
        for row, (pool, score) in enumerate(zip(part.numpy(), scores, strict=True), start):
            found.append(_rank(row, names[row], asked.texts, pool, score, distractors))
    return found


def _rank(
    row: int, name: str, texts: Sequence[str], pool: Counts, scores: NDArray[np.float64], distractors: int
) -> ImageRank:
    own, other = int(scores[:-distractors].argmax()), int(scores[-distractors:].argmax())
    others = scores[-distractors:]
    above, tied = int((others > scores[own]).sum()), int((others == scores[own]).sum())
    return ImageRank(
        row=row,
        image=name,
        prompt=texts[pool[own]],
        rank=above + 1 + tied / 2,
        score=float(scores[own]),
        winner=texts[pool[-distractors:][other]],
        winner_score=float(others[other]),
        pool=int((pool >= 0).sum()),
    )
