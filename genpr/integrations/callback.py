"""Scores during training, for any loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, Unpack

from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Result
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import option, takes_options
from genpr.images.arrays import ImageRange, checked_range
from genpr.integrations.drawn import Drawn, Generate, Model, check_count, undisturbed
from genpr.integrations.history import History, Mode, Record, check_monitor
from genpr.integrations.reals import GivenReals
from genpr.metrics.f_beta import F_SCORE_METRICS

Log = Callable[[dict[str, float], int], object]


class CallbackKeywords(TypedDict, total=False):
    """The fields of `CallbackOptions` as keyword arguments."""

    every: int
    n: int | None
    monitor: str
    mode: Mode
    intervals: bool
    image_range: ImageRange | None
    seed: int
    extractor: str | FeatureExtractor | None
    metrics: Sequence[str] | None


@dataclass(frozen=True, kw_only=True)
class CallbackOptions:
    """What a callback draws, scores and monitors.

    Raises:
        UsageError: An option is impossible ("bad-option").
    """

    every: int = option(1, "Score after every so many steps, or epochs.")
    n: int | None = option(None, "Images to score.", unset="all that `generate` gives")
    monitor: str = option("genpr/f1", "The score that decides which step is the best.")
    mode: Mode = option("max", 'Whether more ("max") or less ("min") of it is better.')
    intervals: bool = option(
        False, "Add both ends of 95 % intervals, as `genpr/precision_low` and `genpr/precision_high`."
    )
    image_range: ImageRange | None = option(None, "What float images run from and to, such as (-1, 1).")
    seed: int = option(0, "Seed of random numbers while drawing.")
    extractor: str | FeatureExtractor | None = option(
        None, "See `genpr.Evaluator`; it belongs to it if `real` is one, and so do metrics."
    )
    metrics: Sequence[str] | None = option(None, "Names.")

    def __post_init__(self) -> None:
        check_count("every", self.every)
        if self.n is not None:
            check_count("n", self.n)
        checked_range(self.image_range)


@takes_options(CallbackOptions)
class GenprCallback(Generic[Model]):
    """Scores a model every so many steps of a training loop, and remembers the best.

    The real side is embedded and fitted once, here; each score then costs the fakes. The model is in evaluation mode and
    without gradients while it draws. Random numbers of torch, numpy and `random` are seeded before, the same each time, and
    as they were afterwards.

    Args:
        real: An `Evaluator`, or what it takes as reals.
        generate: Called with the model; gives batches of images, uint8 (b, 3, h, w), or floats of the declared range. Draw
            them from fixed latents, so that two steps differ by the model alone.
        log: Called with the scores and the step.
        **options: The fields of `CallbackOptions`.

    Attributes:
        history: All scores, and the best.
        result: The last score with everything that is known about it.

    Raises:
        UsageError: An option is impossible, or the monitored score will not be computed.
        DataError: The real side cannot be used.

    Example:
        >>> import torch
        >>> reals = torch.randint(256, (30, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        >>> callback = GenprCallback(reals, lambda brightness: [reals + brightness], extractor="gabor")
        >>> for step, brightness in enumerate([60, 0, 90]):
        ...     scores = callback(step, brightness)
        >>> callback.best.step, callback.best.scores["genpr/f1"]
        (1, 1.0)
    """

    def __init__(
        self,
        real: object,
        generate: Generate[Model],
        *,
        log: Log | None = None,
        **options: Unpack[CallbackKeywords],
    ) -> None:
        chosen = CallbackOptions(**options)
        self.history = History(chosen.monitor, chosen.mode)
        of_score = ScoreOptions(
            extractor=chosen.extractor, metrics=chosen.metrics, intervals=chosen.intervals
        )
        reals = GivenReals.of(real, of_score, of_evaluator=("extractor", "metrics"))
        check_monitor(chosen.monitor, _score_names(reals.plan, intervals=chosen.intervals))
        self._evaluator = reals.evaluator or Evaluator(real)  # which says what is wrong with None
        self._generate = generate
        self._log = log
        self._options = chosen
        self.result: Result | None = None

    @property
    def best(self) -> Record | None:
        """The best so far; the first of equals."""
        return self.history.best

    def __call__(self, step: int, model: Model) -> dict[str, float]:
        """Score the model, if it is time.

        Returns:
            `{"genpr/precision": ..., "genpr/f1": ...}`; nothing at a step in between.

        Raises:
            DataError: The images cannot be scored, or are fewer than `n`.
        """
        return self.score(step, model) if step % self._options.every == 0 else {}

    def score(self, step: int, model: Model) -> dict[str, float]:
        """The same at any step."""
        chosen = self._options
        images = Drawn(self._generate, model, chosen.n, chosen.seed, checked_range(chosen.image_range))
        with undisturbed(model):
            self.result = self._evaluator.score(images)
        scores = self.result.to_flat_dict(intervals=chosen.intervals)
        self.history.add(step, scores)
        if self._log is not None:
            self._log(dict(scores), step)
        return scores

    def state_dict(self) -> dict[str, Any]:
        """The history, as plain JSON types, for a training that goes on later."""
        return self.history.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a history.

        Raises:
            DataError: It is none.
        """
        self.history.load(state)


def _score_names(plan: ScorePlan, *, intervals: bool) -> list[str]:
    """What `Result.to_flat_dict` may hold."""
    names = list(plan.spaces)
    ends = [f"{name}_{end}" for name in names for end in ("low", "high")] if intervals else []
    f1 = ["f1"] if set(names).issuperset(F_SCORE_METRICS) else []
    return [f"genpr/{name}" for name in [*names, *f1, *ends]]
