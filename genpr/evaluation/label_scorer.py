"""Label metrics of fakes: recognised by labelled reals, or as another tool recognised them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genpr.errors import DataError
from genpr.evaluation.label_options import LINEAR
from genpr.evaluation.label_recipe import LabelRecipe
from genpr.evaluation.label_sets import is_set, labels_in
from genpr.evaluation.label_table import some
from genpr.evaluation.label_values import (
    LabelScore,
    confusions_of,
    effective,
    rows_of,
    rows_of_counts,
    undefined_in,
    values_of,
    with_interval,
)
from genpr.evaluation.labeled_source import LabelledSide, check_shared, order_of
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.seen_labels import SeenLabels
from genpr.evaluation.summaries import Confusion, LabelSummary
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.features.feature_set import FeatureSet
from genpr.metrics.label.codes import Coded, coded
from genpr.metrics.label.conditional import LEAST_IN_HALF, Conditional, ConditionalReals, Kind, members
from genpr.metrics.label.labels import metrics_of_codes
from genpr.metrics.label.records import LabelMetrics
from genpr.metrics.value import MetricValue
from genpr.notices import Notice, notice

_HALVES, _FAKE_STREAM = 100, 1
_FEW_REALS = (
    0.5  # per fake; in simulations the null was .01 low at a half, .04 at a third and .09 at a twentieth
)


class LabelScorer:
    """What labels say about any number of fake sets.

    Args:
        recipe: Where labels are, and who recognises them.
        side: The real side.
        reals: Its features.
        plan: Whether intervals are asked for.
        embedder: Its seed and device.

    Raises:
        DataError: Labels do not belong to the reals, or there are too few of these.
    """

    def __init__(
        self, recipe: LabelRecipe, side: SideFeatures, reals: FeatureSet, plan: ScorePlan, embedder: Embedder
    ) -> None:
        self._recipe, self._options = recipe, recipe.options
        self._intervals, self._seed, self._device = plan.intervals, embedder.seed, embedder.device
        self._report = embedder.progress or (lambda *_: None)
        self._labelled: LabelledSide | None = None
        self._reals: ConditionalReals | None = None
        started = time.perf_counter()
        if recipe.real is not None:
            self._labelled = recipe.labelled(side, reals, recipe.real)
            self._fit(self._labelled, reals)
        self._fit_seconds = time.perf_counter() - started

    @property
    def recipe(self) -> dict[str, Any]:
        """What decides a score beside the images, as plain JSON types."""
        return self._recipe.facts(() if self._labelled is None else self._labelled.labels)

    def score(self, side: SideFeatures, fakes: FeatureSet) -> LabelScore:
        """Score one fake set, of which `fakes` are the features.

        Raises:
            DataError: Labels do not belong to the fakes.
        """
        started = time.perf_counter()
        self._report("labels", 0, 1)
        asked = self._recipe.labelled(side, fakes, self._recipe.fake(side.side))
        if self._recipe.recognised is None:
            found = self._by_reals(asked, fakes)
        else:
            found = self._by_file(asked, self._recipe.labelled(side, fakes, self._recipe.recognised))
        self._report("labels", 1, 1)
        seconds = time.perf_counter() - started + self._fit_seconds
        return replace(found, seconds=seconds)

    def _fit(self, side: LabelledSide, reals: FeatureSet) -> None:
        if len(side.rows) < 2:
            raise DataError(
                f"label metrics need reals of at least two classes: {side}; else every fake is recognised as the one",
                code="one-class",
            )
        features, labels = self._with_labels(side, reals, list(side.rows))
        kind: Kind = "linear" if self._options.recogniser == LINEAR else "knn"
        self._reals = ConditionalReals(
            features, labels, kind=kind, k=int(self._options.k), intervals=self._intervals, seed=self._seed
        )

    def _with_labels(
        self, side: LabelledSide, features: FeatureSet, classes: list[str]
    ) -> tuple[Tensor, Tensor]:
        """Features and classes of the images that have one."""
        place = {label: number for number, label in enumerate(classes)}
        rows = [row for row, label in enumerate(side.labels) if label is not None]
        labels = torch.tensor([place[label] for label in side.labels if label is not None])
        kept = features.features if len(rows) == len(features) else features.features[torch.tensor(rows)]
        return kept.float().to(self._device), labels.to(self._device)

    def _by_reals(self, asked: LabelledSide, fakes: FeatureSet) -> LabelScore:
        assert self._reals is not None
        assert self._labelled is not None
        check_shared(self._labelled, asked)
        classes = sorted({*self._labelled.rows, *asked.rows}, key=order_of)
        place = {label: number for number, label in enumerate(classes)}
        features, labels = self._with_labels(asked, fakes, classes)
        places = torch.tensor([place[label] for label in self._labelled.rows], device=labels.device)
        found = self._reals.score(features, labels, places=places, n_classes=len(classes))
        k = None if self._options.recogniser == LINEAR else int(self._options.k)
        extractor = None if fakes.extractor is None else fakes.extractor.name
        metrics, undefined = values_of(found, k=k, extractor=extractor)
        rows = rows_of(found.test, classes)
        summary = LabelSummary(
            recogniser=str(self._options.recogniser),
            k=k,
            rows=rows,
            confusions=confusions_of(labels, found.test.recognised, classes),
            undefined=undefined_in(rows),
            n=found.test.n,
            origins={side.role: side.origin for side in (self._labelled, asked)},
            unlabelled={side.role: len(side.unlabelled) for side in (self._labelled, asked)},
        )
        notices = (*self._strangers(asked), *_low_null(found), *self._lacking(found))
        return LabelScore(metrics, undefined, summary, notices, _seen(asked, found.test.recognised, classes))

    def _strangers(self, asked: LabelledSide) -> tuple[Notice, ...]:
        """Fakes of classes that no real has."""
        assert self._labelled is not None
        strange = [label for label in asked.rows if label not in self._labelled.rows]
        if not strange:
            return ()
        count = sum(len(asked.rows[label]) for label in strange)
        return (notice("classes-differ", count=f"{count:,} fakes", shown=some(strange)),)

    def _lacking(self, found: Conditional) -> tuple[Notice, ...]:
        if not self._intervals or found.test.halves is not None:
            return ()
        return (_no_interval(min(found.test.n, found.train.n)),)

    def _by_file(self, asked: LabelledSide, seen: LabelledSide) -> LabelScore:
        """Against what another tool recognised."""
        both = [
            (wanted, found)
            for wanted, found in zip(asked.labels, seen.labels, strict=True)
            if wanted is not None and found is not None
        ]
        several = any(is_set(text) for pair in both for text in pair)
        wanted, found_as = (
            [labels_in(text) if several else text for text in side] for side in zip(*both, strict=True)
        )
        given = coded(wanted, found_as, None)
        found = metrics_of_codes(given)
        enough = self._intervals and given.n // 2 >= LEAST_IN_HALF
        halves = _flat_halves(given, self._seed) if enough else {}
        metrics = self._values(found, halves)
        undefined = tuple(f"label.{name}" for name, value in _flat(found).items() if np.isnan(value))
        rows = rows_of_counts(found)
        summary = LabelSummary(
            recogniser=seen.origin,
            k=None,
            rows=rows,
            confusions=tuple(
                Confusion(str(wanted), str(other), count)
                for wanted, other, count in found.confusions
                if wanted != other
            )[:50],
            undefined=undefined_in(rows),
            n=given.n,
            origins={"fake": asked.origin},
            unlabelled={"fake": len(asked.labels) - given.n},
        )
        lacking = () if enough or not self._intervals else (_no_interval(given.n),)
        seen_as = SeenLabels(tuple(asked.labels), tuple(seen.labels))
        return LabelScore(metrics, undefined, summary, (*found.notices, *lacking), seen_as)

    def _values(self, found: LabelMetrics, halves: dict[str, np.ndarray[Any, Any]]) -> dict[str, MetricValue]:
        sizes = np.array(list(found.support.values()), dtype=float)
        largest = float(sizes.max()) / found.n
        chance = {"accuracy": largest if found.single else found.accuracy_of_nothing}
        plain = MetricValue(0.0, None, variant="as recognised by another tool")
        values = {}
        for name, value in _flat(found).items():
            if np.isnan(value):
                continue
            n = effective(sizes) if name.startswith("macro") and sizes.any() else found.n
            bare = replace(plain, value=value, chance=chance.get(name))
            values[f"label.{name}"] = with_interval(bare, halves.get(name), n)
        return values


def _seen(asked: LabelledSide, recognised: Tensor, classes: Sequence[str]) -> SeenLabels:
    """Of every fake, those without a label among them."""
    names = iter([classes[place] if place >= 0 else None for place in recognised.tolist()])
    seen = (None if label is None else next(names) for label in asked.labels)
    return SeenLabels(tuple(asked.labels), tuple(seen))


def _low_null(found: Conditional) -> tuple[Notice, ...]:
    """Reals that stand for far more fakes; those for a few more say nearly the same."""
    if found.null_share >= _FEW_REALS:
        return ()
    return (notice("null-of-fewer", share=f"{found.null_share:.0%}"),)


def _flat(found: LabelMetrics) -> dict[str, float]:
    """By name, NaN where undefined: of single labels, accuracy and macro averages; micro ones equal accuracy."""
    over = ("macro",) if found.single else ("macro", "micro", "weighted", "samples")
    flat = {"accuracy": found.accuracy} | ({} if found.single else {"exact_match": found.exact_match})
    for name in over:
        average = getattr(found, name)
        for what, value in (("precision", average.precision), ("recall", average.recall), ("f1", average.f)):
            flat[f"{name}_{what}"] = np.nan if value is None else value
    return flat


def _flat_halves(given: Coded, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Each metric of complementary halves of the images, (B,)."""
    inside = members(given.n, seed, _FAKE_STREAM, _HALVES, torch.device("cpu")).numpy()
    found = [_flat(metrics_of_codes(given.part(each))) for each in inside]
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def _no_interval(n: int) -> Notice:
    return notice(
        "no-intervals",
        names="label metrics",
        reason=f"halves of {n:,} images are too small",
        remedy=f"give at least {2 * LEAST_IN_HALF:,} of each side",
    )
