"""Scores of the fakes alone: Inception Score and Vendi score.

References:
    Salimans et al. 2016, "Improved Techniques for Training GANs".
    Barratt and Sharma 2018, "A Note on the Inception Score" (its limitations).
    Friedman and Dieng 2023, "The Vendi Score: A Diversity Evaluation Metric for Machine Learning".
    Stein et al. 2023, "Exposing Flaws of Generative Model Evaluation Metrics" (with the cosine kernel of features).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError, UsageError
from genpr.metrics.blocks import Blocks, check_no_zero_rows, held_on
from genpr.metrics.influence import Influence
from genpr.validation import Features, check_count, check_features, check_rows, choose_device, entry_point

_BLOCK_ELEMENTS = 2**22
_PAIRS = 1024  # of images of a block
_TINY = 1e-300  # a class that no image has
_SUM_TOLERANCE = 1e-3  # maximum error of the sum of float16 probabilities of 1000 classes


class InceptionScore(NamedTuple):
    """Mean and standard deviation over the splits."""

    mean: float
    std: float


@entry_point
def inception_score(
    probabilities: Features,
    *,
    splits: int = 10,
    split_size: int | None = None,
    seed: int | None = 2020,
    device: str | torch.device = "auto",
) -> InceptionScore:
    """Inception Score exp(mean KL(p(y|x) || p(y))), of each split of the images, averaged over splits.

    The defaults are those of torch-fidelity: rows are shuffled by `numpy.random.RandomState(seed).permutation(n)`,
    then cut into 10 parts from i * n // 10 to (i + 1) * n // 10. With `split_size=5000, seed=None` it is the score of
    guided-diffusion (ADM): parts of 5000 images in the order given, the last one possibly shorter.

    Args:
        probabilities: (n, classes) softmax outputs, n >= 2; rows sum to 1.
        splits: Number of parts, at most n. The score grows with the images in a part.
        split_size: Images in a part, instead of `splits`.
        seed: Seed of the shuffling, below 2^32; None keeps the order.
        device: "auto" is the GPU that holds the input, else the best device available.

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
    return inception_score_influence(
        probabilities, splits=splits, split_size=split_size, seed=seed, device=device, has_influence=False
    )[0]


def inception_score_influence(
    probabilities: Features,
    *,
    splits: int = 10,
    split_size: int | None = None,
    seed: int | None = 2020,
    device: str | torch.device = "auto",
    has_influence: bool = True,
) -> tuple[InceptionScore, Influence | None]:
    """`inception_score` with the influence of each image; None where a part has fewer than 2 images.

    A part's divergence moves by KL(p_i || q) less the mean of that. Its second order is -1/2 of the mean over two images of
    h_ij = sum (p_i - q) (p_j - q) / q, whose mean square is estimated from random pairs. Half of the term of an image with itself,
    h_ii / n, counts (see `genpr.metrics.frechet`).
    """
    check_rows(check_features(probabilities, "probabilities"), "probabilities", k=1)
    n = len(probabilities)
    if split_size is None:
        count = check_count(splits, "splits", minimum=1)
        if count > n:
            raise UsageError(f"{n} images cannot be cut into {count} splits; use fewer", code="bad-option")
        bounds = [(i * n // count, (i + 1) * n // count) for i in range(count)]
    else:
        size = check_count(split_size, "split_size", minimum=1)
        bounds = [(start, min(start + size, n)) for start in range(0, n, size)]
    order = torch.arange(n)
    if seed is not None:
        rng = np.random.RandomState(check_count(seed, "seed", minimum=0, maximum=2**32 - 1))
        order = torch.from_numpy(rng.permutation(n))
    _check_probabilities(probabilities)
    order = order.to(probabilities.device) if isinstance(probabilities, Tensor) else order
    device = choose_device(probabilities, device)
    seen: list[_PartInfluence] | None = [] if has_influence else None
    parts = [_divergence(probabilities, order[start:stop], device, seen) for start, stop in bounds]
    scores = [float(np.exp(max(0.0, divergence))) for divergence in torch.stack(parts).tolist()]
    score = InceptionScore(float(np.mean(scores)), float(np.std(scores)))
    if seen is None or min(len(part.rows) for part in seen) < 2:
        return score, None
    count = len(seen)
    phi, second_order = torch.zeros(n, dtype=torch.float64, device=seen[0].moves.device), 0.0
    for part in seen:
        size, value = len(part.rows), float(part.divergence.exp())
        phi[part.rows.to(phi.device)] = part.moves * (value * n / (count * size))
        second_order += (value / (count * size)) ** 2 * float(part.square) / 2
    return score, Influence(None, phi, second_order=second_order)


class _PartInfluence(NamedTuple):
    """Contribution of a part of the images to the influence."""

    rows: Tensor
    moves: Tensor  # (rows,) of the divergence, of mean 0
    divergence: Tensor
    square: Tensor  # mean square of the second order of two images


def _divergence(
    probabilities: Features, rows: Tensor, device: torch.device, seen: list[_PartInfluence] | None
) -> Tensor:
    """Divergence of one part: the mean of KL(p || q), q the mean of the p, is the entropy of q less the mean entropy of the p."""
    total = torch.zeros(probabilities.shape[1], dtype=torch.float64, device=device)
    own_entropies, of_rows = torch.zeros_like(total[0]), []
    for block in _blocks(probabilities, rows, device):
        entropies = torch.special.entr(block)  # of 0 it is 0
        own_entropies += entropies.sum()
        total += block.sum(dim=0)
        if seen is not None:
            of_rows.append(entropies.sum(dim=1))
    divergence: Tensor = torch.special.entr(total / len(rows)).sum() - own_entropies / len(rows)
    if seen is not None:
        again = _blocks(probabilities, rows, device)
        seen.append(_part_influence(again, rows, total / len(rows), torch.cat(of_rows), divergence))
    return divergence


def _part_influence(
    blocks: Iterable[Tensor], rows: Tensor, mean: Tensor, entropies: Tensor, divergence: Tensor
) -> _PartInfluence:
    shares, moved, products = mean.clamp(min=_TINY), [], []
    generator = torch.Generator().manual_seed(0)
    for block in blocks:
        with_itself = block.square() @ shares.reciprocal()
        moved.append(with_itself / (2 * len(rows)) - block @ shares.log())
        # Random, since images may be in the order of their classes.
        some = torch.randperm(len(block), generator=generator)[:_PAIRS].to(block.device)
        products.append(((block[some] / shares) * block[some.roll(1)]).sum(dim=1) - 1)
    moves = torch.cat(moved) - entropies
    return _PartInfluence(rows, moves - moves.mean(), divergence, torch.cat(products).square().mean())


def _blocks(rows: Features, order: Tensor, device: torch.device) -> Iterator[Tensor]:
    """Rows of any real type at the indices `order`, as float64 blocks: float32 would cost half of the digits."""
    for at in torch.split(order, max(1, _BLOCK_ELEMENTS // rows.shape[1])):
        if isinstance(rows, Tensor):
            block = rows.detach()[at]
        else:
            block = torch.from_numpy(rows[at.numpy()].astype(np.float64))
        yield block.to(device).double()


def _check_probabilities(probabilities: Features) -> None:
    where = probabilities.device if isinstance(probabilities, Tensor) else torch.device("cpu")
    for block in _blocks(probabilities, torch.arange(len(probabilities), device=where), where):
        if (block < 0).any() or ((block.sum(dim=1) - 1).abs() > _SUM_TOLERANCE).any():
            text = "each row of probabilities must be at least 0 and sum to 1; expected probabilities, not logits"
            raise FeatureError(text, code="not-probabilities")


@entry_point
def vendi_score(features: Features, *, device: str | torch.device = "auto") -> float:
    """Vendi score with the cosine of two rows as their similarity.

    It is exp(-sum l log l) over the eigenvalues l of K / n, K the (n, n) cosines. X' X / n of the normalized rows X
    has the same eigenvalues except for zeros, which do not count, so the smaller of the two is used and no (n, n)
    array exists unless n <= d. The score grows with n, so compare only equal numbers of images.

    Args:
        features: (n, d), n >= 2.
        device: "auto" is the GPU that holds the input, else the best device available.

    Returns:
        Between 1, all rows point the same way, and min(n, d), all are orthogonal.

    Raises:
        FeatureError: Malformed, non-finite, too few rows, or a row of zeros ("zero-row").

    Example:
        >>> import numpy as np
        >>> round(vendi_score(np.eye(3).repeat(10, axis=0)), 9)
        3.0
    """
    checked = check_features(features, "features")
    check_rows(checked, "features", k=1)
    where = choose_device(features, device)
    checked = held_on(checked, where)
    check_no_zero_rows(checked, "features")
    n, d = checked.shape
    blocks = Blocks(checked, where, is_unit=True)
    if n <= d:
        rows = torch.cat(list(blocks))
        return _effective_number(torch.linalg.eigvalsh(rows @ rows.T / n))
    gram = torch.zeros(d, d, dtype=torch.float64, device=where)
    for block in blocks:
        gram.addmm_(block.T, block)
    return _effective_number(torch.linalg.eigvalsh(gram / n))


def _effective_number(eigenvalues: Tensor) -> float:
    """The exponential of their entropy, 0 log 0 being 0; they sum to 1."""
    return math.exp(float(torch.special.entr(eigenvalues.clamp(min=0)).sum()))
