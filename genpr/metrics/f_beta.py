"""F-scores of precision and recall as rankings name them: `f1`, `f0.5`, `f2`.

F-beta = (1 + beta^2) P R / (beta^2 P + R), in which recall counts beta times as much (van Rijsbergen 1979, "Information
Retrieval"); 0 where both are 0.

Importing this module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from genpr.errors import UsageError
from genpr.metrics.ball_metrics import precision, recall

if TYPE_CHECKING:
    from genpr.metrics.uncertainty import Resampled

F_SCORE_METRICS = (precision.name, recall.name)
"""The two metrics that an F-score combines, and the two axes on which generators trade off."""

_NAME = re.compile(r"f(\d+(?:\.\d+)?)", re.ASCII)
_MAX_BETA = 1e6  # recall alone counts long before


def beta_of(name: str) -> float | None:
    """The beta that `f0.5` names; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    beta = float(match[1])
    if not 0 < beta <= _MAX_BETA:
        raise UsageError(f"{name}: beta must be positive and at most {_MAX_BETA:,.0f}", code="bad-beta")
    return beta


def f_beta(precision: float, recall: float, beta: float = 1.0) -> float:
    """The F-score of one pair of values."""
    if not beta > 0:
        raise UsageError(f"beta must be positive, not {beta!r}", code="bad-beta")
    if precision == recall == 0:
        return 0.0
    weight = beta**2
    return (1 + weight) * precision * recall / (weight * precision + recall)


def with_f1(values: Mapping[str, float]) -> dict[str, float]:
    """Metric values by name, and their F-score with beta = 1 as "f1" if precision and recall are among them."""
    if not values.keys() >= {*F_SCORE_METRICS}:
        return {**values}
    return {**values, "f1": f_beta(*(values[name] for name in F_SCORE_METRICS))}


def resampled_f_beta(precision: Resampled, recall: Resampled, beta: float) -> Resampled:
    """The F-score of two metrics of the same halves: each replicate is the F-score of this half's pair."""
    import numpy as np
    import torch

    if len(precision.replicates) != len(recall.replicates):
        raise UsageError("an F-score needs precision and recall of the same halves", code="bad-option")
    p, r = np.asarray(precision.replicates), np.asarray(recall.replicates)
    below = beta**2 * p + r
    replicates = np.divide((1 + beta**2) * p * r, below, out=np.zeros(p.shape), where=below > 0)
    return replace(
        precision,
        value=f_beta(precision.value, recall.value, beta),
        replicates=torch.from_numpy(replicates),
        n=None if precision.n is None or recall.n is None else min(precision.n, recall.n),
    )
