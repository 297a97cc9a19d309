"""Score thresholds for the presence of entities in images, calibrated on labeled images.

Each entity gets the threshold with the largest balanced accuracy, the mean of sensitivity and specificity; those with too
few examples share one. Reported rates are cross-validated: each fifth is classified with the threshold of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import DataError

MIN_EXAMPLES = 10  # images with an entity, and images without it, that a separate threshold needs
_FOLDS = 5


@dataclass(frozen=True)
class Calibration:
    """Thresholds of entities; an entity is there if its score is at least its threshold."""

    thresholds: Tensor  # (E,) float64
    is_own: Tensor  # (E,) bool, whether an entity has a separate threshold, not the shared one
    sensitivity: Tensor  # (E,) NaN without images that show the entity
    false_positive_rate: Tensor  # (E,) NaN without images that lack the entity


def calibrate(scores: Tensor, present: Tensor, *, least: int = MIN_EXAMPLES) -> Calibration:
    """Choose a threshold for each entity by scores (n, E) and whether it is there, (n, E) bool.

    Example:
        >>> scores = torch.tensor([[0.1], [0.2], [0.3], [0.6], [0.7], [0.9]])
        >>> presence = calibrate(scores, scores > 0.5, least=2)
        >>> round(float(presence.thresholds[0]), 3), (torch.tensor([[0.5], [0.4]]) >= presence.thresholds).tolist()
        (0.45, [[True], [False]])
    """
    values = scores.cpu().double()
    if not bool(values.isfinite().all()):
        raise DataError("scores hold NaN or infinity", code="bad-scores")
    shared = _threshold(values[present], values[~present])
    if shared is None:
        message = "thresholds cannot be chosen: labeled images with an entity and without it are needed"
        raise DataError(message, code="no-thresholds")
    rows = [_of_entity(values[:, e], present[:, e], least, shared) for e in range(values.shape[1])]
    thresholds, own, hits, false = torch.tensor(rows, dtype=torch.float64).T
    return Calibration(thresholds, own.bool(), hits, false)


def _of_entity(scores: Tensor, there: Tensor, least: int, shared: float) -> tuple[float, bool, float, float]:
    """Threshold of one entity, whether it is separate, and its two cross-validated rates."""
    if min(int(there.sum()), int((~there).sum())) < least:
        return shared, False, *_rates(scores >= shared, there)
    said = torch.zeros_like(there)
    # Every fifth image with the entity, and every fifth without.
    fold = torch.where(there, there.cumsum(0), (~there).cumsum(0)) % _FOLDS
    for k in range(_FOLDS):
        kept = fold != k
        chosen = _threshold(scores[kept & there], scores[kept & ~there])
        said[~kept] = scores[~kept] >= (shared if chosen is None else chosen)
    own = _threshold(scores[there], scores[~there])
    return shared if own is None else own, True, *_rates(said, there)


def _rates(said: Tensor, there: Tensor) -> tuple[float, float]:
    return float(said[there].double().mean()), float(said[~there].double().mean())


def _threshold(positives: Tensor, negatives: Tensor) -> float | None:
    """Midway in the widest of the gaps between scores where the balanced accuracy is largest; None without positive or negative examples."""
    if not len(positives) or not len(negatives):
        return None
    levels = torch.unique(torch.cat([positives, negatives]))
    if len(levels) == 1:
        return float(levels[0])
    # A threshold above levels[i] and not above levels[i + 1] keeps what is at least levels[i + 1].
    hits = len(positives) - torch.searchsorted(positives.sort().values, levels[1:])
    passed = len(negatives) - torch.searchsorted(negatives.sort().values, levels[1:])
    balance = hits / len(positives) - passed / len(negatives)
    best = balance >= balance.max() - 1e-12
    place = int(torch.where(best, levels[1:] - levels[:-1], -1.0).argmax())
    return float((levels[place] + levels[place + 1]) / 2)
