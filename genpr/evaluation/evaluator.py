"""Score fake sets against a real set: once (`score`), or many times with the real set fitted once (`Evaluator`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, Unpack

from genpr.errors import GenprError
from genpr.evaluation.label_metrics import LabelConfig
from genpr.evaluation.options import ScoreKeywords, ScoreOptions
from genpr.evaluation.per_class import ClassOptions, ClassScorer, ClassScores
from genpr.evaluation.per_image import PerImageScores, check_samples
from genpr.evaluation.plan import ScorePlan, with_pinned
from genpr.evaluation.reference import FittedReference
from genpr.evaluation.result import Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, check_same_kind, open_input
from genpr.features.options import takes_options
from genpr.features.source_features import Embedder, ExtractorKey, SourceFeatures
from genpr.memory import memory_limit
from genpr.metrics.registry import HELD_OUT
from genpr.validation import entry_point


@takes_options(ScoreOptions)
@entry_point
def score(real: object, fake: object, **options: Unpack[ScoreKeywords]) -> Result:
    """Score one fake set against one real set.

    Both sources are opened and checked before the first image is embedded.

    Args:
        real: Real images or their features, as for `Evaluator`.
        fake: Generated images or their features, of the same kind.
        **options: The fields of `ScoreOptions`.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: A source cannot be used, or the two are of different kinds.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real = rng.normal(size=(300, 4))
        >>> collapsed = 0.01 * rng.normal(size=(300, 4))
        >>> result = score(real, collapsed)
        >>> result["precision"], result["recall"]
        (1.0, 0.0)
    """
    ((result, _),) = score_with(real, fake, [ScoreOptions(**options)])
    return result


def score_with(
    real: object, fake: object, choices: Sequence[ScoreOptions], *, score_held_out: bool = False
) -> list[tuple[Result, Result | None]]:
    """A result for each of several options, which differ in protocol, metrics and extractor; each image is embedded once.

    A protocol that needs fewer images than another uses a random subset. With `score_held_out`, each result has a second one
    with held-out reals in place of fakes, at most as many as there are fakes.
    """
    options = with_pinned(choices)  # before anything is opened
    embedder = Embedder(options)
    with memory_limit(options.max_memory):
        opened_real, opened_fake = open_input(real, "real"), open_input(fake, "fake")
        check_same_kind(opened_real, opened_fake)
        plans = list(map(partial(ScorePlan.from_options, opened_real), choices))
        labels = held_out = like_fakes = None
        if options.labels is not None:
            labels = LabelConfig.from_options(options.labels, opened_real, options.bad_images)
            labels.check(opened_fake)
        reals = _embed(opened_real, "real", plans, embedder)
        fakes = _embed(opened_fake, "fake", plans, embedder)
        if options.held_out is not None:
            opened = _open_held_out(options.held_out, opened_real)
            held_out = _embed(opened, "held-out", plans, embedder, like="fake" if score_held_out else None)
            like_fakes = held_out.cut(fakes.n) if score_held_out else None
        results = []
        for plan in plans:
            kept = held_out if HELD_OUT.intersection(plan.extractors) else None
            reference = FittedReference(plan, reals, embedder, kept, labels)
            found = reference.score(fakes)
            results.append((found, None if like_fakes is None else reference.score(like_fakes)))
        return results


def check_before_embedding(
    real: object, fake: object, options: ScoreOptions, classes: ClassOptions | None = None
) -> tuple[OpenedInput, OpenedInput]:
    """Open two sources, and raise all errors that can be found before an image is embedded."""
    with memory_limit(options.max_memory):
        opened = open_input(real, "real"), open_input(fake, "fake")
        check_same_kind(*opened)
        if options.labels is not None:
            LabelConfig.from_options(options.labels, opened[0], options.bad_images).check(opened[1])
        if classes is not None:
            plan = ScorePlan.from_options(opened[0], options)
            ClassScorer(plan, Embedder(options), sources=(real, fake), opened=opened, **classes)
    return opened


def _open_held_out(source: object, real: OpenedInput) -> OpenedInput:
    opened = open_input(source, "held-out")
    check_same_kind(real, opened)
    return opened


def _embed(
    opened: OpenedInput,
    role: str,
    plans: Sequence[ScorePlan],
    embedder: Embedder,
    *,
    like: str | None = None,
) -> SourceFeatures:
    """Embed the "real", "fake" or "held-out" images by all extractors that the plans need for this role, or for `like`."""
    limit: int | None = 0
    declared, extractors, elsewhere, least = [], list[ExtractorKey](), list[ExtractorKey](), 1
    for plan in plans:
        declared.append(plan.own)
        elsewhere += plan.extractors.values()
        needs = plan.needs[like or role]
        limit = None if limit is None or needs.most is None else max(limit, needs.most)
        extractors += needs.extractors
        least = max(least, needs.least)
    features = SourceFeatures(opened, role, embedder, limit=limit, declared=declared)
    features.require(extractors, minimum=least, elsewhere=elsewhere)
    return features


@takes_options(ScoreOptions)
class Evaluator:
    """A real set that is embedded and fitted once, for the scores of any number of fake sets.

    Args:
        real: Real images or their features: a path (docs/sources.md lists the formats), a uint8 array
            (n, h, w, 3) or tensor (n, 3, h, w); a float array or tensor (n, d) of features; a Dataset; or an
            iterable of image batches.
        **options: The fields of `ScoreOptions`.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: The reals cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> evaluator = Evaluator(rng.normal(size=(200, 8)))
        >>> result = evaluator.score(rng.normal(size=(200, 8)))
        >>> list(result.metrics)
        ['calibrated_precision', 'calibrated_recall', 'precision', 'recall', 'density', 'coverage']
    """

    @entry_point
    def __init__(self, real: object, **options: Unpack[ScoreKeywords]) -> None:
        self._fit(real, ScoreOptions(**options))

    @classmethod
    @entry_point
    def from_options(cls, real: object, options: ScoreOptions) -> Self:
        """An evaluator from a record of options."""
        evaluator = cls.__new__(cls)
        evaluator._fit(real, options)
        return evaluator

    def _fit(self, real: object, options: ScoreOptions) -> None:
        options = with_pinned([options])
        self._options = options
        self._embedder = Embedder(options)
        with memory_limit(options.max_memory, trim=True):
            self._real = real if isinstance(real, str | os.PathLike) else None  # where labels may be
            self._opened_real = open_input(real, "real")
            self._plan = ScorePlan.from_options(self._opened_real, options)
            self._labels = held_out = None
            if options.labels is not None:
                self._labels = LabelConfig.from_options(options.labels, self._opened_real, options.bad_images)
            reals = _embed(self._opened_real, "real", [self._plan], self._embedder)
            if options.held_out is not None:
                kept = _open_held_out(options.held_out, self._opened_real)
                held_out = _embed(kept, "held-out", [self._plan], self._embedder)
            self._reference = FittedReference(self._plan, reals, self._embedder, held_out, self._labels)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of a score, in display order."""
        label_metrics = () if self._labels is None else self._labels.options.names
        return (*self._plan.extractors, *label_metrics)

    @property
    def source(self) -> str:
        """The reals, as they were given."""
        return self._reference.reals.source

    @property
    def content(self) -> str:
        """Hash of the contents of the reals, independent of their order."""
        return self._reference.content

    @property
    def n_real(self) -> int:
        """Number of reals."""
        return len(self._reference.reals)

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything that determines a score except the fakes, as plain JSON types; equal recipes give equal scores."""
        return self._reference.recipe

    @property
    def plan(self) -> ScorePlan:
        """The metrics and their features."""
        return self._plan

    @property
    def supports_evidence(self) -> bool:
        """Whether `evidence` is available: a metric counts neighbors, and there are enough reals."""
        try:
            check_samples(self._plan, self._reference.reals)
        except GenprError:
            return False
        return True

    @property
    def embedder(self) -> Embedder:
        """The embedder of images."""
        return self._embedder

    @entry_point
    def score(self, fake: object, *, cache: bool | None = None) -> Result:
        """Score one fake set; only the fakes are embedded.

        Args:
            fake: A source of the same kind as `real`: images, or features of the same extractor. A `FeatureSet` with a recorded
                extractor can be scored against reals of either kind.
            cache: Cache the features of this set; None uses the option of the Evaluator. Samples of a training run are
                rarely scored twice, so caching them only needs disk space.

        Raises:
            UsageError: The path does not exist.
            DataError: The fakes cannot be used, or do not match the reals.
        """
        with memory_limit(self._options.max_memory, trim=True):
            return self._reference.score(self._embedded(self._opened(fake), cache))

    @entry_point
    def evidence(
        self, fake: object, *, cache: bool | None = None, classes: ClassOptions | None = None
    ) -> PerImageScores:
        """Score one fake set like `score`, and keep the values of each image of both sets.

        The neighbor search takes about twice as long as for `score`, and needs memory for one row of values per image.

        Args:
            fake: As for `score`.
            cache: As for `score`.
            classes: Keyword arguments of `score_classes` for scores per class, which may be empty; None for no such scores.

        Raises:
            UsageError: The path does not exist, or no metric of this evaluator has values of single images.
            DataError: The fakes cannot be used or do not match the reals, or there are too few reals.

        Example:
            >>> import numpy as np
            >>> rng = np.random.default_rng(0)
            >>> evaluator = Evaluator(rng.normal(size=(200, 8)))
            >>> found = evaluator.evidence(rng.normal(size=(200, 8)))
            >>> bool(found.fake.inside.mean() == found.result["precision"])
            True
            >>> found.fake.names[found.fake.realism.argmin()]  # the least realistic
            'row 179'
        """
        with memory_limit(self._options.max_memory, trim=True):
            check_samples(self._plan, self._reference.reals)
            opened = self._opened(fake)
            scorer = None if classes is None else self._class_scorer(fake, opened, classes)
            fakes = self._embedded(opened, cache)
            found = self._reference.per_image(fakes)
            if scorer is None:
                return found
            return replace(found, classes=scorer.score(self._reference.real, fakes, found.result))

    @entry_point
    def score_classes(self, fake: object, **classes: Unpack[ClassOptions]) -> ClassScores:
        """Score one fake set like `score`, and each class: the reals of a class against its fakes.

        Every image is embedded once.

        Args:
            fake: As for `score`.
            **classes: `real_labels` and `fake_labels`: a `.csv`, `.json` (StyleGAN's) or `.npy` file; "folders"; a label per
                image in the order of the source; None to look into the source (`genpr.evaluation.labels.open_labels`).
                `min_per_class`: images that a class needs on each side to be scored, 50 by default.

        Raises:
            UsageError: An option is impossible, or the protocol is of whole sets.
            DataError: The fake side cannot be used, or the labels of the sides do not belong together.
        """
        with memory_limit(self._options.max_memory, trim=True):
            opened = self._opened(fake)
            scorer = self._class_scorer(fake, opened, classes)
            fakes = self._embedded(opened, None)
            return scorer.score(self._reference.real, fakes, self._reference.score(fakes))

    def _class_scorer(self, fake: object, opened: OpenedInput, options: ClassOptions) -> ClassScorer:
        both = self._opened_real, opened
        return ClassScorer(self._plan, self._embedder, sources=(self._real, fake), opened=both, **options)

    def _opened(self, fake: object) -> OpenedInput:
        opened = open_input(fake, "fake")
        if not (isinstance(fake, FeatureSet) and fake.extractor is not None):
            check_same_kind(self._opened_real, opened)
        if self._labels is not None:
            self._labels.check(opened)
        return opened

    def _embedded(self, opened: OpenedInput, cache: bool | None) -> SourceFeatures:
        embedder = self._embedder if cache is None else self._embedder.with_options(cache=cache)
        return _embed(opened, "fake", [self._plan], embedder)
