"""A score class by class: the reals of each class against its fakes, of features that are embedded once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Literal

import torch

from genpr.class_scores import (
    PER_CLASS,
    WEAKEST_FIRST,
    ClassScore,
    ClassScores,
    LeftOutClass,
    Reason,
    averages,
    worst_first,
)
from genpr.errors import DataError, UsageError
from genpr.features.feature_set import FeatureSet
from genpr.images.archive import TarSource, ZipSource
from genpr.images.arrays import ArraySource, NpzSource, TensorSource
from genpr.images.folder import FolderSource
from genpr.images.item import known_length
from genpr.images.policy import BadImagePolicy
from genpr.images.source import choose_rows
from genpr.labels.read import open_labels
from genpr.labels.sides import LabelledSide, check_labels
from genpr.labels.table import Labels, short
from genpr.metrics.neighbour_metrics import least_images
from genpr.plan import ScorePlan
from genpr.result import Result
from genpr.scoring import ManifoldRecipe, RealManifolds
from genpr.side_features import Embedder, SideFeatures
from genpr.sides import OpenedSide, holds_features, open_side

MIN_IMAGES = 50
"""Images of each side that a class needs: see docs/classes.md for why."""


@dataclass(frozen=True)
class ClassRecipe:
    """What to score of each class, checked before any image is embedded.

    Attributes:
        plan: Of the score of all images.
        embedder: How they are embedded.
        real: Labels of the reals.
        fake: Labels of the fakes.
        min_images: Images that a class needs on each side.
        worst_by: What the order is by.
    """

    plan: ScorePlan
    embedder: Embedder
    real: Labels
    fake: Labels
    min_images: int
    worst_by: str

    @classmethod
    def of(
        cls,
        plan: ScorePlan,
        embedder: Embedder,
        *,
        sources: tuple[object, object],
        labels: tuple[object, object],
        min_images: int,
        worst_by: str,
    ) -> ClassRecipe:
        """For what a user asked for; `sources` and `labels` are of the reals and of the fakes, as they were given.

        Raises:
            UsageError: An option is impossible, or the protocol is of whole sets.
            DataError: Labels cannot be read.
        """
        _check_plan(plan)
        least = max(least_images({name: plan.ks[name] for name in _metrics(plan)}))
        if isinstance(min_images, bool) or not isinstance(min_images, Integral) or min_images < least:
            raise UsageError(
                f"min_per_class must be an integer of at least {least}, since k neighbours of each image are needed, "
                f"not {min_images!r}",
                code="bad-option",
            )
        known = (WEAKEST_FIRST, *_metrics(plan))
        if worst_by not in known:
            raise UsageError(
                f"worst_by must be one of {', '.join(known)}, not {worst_by!r}", code="bad-option"
            )
        real, fake = (
            open_labels(given, source, role)
            for given, source, role in zip(labels, sources, ("real", "fake"), strict=True)
        )
        return cls(plan, embedder, real, fake, int(min_images), worst_by)

    def check(self, real: OpenedSide, fake: OpenedSide) -> None:
        """Refuse labels that do not belong together, from the names of the images alone, if these are known.

        Raises:
            DataError: See `genpr.labels.sides.check_labels`.
        """
        _check_names((real, fake), (self.real, self.fake), self._policy)

    def score(self, real: SideFeatures, fake: SideFeatures, overall: Result) -> ClassScores:
        """Score every class that has enough images.

        Raises:
            DataError: None has, or labels do not belong to the images.
        """
        sides = self._labelled(real, self.real), self._labelled(fake, self.fake)
        check_labels(*sides, self._policy)
        started = time.perf_counter()
        chosen, left_out = self._chosen(*sides)
        reals, fakes = real[self.plan.own], fake[self.plan.own]
        report = self.embedder.progress or (lambda *_: None)
        found = []
        for done, label in enumerate(chosen):
            report("classes", done, len(chosen))
            rows = sides[0].rows[label], sides[1].rows[label]
            found.append(self._scored(label, _part(reals, rows[0]), _part(fakes, rows[1])))
        report("classes", len(chosen), len(chosen))
        return ClassScores(
            overall=overall,
            classes=worst_first(found, self.worst_by),
            macro=averages(found, weighted=False),
            micro=averages(found, weighted=True),
            left_out=left_out,
            min_images=self.min_images,
            worst_by=self.worst_by,
            origins={side.role: side.origin for side in sides},
            unlabelled={side.role: len(side.unlabelled) for side in sides},
            seconds=time.perf_counter() - started,
        )

    @property
    def _policy(self) -> BadImagePolicy:
        return BadImagePolicy(self.embedder.on_bad, self.embedder.max_bad)

    def _labelled(self, side: SideFeatures, labels: Labels) -> LabelledSide:
        """Each embedded image with its class."""
        features = side[self.plan.own]
        total = len(side.side) if isinstance(side.side, FeatureSet) else known_length(side.side.source)
        rows = _rows_in_source(side.side, features, total, self.embedder.seed)
        names = [features.name_of(row) for row in range(len(features))]
        found = labels.of(names, rows, total)
        return LabelledSide(side.role, features.source, labels.origin, names, found)

    def _chosen(self, real: LabelledSide, fake: LabelledSide) -> tuple[list[str], tuple[LeftOutClass, ...]]:
        """Classes with enough images, and the others."""
        chosen, left_out = [], []
        for label in dict.fromkeys([*real.rows, *fake.rows]):
            sizes = len(real.rows.get(label, ())), len(fake.rows.get(label, ()))
            reason = _reason(*sizes, self.min_images)
            if reason is None:
                chosen.append(label)
            else:
                left_out.append(LeftOutClass(label, *sizes, reason))
        if not chosen:
            largest = sorted(left_out, key=lambda each: -min(each.n_real, each.n_fake))[:5]
            shown = ", ".join(
                f"{short(each.label)} ({each.n_real:,} reals, {each.n_fake:,} fakes)" for each in largest
            )
            raise DataError(
                f"no class has {self.min_images:,} images on both sides: {shown}; score more images, or lower "
                "min_per_class (--min-per-class), which widens intervals",
                code="classes-too-small",
            )
        return chosen, tuple(left_out)

    def _scored(self, label: str, real: FeatureSet, fake: FeatureSet) -> ClassScore:
        plan = self.plan
        recipe = ManifoldRecipe(
            protocol=plan.protocol,
            ks={name: plan.ks[name] for name in _metrics(plan)},
            ties=plan.ties,
            device=self.embedder.device,
            seed=self.embedder.seed,
            intervals=plan.intervals,
            evidence=False,
        )
        found = RealManifolds(real, recipe, _nothing).score(fake, _nothing).values
        metrics = {name: value for name, value in found.items() if value is not None}
        return ClassScore(label, len(real), len(fake), metrics)


def check_sources(
    real: str,
    fake: str,
    *,
    real_labels: object = None,
    fake_labels: object = None,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
) -> None:
    """Refuse labels that do not fit two paths, before an image of either is embedded; features need no such haste.

    Raises:
        UsageError: There is no such path or file.
        DataError: The labels cannot be read, or do not belong together.
    """
    policy = BadImagePolicy(on_bad, max_bad)
    given = zip((real_labels, fake_labels), (real, fake), ("real", "fake"), strict=True)
    if any(holds_features(Path(path)) for path in (real, fake)):
        return
    sides = open_side(real, "real"), open_side(fake, "fake")
    _check_names(sides, [open_labels(labels, source, role) for labels, source, role in given], policy)


def _check_names(sides: Sequence[OpenedSide], labels: Sequence[Labels], policy: BadImagePolicy) -> None:
    found = []
    for role, opened, each in zip(("real", "fake"), sides, labels, strict=True):
        names = names_of(opened)
        if names is None:
            return
        source = opened.source if isinstance(opened, FeatureSet) else opened.source.name
        by_image = each.of(names, range(len(names)), len(names))
        found.append(LabelledSide(role, source, each.origin, names, by_image))
    check_labels(found[0], found[1], policy)


def _nothing(done: int, total: int) -> None:
    """Classes are small: progress is told per class."""


def _part(features: FeatureSet, rows: Sequence[int]) -> FeatureSet:
    return features.select(torch.tensor(rows))


def _metrics(plan: ScorePlan) -> tuple[str, ...]:
    return tuple(name for name in PER_CLASS if name in plan.ks)


def _check_plan(plan: ScorePlan) -> None:
    protocol = plan.protocol
    if not _metrics(plan):
        raise UsageError(
            f"per-class scores are of {', '.join(PER_CLASS)}, and none of them is asked for but "
            f"{', '.join(plan.spaces)}",
            code="per-class-metrics",
        )
    if plan.equal_sizes:
        raise UsageError(
            "per-class scores are of all images of a class and not in blocks of equal size; leave equal_sizes "
            "(--equal-sizes) out",
            code="bad-option",
        )
    sizes = (protocol.n_real, protocol.n_fake, protocol.max_real, protocol.max_fake, protocol.max_rows)
    if any(size is not None for size in sizes):
        raise UsageError(
            f"protocol {protocol.name} fixes the number of images of whole sets, which no class can meet; use "
            "--protocol genpr or prdc for per-class scores",
            code="protocol-pinned",
        )


def _reason(n_real: int, n_fake: int, least: int) -> Reason | None:
    """Why a class of these sizes is not scored."""
    if not n_real or not n_fake:
        return "no fakes" if n_real else "no reals"
    if n_real < least and n_fake < least:
        return "too few of both"
    if n_real < least:
        return "too few reals"
    return "too few fakes" if n_fake < least else None


def names_of(opened: OpenedSide) -> list[str] | None:
    """What the images of a side are called, in order; None where that cannot be known without reading them."""
    if isinstance(opened, FeatureSet):
        return [opened.name_of(row) for row in range(len(opened))]
    source = opened.source
    if isinstance(source, ArraySource | TensorSource | NpzSource):
        return [f"[{row}]" for row in range(len(source))]
    return (
        [item.name for item in source] if isinstance(source, FolderSource | ZipSource | TarSource) else None
    )


def _rows_in_source(opened: OpenedSide, features: FeatureSet, total: int | None, seed: int) -> Sequence[int]:
    """Where each image stands in its source, of which a part may have been chosen and unusable ones left out."""
    if total == len(features):
        return range(total)
    if not features.names:
        return choose_rows(total or 0, len(features), seed).tolist()
    if not isinstance(opened, FeatureSet) and all(_is_place(name) for name in features.names):
        return [int(name[1:-1]) for name in features.names]
    listed: Iterable[str] = (
        opened.names if isinstance(opened, FeatureSet) else (i.name for i in opened.source)
    )
    places = {name: place for place, name in enumerate(listed)}
    return [places[name] for name in features.names]


def _is_place(name: str) -> bool:
    return name.startswith("[") and name.endswith("]") and name[1:-1].isdecimal()
