"""Scores during training, for any loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Result
from genpr.features.extractor import FeatureExtractor
from genpr.images.arrays import ImageRange, checked_range
from genpr.integrations.drawn import Drawn, Generate, Model, check_count, undisturbed
from genpr.integrations.history import History, Mode, Record, check_monitor
from genpr.integrations.reals import GivenReals
from genpr.metrics.f_beta import F_SCORE_METRICS

Log = Callable[[dict[str, float], int], object]


class GenprCallback(Generic[Model]):
    """Scores a model every so many steps of a training loop, and remembers the best.

    The real side is embedded and fitted once, here; each score then costs the fakes. The model is in evaluation mode and
    without gradients while it draws. Random numbers of torch, numpy and `random` are seeded before, the same each time, and
    as they were afterwards.

    Args:
        real: An `Evaluator`, or what it takes as reals.
        generate: Called with the model; gives batches of images, uint8 (b, 3, h, w), or floats of the declared range. Draw
            them from fixed latents, so that two steps differ by the model alone.
        every: Score at the steps that are a multiple of it.
        n: Images to score; None for all that `generate` gives.
        monitor: The score that decides which step is the best.
        mode: Whether more ("max") or less ("min") of it is better.
        log: Called with the scores and the step.
        intervals: Add both ends of 95 % intervals, as `genpr/precision_low` and `_high`.
        image_range: What float images run from and to, such as (-1, 1).
        seed: Of random numbers while drawing.
        extractor: See `genpr.Evaluator`; it belongs to it if `real` is one, and so do metrics.
        metrics: Names.

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
        every: int = 1,
        n: int | None = None,
        monitor: str = "genpr/f1",
        mode: Mode = "max",
        log: Log | None = None,
        intervals: bool = False,
        image_range: ImageRange | None = None,
        seed: int = 0,
        extractor: str | FeatureExtractor | None = None,
        metrics: Sequence[str] | None = None,
    ) -> None:
        check_count("every", every)
        if n is not None:
            check_count("n", n)
        self.history = History(monitor, mode)
        options = ScoreOptions(extractor=extractor, metrics=metrics, intervals=intervals)
        reals = GivenReals.of(real, options, of_evaluator=("extractor", "metrics"))
        check_monitor(monitor, _score_names(reals.plan, intervals=intervals))
        self._evaluator = reals.evaluator or Evaluator(real)  # which says what is wrong with None
        self._generate = generate
        self._every = every
        self._n = n
        self._log = log
        self._intervals = intervals
        self._image_range = checked_range(image_range)
        self._seed = seed
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
        return self.score(step, model) if step % self._every == 0 else {}

    def score(self, step: int, model: Model) -> dict[str, float]:
        """The same at any step."""
        images = Drawn(self._generate, model, self._n, self._seed, self._image_range)
        with undisturbed(model):
            self.result = self._evaluator.score(images)
        scores = self.result.to_flat_dict(intervals=self._intervals)
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
