"""Vendi score: the effective number of different images in one set, without any reference.

References:
    Friedman and Dieng 2023, "The Vendi Score: A Diversity Evaluation Metric for Machine Learning".
    Stein et al. 2023, "Exposing Flaws of Generative Model Evaluation Metrics" (with the cosine kernel of features).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genpr.metrics.blocks import check_no_zero_rows, unit_blocks
from genpr.validation import Features, check_features, check_two_rows, choose_device


def vendi_score(features: Features, *, device: str | torch.device = "auto") -> float:
    """Vendi score with the cosine of two rows as their similarity.

    It is exp(-sum l log l) over the eigenvalues l of K / n, K the (n, n) cosines. X' X / n of the normalized rows X
    has the same eigenvalues except for zeros, which do not count, so the smaller of the two is used and no (n, n)
    array exists unless n <= d. The score grows with n, so compare equal numbers only.

    Args:
        features: (n, d), n >= 2.
        device: "auto" is where the tensor is if that is a GPU, else the best device here.

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
    check_two_rows(checked, "features")
    check_no_zero_rows(checked, "features")
    where = choose_device(features, device)
    n, d = checked.shape
    if n <= d:
        rows = torch.cat(list(unit_blocks(checked, where)))
        return _effective_number(torch.linalg.eigvalsh(rows @ rows.T / n))
    gram = torch.zeros(d, d, dtype=torch.float64, device=where)
    for block in unit_blocks(checked, where):
        gram.addmm_(block.T, block)
    return _effective_number(torch.linalg.eigvalsh(gram / n))


def _effective_number(eigenvalues: Tensor) -> float:
    """The exponential of their entropy, 0 log 0 being 0; they sum to 1."""
    return math.exp(float(torch.special.entr(eigenvalues.clamp(min=0)).sum()))
