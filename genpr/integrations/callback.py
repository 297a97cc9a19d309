"""Scores during training, for any loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, Unpack

from genpr.errors import DataError, UsageError, some
from genpr.evaluation.evaluator import Evaluator
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Result
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import option, takes_options
from genpr.images.arrays import ImageRange, checked_range
from genpr.integrations.drawn import Drawn, Generate, Model, check_count, undisturbed
from genpr.integrations.reals import GivenReals
from genpr.metrics.f_beta import F_SCORE_METRICS

Log = Callable[[dict[str, float], int], object]
Mode = Literal["max", "min"]


@dataclass(frozen=True)
class Record:
    """One score.

    Attributes:
        step: Of the training.
        scores: By name, such as "genpr/precision".
    """

    step: int
    scores: Mapping[str, float]


@dataclass
class History:
    """Scores in the order in which they came.

    Args:
        monitor: The score that decides which record is the best.
        mode: Whether more of it is better.

    Attributes:
        records: All of them.
        best: The first of those with the best value; None while none has one.

    Raises:
        UsageError: The mode is neither "max" nor "min".
    """

    monitor: str
    mode: Mode = "max"
    records: list[Record] = field(default_factory=list, init=False)
    best: Record | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise UsageError(f"mode must be 'max' or 'min', not {self.mode!r}", code="bad-option")

    def add(self, step: int, scores: Mapping[str, float]) -> None:
        """One more; where it lacks the monitored score, which has no value for some images, it is not the best."""
        record = Record(step, dict(scores))
        self.records.append(record)
        if self._is_better(record):
            self.best = record

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        records = [{"step": record.step, "scores": dict(record.scores)} for record in self.records]
        return {"monitor": self.monitor, "mode": self.mode, "records": records}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the records of `to_dict`; the best is found anew, by the monitor and mode of this object.

        Raises:
            DataError: It is no such dict.
        """
        try:
            records = [_record_of(each) for each in state["records"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"this is no history of scores ({type(error).__name__}: {error}); was it written by another program?",
                code="bad-history",
            ) from error
        self.records, self.best = [], None
        for record in records:
            self.add(record.step, record.scores)

    def _is_better(self, record: Record) -> bool:
        value = record.scores.get(self.monitor)
        if value is None:
            return False
        if self.best is None:
            return True
        best = self.best.scores[self.monitor]
        return value > best if self.mode == "max" else value < best


def check_monitor(monitor: str, known: Sequence[str]) -> None:
    """Refuse a monitor that will never have a value.

    Raises:
        UsageError: It is not among the scores.
    """
    if monitor not in known:
        raise UsageError(
            f"monitor {monitor!r} is not computed; there are {some(known, 20)}", code="bad-option"
        )


def _record_of(state: Mapping[str, Any]) -> Record:
    scores = {str(name): float(value) for name, value in state["scores"].items()}
    if not all(map(math.isfinite, scores.values())):
        raise ValueError("a score is not finite")
    return Record(int(state["step"]), scores)


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
