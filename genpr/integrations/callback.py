"""Scores during training, for any loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from torch import Tensor

from genpr.checkpoints.generator import device_of, inference_context, seed_noise
from genpr.errors import DataError, UsageError, some
from genpr.evaluation.options import ScoreOptions
from genpr.evaluation.result import Result
from genpr.features.extractor import FeatureExtractor
from genpr.features.options import option, takes_options
from genpr.images.arrays import ImageRange, checked_range
from genpr.integrations.common import as_uint8, given_evaluator
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.storage import from_dict
from genpr.validation import check_count

Model = TypeVar("Model")
Images = Tensor | np.ndarray[Any, np.dtype[np.uint8]]
Generate = Callable[[Model], Iterable[Images]]
Log = Callable[[dict[str, float], int], object]
Mode = Literal["max", "min"]
_OF_EVALUATOR = ("extractor", "metrics", "prepare")


@dataclass(frozen=True)
class Record:
    """The scores at one step of the training, by name, such as "genpr/precision"."""

    step: int
    scores: Mapping[str, float]


@dataclass
class History:
    """Scores in the order in which they came; `best` is the first of those with the best value of `monitor`."""

    monitor: str
    mode: Mode = "max"
    records: list[Record] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise UsageError(f"mode must be 'max' or 'min', not {self.mode!r}", code="bad-option")

    @property
    def best(self) -> Record | None:
        """None while no record has the monitored score, which has no value for some images."""
        known = [record for record in self.records if self.monitor in record.scores]
        sign = 1 if self.mode == "max" else -1
        return max(known, key=lambda record: sign * record.scores[self.monitor], default=None)

    def add(self, step: int, scores: Mapping[str, float]) -> None:
        """One more."""
        self.records.append(Record(int(step), dict(scores)))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types."""
        records = [{"step": record.step, "scores": dict(record.scores)} for record in self.records]
        return {"monitor": self.monitor, "mode": self.mode, "records": records}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the records of `to_dict`."""
        try:
            self.records = [*from_dict(tuple[Record, ...], state["records"])]
        except (KeyError, TypeError, ValueError) as error:
            text = f"this is no history of scores ({type(error).__name__}: {error})"
            raise DataError(text, code="bad-history") from error


@dataclass(frozen=True)
class Drawn(Generic[Model]):
    """The images of one model, batch by batch; each pass over them calls `generate` again, with the same noise.

    Of `n` images the rest is not drawn; None takes all.
    """

    generate: Generate[Model]
    model: Model
    n: int | None
    seed: int
    image_range: ImageRange | None

    def __iter__(self) -> Iterator[Images]:
        device, left, batches = device_of(self.model, "auto", "the model"), self.n, None
        for number in itertools.count():
            if left == 0:
                return
            # Restored after every batch. No inference mode: a model that keeps tensors of it could not train with them.
            with inference_context(self.model, device), torch.inference_mode(False), torch.no_grad():
                seed_noise(self.seed, number)
                batches = iter(self.generate(self.model)) if batches is None else batches
                batch = next(batches, None)
            if batch is None:
                break
            if not isinstance(batch, Tensor | np.ndarray) or batch.ndim != 4:
                came = f"{type(batch).__name__}{tuple(getattr(batch, 'shape', ())) or ''}"
                raise DataError(
                    f"generate must give batches of images, uint8 (b, 3, h, w), but gave {came}; return a list of "
                    "batches, not one batch",
                    code="array-type",
                )
            taken = (as_uint8(batch, self.image_range) if isinstance(batch, Tensor) else batch)[:left]
            left = None if left is None else left - len(taken)
            yield taken
        if left:
            raise DataError(
                f"generate gave {(self.n or 0) - left} images, but n = {self.n} are to be scored; let it give more, or "
                "lower n",
                code="too-few-images",
            )


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
    prepare: str | None


@dataclass(frozen=True, kw_only=True)
class CallbackOptions:
    """What a callback draws, scores and monitors."""

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
        None, "See `genpr.Evaluator`. If `real` is one, extractor, metrics and prepare are options of that."
    )
    metrics: Sequence[str] | None = option(None, "Names of metrics.")
    prepare: str | None = option(None, "Crop or resize images of both sides, such as center-crop:256.")

    def __post_init__(self) -> None:
        check_count(self.every, "every", minimum=1)
        check_count(self.seed, "seed", minimum=0)
        if self.n is not None:
            check_count(self.n, "n", minimum=1)
        checked_range(self.image_range)


@takes_options(CallbackOptions)
class GenprCallback(Generic[Model]):
    """Scores a model every so many steps of a training loop, and remembers the best.

    The real side is embedded and fitted once, here; each score then costs the fakes. The model draws in evaluation mode, in
    float32 without autocast and without gradients. Random numbers of torch, numpy and `random` are seeded for each batch,
    the same each time, and as they were afterwards.

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
        own = {name: getattr(chosen, name) for name in _OF_EVALUATOR}
        of_score = ScoreOptions(**own, intervals=chosen.intervals, control=False)
        self._evaluator = given_evaluator(real, of_score, of_evaluator=_OF_EVALUATOR)
        names = list(self._evaluator.plan.spaces)
        ends = [f"{name}_{end}" for name in names for end in ("low", "high")] if chosen.intervals else []
        f1 = ["f1"] if set(names).issuperset(F_SCORE_METRICS) else []
        told = [f"genpr/{name}" for name in [*names, *f1, *ends]]  # what `Result.to_flat_dict` may hold
        if chosen.monitor not in told:
            text = f"monitor {chosen.monitor!r} is not computed; there are {some(told, 20)}"
            raise UsageError(text, code="bad-option")
        self._generate = generate
        self._log = log
        self._options = chosen
        self.result: Result | None = None

    @property
    def best(self) -> Record | None:
        """The best so far; the first of equals."""
        return self.history.best

    def __call__(self, step: int, model: Model) -> dict[str, float]:
        """Score the model, if it is time: `{"genpr/precision": ..., "genpr/f1": ...}`; nothing at a step in between."""
        return self.score(step, model) if step % self._options.every == 0 else {}

    def score(self, step: int, model: Model) -> dict[str, float]:
        """The same at any step."""
        chosen = self._options
        images = Drawn(self._generate, model, chosen.n, chosen.seed, checked_range(chosen.image_range))
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
        """Take up a history."""
        self.history.load(state)
