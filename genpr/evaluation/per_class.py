"""A score class by class: the reals of each class against its fakes, of features that are embedded once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TypedDict

import torch

from genpr.errors import DataError, UsageError
from genpr.evaluation.class_labels import check_names, labelled
from genpr.evaluation.class_scores import (
    PER_CLASS,
    WEAKEST_FIRST,
    ClassScore,
    ClassScores,
    LeftOutClass,
    Reason,
    averages,
    worst_first,
)
from genpr.evaluation.fitted_neighbors import FittedNeighbors
from genpr.evaluation.label_files import open_labels
from genpr.evaluation.label_table import Labels, short
from genpr.evaluation.labeled_source import LabelledSide, check_labels
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.protocols import EvaluationProtocol
from genpr.evaluation.result import Result
from genpr.features.cpu_fallback import going_on
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, labels_lie_in
from genpr.images.policy import BadImagePolicy
from genpr.metrics.neighbor_metrics import least_images

MIN_IMAGES = 50
"""Images of each side that a class needs: see docs/classes.md for why."""


class ClassOptions(TypedDict, total=False):
    """Keyword arguments of `genpr.Evaluator.score_classes`, which documents them."""

    real_labels: object
    fake_labels: object
    min_per_class: int
    worst_by: str


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
        opened: tuple[OpenedSide, OpenedSide],
        real_labels: object = None,
        fake_labels: object = None,
        min_per_class: int = MIN_IMAGES,
        worst_by: str = WEAKEST_FIRST,
    ) -> ClassRecipe:
        """For what a user asked for; `sources` are the reals and the fakes as they were given, and as they were opened.

        Raises:
            UsageError: An option is impossible, or the protocol is of whole sets.
            DataError: Labels cannot be read, or do not belong together (`genpr.evaluation.labeled_source.check_labels`) by the names of
                the images, as far as these are known before they are embedded.
        """
        check_options(
            plan.protocol,
            plan.ks,
            equal_sizes=plan.equal_sizes,
            min_per_class=min_per_class,
            worst_by=worst_by,
        )
        labels = (
            open_labels(real_labels, labels_lie_in(sources[0], opened[0]), "real"),
            open_labels(fake_labels, labels_lie_in(sources[1], opened[1]), "fake"),
        )
        recipe = cls(plan, embedder, *labels, int(min_per_class), worst_by)
        check_names(opened, labels, recipe._policy)
        return recipe

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

        def scored(where: Embedder) -> list[ClassScore]:
            found = []
            for done, label in enumerate(chosen):
                report("classes", done, len(chosen))
                rows = sides[0].rows[label], sides[1].rows[label]
                found.append(self._scored(label, _part(reals, rows[0]), _part(fakes, rows[1]), where.device))
            report("classes", len(chosen), len(chosen))
            return found

        found, told = going_on(self.embedder, scored, "for the classes")
        return ClassScores(
            overall=replace(overall, notices=tuple(dict.fromkeys((*overall.notices, *told)))),
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
        return labelled(side.role, side.side, side[self.plan.own], labels)

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

    def _scored(self, label: str, real: FeatureSet, fake: FeatureSet, device: torch.device) -> ClassScore:
        plan = replace(self.plan, ks={name: self.plan.ks[name] for name in _metrics(self.plan.ks)})
        fitted = FittedNeighbors(real, plan, device=device, seed=self.embedder.seed, diagnostics=False)
        found = fitted.score(fake).values
        metrics = {name: value for name, value in found.items() if value is not None}
        return ClassScore(label, len(real), len(fake), metrics)


def _part(features: FeatureSet, rows: Sequence[int]) -> FeatureSet:
    return features.select(torch.tensor(rows))


def _metrics(ks: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(name for name in PER_CLASS if name in ks)


def check_options(
    protocol: EvaluationProtocol,
    ks: Mapping[str, int],
    *,
    equal_sizes: bool = False,
    min_per_class: int = MIN_IMAGES,
    worst_by: str = WEAKEST_FIRST,
) -> None:
    """Refuse what cannot be scored class by class.

    Args:
        protocol: The recipe.
        ks: k of each metric that counts neighbours.
        equal_sizes: Whether blocks of equal size are asked for.
        min_per_class: Images that a class needs on each side.
        worst_by: What the order is by.

    Raises:
        UsageError: One of them.
    """
    metrics = _metrics(ks)
    if not metrics:
        raise UsageError(
            f"per-class scores are of {', '.join(PER_CLASS)}, and none of them is asked for",
            code="per-class-metrics",
        )
    if equal_sizes:
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
    least = max(least_images({name: ks[name] for name in metrics}))
    if isinstance(min_per_class, bool) or not isinstance(min_per_class, Integral) or min_per_class < least:
        raise UsageError(
            f"min_per_class must be an integer of at least {least}, since k neighbours of each image are needed, "
            f"not {min_per_class!r}",
            code="bad-option",
        )
    known = (WEAKEST_FIRST, *metrics)
    if worst_by not in known:
        raise UsageError(f"worst_by must be one of {', '.join(known)}, not {worst_by!r}", code="bad-option")


def _reason(n_real: int, n_fake: int, least: int) -> Reason | None:
    """Why a class of these sizes is not scored."""
    if not n_real or not n_fake:
        return "no fakes" if n_real else "no reals"
    if n_real < least and n_fake < least:
        return "too few of both"
    if n_real < least:
        return "too few reals"
    return "too few fakes" if n_fake < least else None
