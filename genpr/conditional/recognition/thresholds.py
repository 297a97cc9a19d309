"""From which score on an entity counts as there: a fixed one, from labelled images, or from the judged images in halves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.conditional.entities.expectations import Expectations
from genpr.conditional.entity_scores.in_images import DETECTED
from genpr.errors import DataError
from genpr.evaluation.result import EntityThreshold
from genpr.metrics.entity.presence import Calibration, calibrate, present_by_halves

Presence = Tensor
"""(n, E) bool."""


@dataclass(frozen=True)
class Judged:
    """Which entities are in images, and by which thresholds.

    Attributes:
        present: (n, E) bool.
        entities: One per entity.
        chosen: "fixed", "labelled" or "prompts", as in `RecogniserSummary`.
    """

    present: Presence
    entities: tuple[EntityThreshold, ...]
    chosen: str


def presence_of(asked: Expectations, entities: Sequence[str]) -> Presence:
    """Which of the entities each image should show; whatever else it should is left aside."""
    wanted = [set(each) for each in asked.expected]
    rows = [[entity in each for entity in entities] for each in wanted]
    return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), len(entities))


def by_fixed(scores: Tensor, entities: Sequence[str]) -> Judged:
    """The threshold of detections, for all."""
    rows = tuple(EntityThreshold(entity, (DETECTED,), False, None, None) for entity in entities)
    return Judged(scores >= DETECTED, rows, "fixed")


def by_labelled(
    scores: Tensor, entities: Sequence[str], labelled_scores: Tensor, labelled: Presence, source: str
) -> Judged:
    """Thresholds from other images of which it is known what they show.

    Raises:
        DataError: These have no image with any of the entities, or none without ("no-thresholds").
    """
    _check(labelled, source)
    found = calibrate(labelled_scores, labelled)
    rows = tuple(
        EntityThreshold(
            entity,
            (float(found.thresholds[i]),),
            bool(found.is_own[i]),
            _known(found.sensitivity[i]),
            _known(found.false_positive_rate[i]),
        )
        for i, entity in enumerate(entities)
    )
    return Judged(found.present(scores), rows, "labelled")


def by_prompts(scores: Tensor, entities: Sequence[str], asked: Presence, second: Tensor) -> Judged:
    """Thresholds from what was asked for: each half of the images is judged by those of the other.

    How often these are right is not known: by the same prompts, that would be the score itself.
    """
    found = present_by_halves(scores, asked, second)

    def row(i: int, entity: str) -> EntityThreshold:
        own = all(bool(each.is_own[i]) for each in found.calibrations)
        return EntityThreshold(
            entity, tuple(_threshold(each, i) for each in found.calibrations), own, None, None
        )

    return Judged(found.present, tuple(row(i, entity) for i, entity in enumerate(entities)), "prompts")


def halves_of(groups: Sequence[str], seed: int) -> Tensor:
    """Which images are in the second half, (n,) bool; those of one group are in one half, whatever the order of the images."""
    known = sorted(set(groups))
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed)).tolist()
    second = {known[place] for place in order[: len(known) // 2]}
    return torch.tensor([group in second for group in groups], dtype=torch.bool)


def check_halves(asked: Presence, second: Tensor, source: str) -> None:
    """Refuse images that no thresholds can be chosen on, before they are embedded.

    Raises:
        DataError: In a half, nothing is asked for, or everything ("no-thresholds").
    """
    for half in (asked[~second], asked[second]):
        _check(half, source, "half of ")


def _check(asked: Presence, source: str, part: str = "") -> None:
    if not bool(asked.any()) or bool(asked.all()):
        what = "none of the entities is" if not bool(asked.any()) else "all of the entities are"
        raise DataError(
            f"thresholds cannot be chosen: {what} in all of {part}{source}; needed are images with an entity and images without. "
            "Give labelled images with --calibrate-on and --calibrate-expected, or more prompts",
            code="no-thresholds",
            path=source,
        )


def _threshold(found: Calibration, entity: int) -> float:
    return float(found.thresholds[entity])


def _known(value: Tensor) -> float | None:
    return None if bool(value.isnan()) else float(value)
