"""Inception Score: are predictions confident each, and varied together?

References:
    Salimans et al. 2016, "Improved Techniques for Training GANs".
    Barratt and Sharma 2018, "A Note on the Inception Score" (what it cannot tell).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError, UsageError
from genpr.validation import Features, check_count, check_features, check_two_rows, choose_device

_BLOCK_ELEMENTS = 2**22
_SUM_TOLERANCE = 1e-3  # what float16 probabilities of 1000 classes can be off by


class InceptionScore(NamedTuple):
    """Mean and standard deviation over the splits."""

    mean: float
    std: float


def inception_score(
    probabilities: Features,
    *,
    splits: int = 10,
    split_size: int | None = None,
    seed: int | None = 2020,
    device: str | torch.device = "auto",
) -> InceptionScore:
    """Inception Score exp(mean KL(p(y|x) || p(y))), of each split of the images on its own, then averaged.

    The defaults are those of torch-fidelity: rows are shuffled by `numpy.random.RandomState(seed).permutation(n)`,
    then cut into 10 parts from i * n // 10 to (i + 1) * n // 10. With `split_size=5000, seed=None` it is the score of
    guided-diffusion (ADM): parts of 5000 images in the order given, the last one possibly shorter.

    Args:
        probabilities: (n, classes) softmax outputs, n >= 2; rows sum to 1.
        splits: Number of parts, at most n. The score grows with the images in a part.
        split_size: Images in a part; then `splits` does not count.
        seed: Of the shuffling, below 2^32; None leaves the order as it is.
        device: "auto" is where the tensor is if that is a GPU, else the best device here.

    Returns:
        Mean and standard deviation (over the number of parts, not one less), in float64; between 1 and the number of
        classes.

    Raises:
        FeatureError: Malformed, non-finite, too few rows, or not probabilities ("not-probabilities").
        UsageError: splits, split_size or seed is impossible.

    Example:
        >>> import numpy as np
        >>> certain_and_varied = np.eye(4).repeat(25, axis=0)
        >>> round(inception_score(certain_and_varied, splits=1).mean, 9)
        4.0
        >>> inception_score(np.full((100, 4), 0.25)).mean
        1.0
    """
    parts = _Parts.checked(probabilities, "probabilities", splits, split_size, seed)
    _check_probabilities(probabilities)
    return parts.score(probabilities, lambda block: block, choose_device(probabilities, device))


def inception_score_of_logits(
    logits: Features,
    *,
    splits: int = 10,
    split_size: int | None = None,
    seed: int | None = 2020,
    device: str | torch.device = "auto",
) -> InceptionScore:
    """`inception_score` of the softmax of (n, classes) logits, taken in float64 a block at a time.

    Arguments, result and errors are those of `inception_score`.

    Example:
        >>> import numpy as np
        >>> logits = 50 * np.eye(4).repeat(25, axis=0)
        >>> round(inception_score_of_logits(logits, splits=1).mean, 9)
        4.0
    """
    parts = _Parts.checked(logits, "logits", splits, split_size, seed)
    return parts.score(logits, lambda block: block.softmax(dim=1), choose_device(logits, device))


class _Parts(NamedTuple):
    """The images in the order in which they are cut, and the cuts."""

    order: Tensor
    bounds: list[tuple[int, int]]

    @classmethod
    def checked(cls, rows: Features, name: str, splits: object, split_size: object, seed: object) -> _Parts:
        check_two_rows(check_features(rows, name), name)
        n = len(rows)
        if split_size is None:
            count = check_count(splits, "splits", least=1)
            if count > n:
                raise UsageError(
                    f"{n} images cannot be cut into {count} splits; use fewer", code="bad-option"
                )
            bounds = [(i * n // count, (i + 1) * n // count) for i in range(count)]
        else:
            size = check_count(split_size, "split_size", least=1)
            bounds = [(start, min(start + size, n)) for start in range(0, n, size)]
        if seed is None:
            return cls(torch.arange(n), bounds)
        checked_seed = check_count(seed, "seed", least=0, most=2**32 - 1)
        rng = np.random.RandomState(checked_seed)
        return cls(torch.from_numpy(rng.permutation(n)), bounds)

    def score(
        self, rows: Features, to_probabilities: Callable[[Tensor], Tensor], device: torch.device
    ) -> InceptionScore:
        scores = []
        for start, stop in self.bounds:
            own_entropies, total = 0.0, torch.zeros(rows.shape[1], dtype=torch.float64, device=device)
            for block in _blocks(rows, self.order[start:stop], device):
                p = to_probabilities(block)
                own_entropies += float(torch.special.entr(p).sum())  # of 0 it is 0
                total += p.sum(dim=0)
            # The mean of KL(p || q), q the mean of the p, is the entropy of q less the mean entropy of the p.
            count = stop - start
            divergence = float(torch.special.entr(total / count).sum()) - own_entropies / count
            scores.append(np.exp(max(0.0, divergence)))
        return InceptionScore(float(np.mean(scores)), float(np.std(scores)))


def _blocks(rows: Features, order: Tensor, device: torch.device) -> Iterator[Tensor]:
    """Rows of any real type at the indices `order`, as float64 blocks: float32 would cost half of the digits."""
    step = max(1, _BLOCK_ELEMENTS // rows.shape[1])
    for start in range(0, len(order), step):
        at = order[start : start + step]
        if isinstance(rows, Tensor):
            yield rows.detach()[at].to(device, torch.float64)
        else:
            yield torch.from_numpy(rows[at.numpy()].astype(np.float64)).to(device)


def _check_probabilities(probabilities: Features) -> None:
    start = 0
    for block in _blocks(probabilities, torch.arange(len(probabilities)), torch.device("cpu")):
        sums, least = block.sum(dim=1), block.amin(dim=1)
        bad = (least < 0) | ((sums - 1).abs() > _SUM_TOLERANCE)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise FeatureError(
                f"each row of probabilities must be at least 0 and sum to 1, but row {start + row} (counted from 0) has "
                f"the least value {float(least[row]):.6g} and the sum {float(sums[row]):.6g}; are these logits? then use "
                "inception_score_of_logits",
                code="not-probabilities",
            )
        start += len(block)
