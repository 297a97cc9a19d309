"""From scores of entities in images to yes or no: a threshold for each entity, calibrated on images of which it is known.

A cosine similarity of .25 may be a cat and no bench: each text has similarities of its own. So each entity gets the
threshold that tells images with it best from those without, by the mean of the two rates of being right (balanced
accuracy); or the one that a stated share of images without it passes. Entities with too few examples share the threshold
that is best for all scores together, and are named.

How good the thresholds are is measured on images that they were not chosen on: each fifth is judged by thresholds of the
others. In-sample, they would look better than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError

LEAST_EXAMPLES = 10
"""Images with an entity, and images without it, that a threshold of its own needs."""

_FOLDS = 5
Scores = Tensor | NDArray[np.floating]


@dataclass(frozen=True)
class Calibration:
    """Thresholds of entities.

    Attributes:
        thresholds: (E,) float64; an entity is there if its score is at least that.
        is_own: (E,) bool, whether an entity has a threshold of its own, or the shared one.
        shared: The threshold for all scores together.
        sensitivity: (E,) share of images with the entity that were told so, on images that the threshold was not chosen on;
            NaN where there are no such images.
        false_positive_rate: (E,) the same of images without it.
        n_with: (E,) int64, images with each entity.
        n_without: (E,) int64, images without it.
    """

    thresholds: Tensor
    is_own: Tensor
    shared: float
    sensitivity: Tensor
    false_positive_rate: Tensor
    n_with: Tensor
    n_without: Tensor

    def present(self, scores: Scores) -> Tensor:
        """Which entities are there.

        Args:
            scores: (n, E).

        Returns:
            (n, E) bool.

        Raises:
            DataError: They are of other entities, or not finite ("bad-scores").
        """
        checked = _checked(scores, "scores")
        if checked.shape[1] != len(self.thresholds):
            raise DataError(
                f"scores of {checked.shape[1]} entities, and thresholds of {len(self.thresholds)}",
                code="bad-scores",
            )
        return checked >= self.thresholds


def calibrate(
    scores: Scores,
    present: Tensor | NDArray[np.bool_] | None,
    *,
    false_positive_rate: float | None = None,
    least: int = LEAST_EXAMPLES,
) -> Calibration:
    """Choose a threshold for each entity.

    Args:
        scores: (n, E) of each entity in each image, such as cosines of CLIP.
        present: (n, E) bool, whether it is there: from labels, or from the prompts that the images were made from; None if
            none of the entities is in any of these images.
        false_positive_rate: Share of images without an entity that may pass; None for the largest balanced accuracy, which
            needs images with it, too.
        least: Images with and without an entity that a threshold of its own needs.

    Raises:
        UsageError: An option is impossible ("bad-option").
        DataError: The two do not fit, are not finite, or there is nothing to choose a threshold on ("bad-scores").

    Example:
        >>> scores = torch.tensor([[0.1], [0.2], [0.3], [0.6], [0.7], [0.9]])
        >>> found = calibrate(scores, scores > 0.5, least=2)
        >>> round(float(found.thresholds[0]), 3), found.present(torch.tensor([[0.5], [0.4]])).tolist()
        (0.45, [[True], [False]])
    """
    if false_positive_rate is not None and not 0 <= false_positive_rate < 1:
        raise UsageError(
            f"false_positive_rate is a share below 1, not {false_positive_rate}", code="bad-option"
        )
    if present is None and false_positive_rate is None:
        raise UsageError(
            "images without any of the entities give a threshold only for a false_positive_rate; give it, or say in which "
            "images the entities are",
            code="bad-option",
        )
    values = _checked(scores, "scores")
    there = (
        torch.zeros(values.shape, dtype=torch.bool) if present is None else torch.as_tensor(present).bool()
    )
    if there.shape != values.shape:
        raise DataError(
            f"scores of shape {tuple(values.shape)} and presence of shape {tuple(there.shape)}; needed is one for each image "
            "and entity",
            code="bad-scores",
        )
    rate = false_positive_rate
    shared = _threshold(values[there], values[~there], rate)
    if shared is None:
        needed = (
            "images without an entity" if rate is not None else "images with an entity, and images without"
        )
        raise DataError(f"to choose a threshold on, {needed} are needed; there are none", code="bad-scores")
    rows = [_of_entity(values[:, e], there[:, e], rate, least, shared) for e in range(values.shape[1])]
    thresholds, own, hits, false = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Calibration(
        thresholds=torch.tensor(thresholds, dtype=torch.float64),
        is_own=torch.tensor(own, dtype=torch.bool),
        shared=shared,
        sensitivity=torch.tensor(hits, dtype=torch.float64),
        false_positive_rate=torch.tensor(false, dtype=torch.float64),
        n_with=there.sum(dim=0),
        n_without=(~there).sum(dim=0),
    )


@dataclass(frozen=True)
class HalfFitted:
    """Entities in images whose thresholds were chosen on the other half of the same images.

    Attributes:
        present: (n, E) bool.
        calibrations: Chosen on the second half, for the first; and the other way.
    """

    present: Tensor
    calibrations: tuple[Calibration, Calibration]


def present_by_halves(
    scores: Scores,
    asked: Tensor | NDArray[np.bool_],
    is_second: Tensor | NDArray[np.bool_],
    *,
    least: int = LEAST_EXAMPLES,
) -> HalfFitted:
    """Judge each half of the images by thresholds of the other; thresholds find more than is there where they were chosen.

    Args:
        scores: (n, E) of each entity in each image.
        asked: (n, E) bool, which entities images were asked to show: the best guess of what they do show.
        is_second: (n,) bool, the half of each image; images of one prompt belong in one half.
        least: As in `calibrate`.

    Raises:
        DataError: As `calibrate`, in either half.

    Example:
        >>> scores = torch.tensor([[0.1], [0.3], [0.5], [0.9]])
        >>> found = present_by_halves(scores, scores > 0.4, torch.tensor([False, True, False, True]), least=1)
        >>> [round(float(each.thresholds[0]), 3) for each in found.calibrations], found.present[:, 0].tolist()
        ([0.6, 0.3], [False, True, False, True])
    """
    values, there = _checked(scores, "scores"), torch.as_tensor(asked).bool()
    second = torch.as_tensor(is_second).bool()
    for_first = calibrate(values[second], there[second], least=least)
    for_second = calibrate(values[~second], there[~second], least=least)
    present = torch.where(second[:, None], for_second.present(values), for_first.present(values))
    return HalfFitted(present, (for_first, for_second))


def zero_shot_scores(images: Scores, texts: Scores) -> Tensor:
    """Cosines of images and texts.

    Args:
        images: (n, d) embeddings.
        texts: (E, d) embeddings in the same space.

    Returns:
        (n, E) float64.

    Raises:
        DataError: They are of different length, not finite, or one of them is zero ("bad-scores").
    """
    a, b = _checked(images, "embeddings of images"), _checked(texts, "embeddings of texts")
    if a.shape[1] != b.shape[1]:
        raise DataError(
            f"embeddings of images have {a.shape[1]} numbers, and those of texts {b.shape[1]}; they are of two models",
            code="bad-scores",
        )
    norms = [each.norm(dim=1, keepdim=True) for each in (a, b)]
    if any(bool((norm == 0).any()) for norm in norms):
        raise DataError("an embedding is zero and has no direction", code="bad-scores")
    cosines: Tensor = (a / norms[0]) @ (b / norms[1]).T
    return cosines


def _checked(values: Scores, what: str) -> Tensor:
    found = torch.as_tensor(values).detach().cpu().double()
    if found.ndim != 2:
        raise DataError(f"{what} have the shape {tuple(found.shape)}; needed is (n, m)", code="bad-scores")
    if not bool(found.isfinite().all()):
        raise DataError(f"{what} hold NaN or infinity", code="bad-scores")
    return found


def _of_entity(
    scores: Tensor, there: Tensor, rate: float | None, least: int, shared: float
) -> tuple[float, bool, float, float]:
    """Its threshold, whether it is its own, and the two rates on images that it was not chosen on."""
    n_with, n_without = int(there.sum()), int((~there).sum())
    is_own = n_without >= least and (n_with >= least or rate is not None)
    if not is_own:
        said = scores >= shared
        return shared, False, *_rates(said, there)
    said = torch.zeros_like(there)
    fold = _folds(there)
    for k in range(_FOLDS):
        kept = fold != k
        chosen = _threshold(scores[kept & there], scores[kept & ~there], rate)
        said[~kept] = scores[~kept] >= (shared if chosen is None else chosen)
    own = _threshold(scores[there], scores[~there], rate)
    return shared if own is None else own, True, *_rates(said, there)


def _folds(there: Tensor) -> Tensor:
    """Every fifth image with the entity, and every fifth without."""
    ranks = torch.where(there, there.cumsum(0), (~there).cumsum(0))
    return ranks % _FOLDS


def _rates(said: Tensor, there: Tensor) -> tuple[float, float]:
    return float(said[there].double().mean()), float(said[~there].double().mean())


def _threshold(positives: Tensor, negatives: Tensor, rate: float | None) -> float | None:
    """The threshold between two kinds of scores; None where one is missing."""
    if not len(negatives) or (rate is None and not len(positives)):
        return None
    if rate is not None:
        ranked = negatives.sort(descending=True).values
        passing = int(rate * len(ranked) + 1e-9)
        return float(np.nextafter(float(ranked[passing]), np.inf))
    return _best_split(positives, negatives)


def _best_split(positives: Tensor, negatives: Tensor) -> float:
    """Midway in the widest of the gaps between scores where the balanced accuracy is largest."""
    levels = torch.unique(torch.cat([positives, negatives]))
    if len(levels) == 1:
        return float(levels[0])
    ends: Sequence[Tensor] = (positives.sort().values, negatives.sort().values)
    # A threshold above levels[i] and not above levels[i + 1] keeps what is at least levels[i + 1].
    hits = len(positives) - torch.searchsorted(ends[0], levels[1:])
    passed = len(negatives) - torch.searchsorted(ends[1], levels[1:])
    balance = hits / len(positives) - passed / len(negatives)
    best = balance >= balance.max() - 1e-12
    gaps = torch.where(best, levels[1:] - levels[:-1], -1.0)
    place = int(gaps.argmax())
    return float((levels[place] + levels[place + 1]) / 2)
