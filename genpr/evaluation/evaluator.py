"""A real set, embedded and fitted once, against which any number of fake sets is scored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from genpr.errors import GenprError
from genpr.evaluation.held_out import embedded_held_out
from genpr.evaluation.label_metrics import LabelConfig
from genpr.evaluation.label_options import LabelOptions
from genpr.evaluation.per_class import MIN_IMAGES, WEAKEST_FIRST, ClassOptions, ClassScorer, ClassScores
from genpr.evaluation.per_image import PerImageScores, check_samples
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.reference import FittedReference
from genpr.evaluation.result import Result
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedSide, check_same_kind, open_side
from genpr.features.options import EmbedOptions, StageProgress
from genpr.images.policy import MAX_PIXELS, BadImagePolicy
from genpr.memory import memory_limit, parse_size
from genpr.validation import check_ties


class Evaluator:
    """A real set, embedded and fitted once, against which any number of fake sets is scored.

    Args:
        real: Real images or their features: a path (docs/sources.md lists what may lie there), a uint8 array
            (n, h, w, 3) or tensor (n, 3, h, w); a float array or tensor (n, d) of features; a Dataset; or an
            iterable of image batches.
        extractor: A name, `module:factory`, `file.py:factory`, or an object that follows the
            `FeatureExtractor` protocol; None takes the protocol's. Feature files bring their own.
        protocol: Name of a recipe (`genpr list protocols`); what it pins cannot be given otherwise.
        metrics: Names from `genpr list metrics`; None for the protocol's, "all" for every one on the score's features.
        k: Neighbours for every metric that counts them; None takes the protocol's (3 for precision and recall, else 5).
        ties: "closed" or "strict" balls; None takes the protocol's.
        max_images: Score a random subset of at most this many images of each side.
        seed: Chooses that subset, the halves of intervals and of the control, and whatever else is drawn at random of
            features: blocks of either side, clusters of reals.
        device: "auto", "cpu", "cuda" or "cuda:N". With "auto" the CPU goes on where a GPU has too little memory.
        batch_size: Images per forward pass of the extractor.
        weights: File with the extractor's weights, or a folder of such files under their published names, instead of
            the downloaded ones.
        offline: Never download.
        cache: Keep features of images that come from files, so that the next run embeds only new ones.
        cache_dir: Where; None takes GENPR_CACHE or the user's cache folder.
        on_bad: "error" refuses a source with unusable images after listing all; "skip" leaves them out.
        max_bad: With "skip", the largest tolerated share of unusable images.
        max_pixels: Images with more pixels are refused before they are decoded.
        alpha: "drop" leaves transparency out, as reference loaders do; "white", "black" or "#rrggbb" is laid behind it.
        exif: "ignore" takes pixels as stored, as those do too; "apply" turns them by their EXIF orientation.
        max_memory: Plan with at most so many bytes for the process, such as "8GiB"; features that are larger than
            that allows are mapped from a file. None takes what is free.
        intervals: Find 95 % intervals by scoring 100 halves of both sets, all in one more pass.
        held_out: More reals, of the same kind, that the generator was not trained on; the real side should then be those
            that it was trained on. They add `c_t`, a test for copying.
        control: Score one half of the reals against the other, once, for what a perfect generator would show.
        equal_sizes: Where the sides differ in size, cut the larger one at random into blocks of the size of the smaller,
            and average over them, in coverage and the other metrics that hang on the ratio of the sizes
            (`genpr.metrics.registry.SIZE_SENSITIVE`). They then have no interval.
        labels: Compare the labels that fakes were asked for with what they are recognised as, too: adds `label.*` metrics
            and `Result.labels`. None leaves that out.
        progress: Called with a stage ("real", "fake", "neighbours"), what is done, and the total or None.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: The real side cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> evaluator = Evaluator(rng.normal(size=(200, 8)))
        >>> result = evaluator.score(rng.normal(size=(200, 8)))
        >>> list(result.metrics)
        ['precision', 'recall', 'density', 'coverage']
    """

    def __init__(
        self,
        real: object,
        *,
        extractor: str | FeatureExtractor | None = None,
        protocol: str = "genpr",
        metrics: Sequence[str] | None = None,
        k: int | None = None,
        ties: Literal["closed", "strict"] | None = None,
        max_images: int | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        batch_size: int = 64,
        weights: str | os.PathLike[str] | None = None,
        offline: bool = False,
        cache: bool = True,
        cache_dir: str | os.PathLike[str] | None = None,
        on_bad: Literal["error", "skip"] = "error",
        max_bad: float = 0.01,
        max_pixels: int = MAX_PIXELS,
        alpha: str = "drop",
        exif: Literal["ignore", "apply"] = "ignore",
        max_memory: str | int | None = None,
        intervals: bool = True,
        control: bool = True,
        held_out: object = None,
        equal_sizes: bool = False,
        labels: LabelOptions | None = None,
        progress: StageProgress | None = None,
    ) -> None:
        if ties is not None:
            check_ties(ties)
        find_protocol(protocol)
        self._max_memory = None if max_memory is None else parse_size(max_memory)
        self._embedder = Embedder(
            EmbedOptions(
                device=device,
                weights=weights,
                offline=offline,
                max_images=max_images,
                seed=seed,
                batch_size=batch_size,
                cache=cache,
                cache_dir=cache_dir,
                on_bad=on_bad,
                max_bad=max_bad,
                max_pixels=max_pixels,
                alpha=alpha,
                exif=exif,
                progress=progress,
            )
        )
        with memory_limit(self._max_memory, trim=True):
            self._real = real if isinstance(real, str | os.PathLike) else None  # where labels may be
            self._opened_real = open_side(real, "real")
            self._plan = ScorePlan.of(
                protocol,
                self._opened_real,
                extractor=extractor,
                metrics=metrics,
                k=k,
                ties=ties,
                intervals=intervals,
                control=control,
                held_out=held_out is not None,
                equal_sizes=equal_sizes,
            )
            self._labels = LabelConfig.of(labels, self._opened_real, BadImagePolicy(on_bad, max_bad))
            reals = SideFeatures(
                self._opened_real, "real", self._embedder, limit=self._plan.most_real, own=[self._plan.own]
            )
            reals.require(
                self._plan.real_spaces, minimum=self._plan.least_real, for_metrics=self._plan.looked_at
            )
            kept = embedded_held_out(held_out, self._opened_real, [self._plan], self._embedder)
            self._reference = FittedReference(self._plan, reals, self._embedder, kept, self._labels)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What a score computes, in display order."""
        asked = () if self._labels is None else self._labels.options.names
        return (*self._plan.spaces, *asked)

    @property
    def n_real(self) -> int:
        """Number of reals."""
        return len(self._reference.reals)

    @property
    def recipe(self) -> dict[str, Any]:
        """Everything but the fakes that decides a score, as plain JSON types: two evaluators of equal recipe agree."""
        return self._reference.recipe

    @property
    def plan(self) -> ScorePlan:
        """What it computes, of which features."""
        return self._plan

    @property
    def tells_of_images(self) -> bool:
        """Whether `evidence` can be had: neighbours are counted, by one network, among enough reals."""
        try:
            check_samples(self._plan, self._reference.reals)
        except GenprError:
            return False
        return True

    @property
    def embedder(self) -> Embedder:
        """How images become features."""
        return self._embedder

    def score(self, fake: object, *, cache: bool | None = None) -> Result:
        """Score one fake set; only the fake side is embedded and fitted.

        Args:
            fake: Anything that `real` may be, of the same kind: images against images, features against
                features of the same extractor. A `FeatureSet` that says by which extractor it was embedded goes with
                reals of either kind.
            cache: Keep features of this set for the next run; None does as the Evaluator was told to. The samples of a
                training run are seldom scored twice, and would only fill the disk.

        Raises:
            UsageError: The path does not exist.
            DataError: The fake side cannot be used, or does not belong to the real side.
        """
        with memory_limit(self._max_memory, trim=True):
            return self._reference.score(self._embedded(self._opened(fake), cache))

    def evidence(
        self, fake: object, *, cache: bool | None = None, classes: ClassOptions | None = None
    ) -> PerImageScores:
        """Score one fake set as `score` does, and keep what is known of each image on both sides.

        It takes about twice the search of a score, and memory for one row of numbers per image.

        Args:
            fake: As of `score`.
            cache: As of `score`.
            classes: Score class by class, too, with these keyword arguments of `score_classes`, of which there may be
                none; None does not.

        Raises:
            UsageError: The path does not exist, or no metric of this evaluator tells of single images.
            DataError: The fake side cannot be used, or does not belong to the real side; or there are too few reals.

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
        with memory_limit(self._max_memory, trim=True):
            check_samples(self._plan, self._reference.reals)
            opened = self._opened(fake)
            recipe = None if classes is None else self._class_recipe(fake, opened, classes)
            fakes = self._embedded(opened, cache)
            found = self._reference.per_image(fakes)
            if recipe is None:
                return found
            return replace(found, classes=recipe.score(self._reference.real, fakes, found.result))

    def score_classes(
        self,
        fake: object,
        *,
        real_labels: object = None,
        fake_labels: object = None,
        min_per_class: int = MIN_IMAGES,
        worst_by: str = WEAKEST_FIRST,
    ) -> ClassScores:
        """Score one fake set as `score` does, and its classes one by one: reals of a class against fakes of the same.

        Every image is embedded once.

        Args:
            fake: As for `score`.
            real_labels: Labels of the reals: a `.csv`, `.json` (StyleGAN's) or `.npy` file; "folders"; a label per image
                in the order of the source; None to look into the source (`genpr.evaluation.labels.open_labels`).
            fake_labels: Labels of the fakes.
            min_per_class: Images that a class needs on each side to be scored.
            worst_by: The order of the classes: "null", by the mean of value over null, or one metric.

        Raises:
            UsageError: An option is impossible, or the protocol is of whole sets.
            DataError: The fake side cannot be used, or the labels of the sides do not belong together.
        """
        with memory_limit(self._max_memory, trim=True):
            opened = self._opened(fake)
            options = ClassOptions(
                real_labels=real_labels,
                fake_labels=fake_labels,
                min_per_class=min_per_class,
                worst_by=worst_by,
            )
            recipe = self._class_recipe(fake, opened, options)
            fakes = self._embedded(opened, None)
            return recipe.score(self._reference.real, fakes, self._reference.score(fakes))

    def _class_recipe(self, fake: object, opened: OpenedSide, options: ClassOptions) -> ClassScorer:
        both = self._opened_real, opened
        return ClassScorer.of(self._plan, self._embedder, sources=(self._real, fake), opened=both, **options)

    def _opened(self, fake: object) -> OpenedSide:
        opened = open_side(fake, "fake")
        if not (isinstance(fake, FeatureSet) and fake.extractor is not None):
            check_same_kind(self._opened_real, opened)
        if self._labels is not None:
            self._labels.check(opened)
        return opened

    def _embedded(self, opened: OpenedSide, cache: bool | None) -> SideFeatures:
        embedder = self._embedder if cache is None else self._embedder.with_options(cache=cache)
        fakes = SideFeatures(opened, "fake", embedder, limit=self._plan.most_fake, own=[self._plan.own])
        fakes.require(self._plan.spaces.values(), minimum=self._plan.least_fake)
        return fakes
