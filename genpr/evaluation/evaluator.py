"""Score fake sets against a real set: once (`score`), or many times with the real set fitted once (`Evaluator`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Unpack

from genpr.distributed import current_communicator
from genpr.errors import GenprError
from genpr.evaluation.label_metrics import LabelConfig
from genpr.evaluation.labels import GROUPS_HINT, SourceLabels, check_groups, in_groups
from genpr.evaluation.options import ScoreKeywords, ScoreOptions
from genpr.evaluation.per_class import ClassOptions, ClassScorer
from genpr.evaluation.per_image import PerImageScores, check_samples
from genpr.evaluation.plan import ScorePlan, with_pinned
from genpr.evaluation.reference import Reference
from genpr.evaluation.result import ClassScores, Result
from genpr.features.feature_set import FeatureSet
from genpr.features.options import takes_options
from genpr.features.registry import require_all_weights
from genpr.features.source_features import (
    Embedder,
    ExtractorLike,
    OpenedImages,
    OpenedInput,
    SourceFeatures,
    check_known_number,
    check_same_kind,
    open_input,
    source_features,
    with_cpu_fallback,
)
from genpr.memory import memory_limit
from genpr.metrics.registry import HELD_OUT
from genpr.notices import Notice
from genpr.validation import entry_point

ImageValues = Literal["none", "if possible", "required"]
"""Whether the values of each image are computed; "if possible" needs a metric of neighbors and enough reals."""


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
    (scored,) = score_with(real, fake, [ScoreOptions(**options)])
    return scored.result


@dataclass(frozen=True)
class Scored:
    """The result of one fake set, with what was requested in addition."""

    result: Result
    classes: ClassScores | None = None  # the same score by class
    images: PerImageScores | None = None  # the values of each image
    held_out: Result | None = None  # the same score of held-out reals in place of the fakes


def score_with(
    real: object,
    fake: object,
    choices: Sequence[ScoreOptions],
    *,
    images: ImageValues = "none",
    classes: ClassOptions | None = None,
    score_held_out: bool = False,
) -> list[Scored]:
    """A score for each of several options, which differ in protocol, metrics and extractor; each image is embedded once.

    A protocol that needs fewer images than another uses a random subset. Scores by class and values of images are of the first
    options. With `score_held_out`, as many held-out reals as there are fakes are scored, too.
    """
    with memory_limit(choices[0].max_memory):
        run = ScoreRun(real, choices)
        opened = run.open_fake(fake)
        scorer = None if classes is None else run.class_scorer(opened, classes)
        run.embed_real(like_fakes=score_held_out)
        by_image = images != "none" and run.has_images(required=images == "required")
        fakes = run.embed(opened, "fake")
        like_fakes = run.held_out.limited_to(fakes.n) if score_held_out and run.held_out is not None else None
        scored = []
        for index in range(len(choices)):
            run.fit(index)
            held_out = None if like_fakes is None else run.score(like_fakes, index).result
            found = run.score(fakes, index, scorer=scorer, by_image=by_image)
            scored.append(replace(found, held_out=held_out))
            del run.references[index]  # one at a time, for its memory
        return scored


class ScoreRun:
    """One set of reals: opened and planned for one or several options, then embedded and fitted once.

    If `device="auto"` chose a GPU with too little memory, reals are fitted again on the CPU, which all later scores use; their
    notices state this.
    """

    def __init__(self, real: object, choices: Sequence[ScoreOptions]) -> None:
        self.options = with_pinned(choices)  # before anything is opened
        self.embedder = Embedder(self.options)
        self.opened = open_input(real, "real", self.options.decoding)
        self._groups(self.opened, "real")
        self.plans = [ScorePlan.from_options(self.opened, each) for each in choices]
        self.labels: LabelConfig | None = None
        self._opened_held_out: OpenedInput | None = None
        self.held_out: SourceFeatures | None = None
        self.references: dict[int, Reference] = {}
        self._fit_on: dict[int, Callable[[Embedder], Reference]] = {}  # make the references
        self.notices: dict[Notice, None] = {}
        if self.options.labels is not None:
            self.labels = LabelConfig.from_options(self.options.labels, self.opened, self.options.bad_images)
        if self.options.held_out is not None:
            self._opened_held_out = open_input(self.options.held_out, "held-out", self.options.decoding)
            check_same_kind(self.opened, self._opened_held_out)

    def open_fake(self, fake: object) -> OpenedInput:
        """Open a fake set, and raise all errors that can be found before it is embedded."""
        opened = open_input(fake, "fake", self.options.decoding)
        self._groups(opened, "fake")
        if not (isinstance(fake, FeatureSet) and fake.extractor is not None):
            check_same_kind(self.opened, opened)
        if self.labels is not None:
            self.labels.check(opened)
        for role, source in (("real", self.opened), ("fake", opened)):
            check_known_number(source, role, max(plan.needs[role].least for plan in self.plans))
        return opened

    def class_scorer(self, opened: OpenedInput, options: ClassOptions) -> ClassScorer:
        """What scores each class of the fakes."""
        both, is_default = (self.opened, opened), self.options.metrics is None
        return ClassScorer(self.plans[0], self.embedder, both, is_default, **options)

    def embed_real(self, *, like_fakes: bool = False) -> None:
        """Embed the reals and those that were held out, if any; the latter with `like_fakes` by the extractors of the fakes."""
        self.real = self.embed(self.opened, "real")
        if self._opened_held_out is not None:
            needs = "fake" if like_fakes else None
            self.held_out = self.embed(self._opened_held_out, "held-out", needs=needs)

    def embed(
        self, opened: OpenedInput, role: str, *, needs: str | None = None, cache: bool | None = None
    ) -> SourceFeatures:
        """Embed "real", "fake" or "held-out" images by all extractors that the plans need for this role, or for another."""
        limit: int | None = 0
        extractors, elsewhere = list[ExtractorLike](), list[ExtractorLike]()
        declared, least = list[ExtractorLike](), 1
        for plan in self.plans:
            declared.append(plan.own)
            elsewhere += plan.extractors.values()
            needed = plan.needs[needs or role]
            limit = None if limit is None or needed.most is None else max(limit, needed.most)
            extractors += needed.extractors
            least = max(least, needed.least)
        if role == "real" and isinstance(opened, OpenedImages):
            require_all_weights(elsewhere, self.options)  # before any image is embedded
        embedder = self.embedder if cache is None else self.embedder.with_options(cache=cache)
        features = source_features(
            opened,
            role,
            embedder,
            extractors,
            minimum=least,
            limit=limit,
            declared=declared,
            elsewhere=elsewhere,
        )
        groups = self._groups(opened, role)
        if groups is None:
            return features
        return replace(features, data={key: in_groups(each, groups) for key, each in features.items()})

    def _groups(self, opened: OpenedInput, role: str) -> SourceLabels | None:
        """The groups of dependent images of a source, checked as far as names are known; None if all are independent."""
        given = self.options.fake_groups if role == "fake" else self.options.real_groups
        if given is None:
            return None
        groups = SourceLabels.open(given, opened, role, self.options.bad_images, hint=GROUPS_HINT)
        if groups.named is not None:
            check_groups(groups.named)
        return groups

    def fit(self, index: int = 0) -> None:
        """Fit the reals to one of the plans."""
        plan = self.plans[index]
        held_out = self.held_out if HELD_OUT.intersection(plan.extractors) else None
        self._fit_on[index] = partial(Reference, plan, self.real, held_out=held_out, labels=self.labels)
        self.references[index], notices = with_cpu_fallback(
            self.embedder, self._fit_on[index], "for the metrics"
        )
        self.notices |= dict.fromkeys(notices)
        # Other reals, options, labels or statistics on another rank are an error.
        if not current_communicator().is_single_process:
            current_communicator().check_same(self.references[index].recipe, "options")

    def has_images(self, *, required: bool) -> bool:
        """Whether values of images can be computed; an error if they are required."""
        try:
            check_samples(self.plans[0], self.real.n)
        except GenprError:
            if required:
                raise
            return False
        return True

    def score(
        self,
        fakes: SourceFeatures,
        index: int = 0,
        *,
        scorer: ClassScorer | None = None,
        by_image: bool = False,
    ) -> Scored:
        """Score embedded fakes by the plan of an index."""

        def work(embedder: Embedder) -> tuple[Result, PerImageScores | None]:
            if embedder is not self.references[index].embedder:
                self.references[index] = self._fit_on[index](embedder)
            return self.references[index].score(fakes, by_image=by_image)

        fitted = self.references[index].embedder  # on the CPU, if the GPU had too little memory for the reals
        (result, images), notices = with_cpu_fallback(fitted, work, "for the metrics")
        self.notices |= dict.fromkeys(notices)
        result = replace(result, notices=tuple(dict.fromkeys((*result.notices, *self.notices))))
        classes = None if scorer is None else scorer.score(self.real, fakes, result)
        result = result if classes is None else classes.overall
        if images is not None:
            images = replace(images, result=result, classes=classes)
        return Scored(result, classes, images)


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
        chosen = ScoreOptions(**options)
        self._limit = partial(memory_limit, chosen.max_memory, trim=True)
        with self._limit():
            self._run = ScoreRun(real, [chosen])
            self._run.embed_real()
            self._run.fit()

    @property
    def _reference(self) -> Reference:
        return self._run.references[0]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of a score, in display order."""
        labels = self._run.labels
        return (*self.plan.extractors, *(() if labels is None else labels.options.names))

    @property
    def source(self) -> str:
        """The reals, as they were given."""
        return self._reference.reals.source

    @property
    def content(self) -> str:
        """Hash of the contents of the reals, independent of their order."""
        return self._reference.described_reals[1].content

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
        return self._reference.plan

    @property
    def embedder(self) -> Embedder:
        """The embedder of images."""
        return self._run.embedder

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
        return self._score(fake, cache=cache).result

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
        found = self._score(fake, cache=cache, classes=classes, by_image=True).images
        assert found is not None
        return found

    @entry_point
    def score_classes(self, fake: object, **classes: Unpack[ClassOptions]) -> ClassScores:
        """Score one fake set like `score`, and each class: the reals of a class against its fakes.

        Classes have the default metrics and distances of the score, by default also `fd` and `kd`. Each image is embedded once.

        Args:
            fake: As for `score`.
            **classes: `real_labels` and `fake_labels`: a `.csv`, `.json` (StyleGAN's) or `.npy` file; "folders"; "pattern:REGEX"; a
                label per image in the order of the source; None to look into the source (`genpr.evaluation.labels.open_labels`).
                `min_per_class`: images that a class needs on each side to be scored, 50 by default.

        Raises:
            UsageError: An option is impossible, or the protocol is of whole sets.
            DataError: The fake side cannot be used, or the labels of the sides do not belong together.
        """
        found = self._score(fake, classes=classes).classes
        assert found is not None
        return found

    def _score(
        self,
        fake: object,
        *,
        cache: bool | None = None,
        classes: ClassOptions | None = None,
        by_image: bool = False,
    ) -> Scored:
        run = self._run
        with self._limit():
            by_image = by_image and run.has_images(required=True)
            opened = run.open_fake(fake)
            scorer = None if classes is None else run.class_scorer(opened, classes)
            fakes = run.embed(opened, "fake", cache=cache)
            return run.score(fakes, scorer=scorer, by_image=by_image)
