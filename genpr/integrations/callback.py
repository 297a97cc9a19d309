"""Scores during training, for any training loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Literal, TypeVar, Unpack

import numpy as np
import torch
from torch import Tensor

from genpr.checkpoints.generator import device_of, generator_errors, inference_context, seed_noise
from genpr.errors import DataError, UsageError, some
from genpr.evaluation.options import ScoreKeywords, ScoreOptions
from genpr.evaluation.result import Result
from genpr.features.options import option, takes_options
from genpr.images.arrays import ImageRange, checked_range
from genpr.integrations.common import as_uint8, given_evaluator, warn_no_overlap
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.storage import from_dict
from genpr.validation import is_plain, kind_of

Model = TypeVar("Model")
Images = Tensor | np.ndarray[Any, np.dtype[Any]]
Generate = Callable[[Model], Iterable[Images]]
Log = Callable[[dict[str, float], int], object]
Mode = Literal["max", "min"]
_END = object()


@dataclass(frozen=True)
class Record:
    """The scores at one training step, by name, such as "genpr/precision"."""

    step: int
    scores: Mapping[str, float]


@dataclass
class History:
    """A sequence of scores in order of time; `best` is the first record with the best value of `monitor`."""

    monitor: str
    mode: Mode = "max"
    records: list[Record] = field(default_factory=list, init=False)

    @property
    def best(self) -> Record | None:
        """The best record; None if no record has a value of the monitored score."""
        known = [record for record in self.records if self.monitor in record.scores]
        sign = 1 if self.mode == "max" else -1
        return max(known, key=lambda record: sign * record.scores[self.monitor], default=None)

    def add(self, step: int, scores: Mapping[str, float]) -> None:
        """Append a record."""
        self.records.append(Record(int(step), dict(scores)))

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types, to resume training later."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the records of `state_dict`."""
        try:
            self.records = [*from_dict(tuple[Record, ...], state["records"])]
        except (KeyError, TypeError, ValueError) as error:
            text = f"this is not a history of scores ({type(error).__name__}: {error})"
            raise DataError(text, code="bad-history") from error


@dataclass(frozen=True)
class GeneratedBatches(Generic[Model]):
    """The images of a model in batches; each pass calls `generate` again, with the same noise.

    At most `n` images are drawn; None draws all.
    """

    generate: Generate[Model]
    model: Model
    options: CallbackOptions

    def __iter__(self) -> Iterator[Images]:
        n, image_range = self.options.n, checked_range(self.options.image_range)
        device, left, batches = device_of(self.model, "auto", "the model"), n, None
        for number in itertools.count():
            if left == 0:
                return
            # Restored after every batch. Not in inference mode, since a model could not train with tensors that it keeps.
            with (
                inference_context(self.model, device),
                torch.inference_mode(False),
                torch.no_grad(),
                generator_errors("generate"),
            ):
                seed_noise(self.options.seed, number)
                batches = iter(self.generate(self.model)) if batches is None else batches
                batch = next(batches, _END)
            if batch is _END:
                break
            if not (isinstance(batch, np.ndarray) or is_plain(batch)) or batch.ndim != 4:
                raise DataError(
                    f"generate must return batches of images, uint8 (b, 3, h, w), but returned {kind_of(batch)}; return a list of "
                    "batches, not one batch",
                    code="array-type",
                )
            taken = as_uint8(batch, image_range)[:left]
            left = None if left is None else left - len(taken)
            yield taken
        if left:
            raise DataError(
                f"generate returned {(n or 0) - left} images, but n = {n} are needed; return more images, or lower n",
                code="too-few-images",
            )


def _checked_step(step: object) -> int:
    """The number of a step, which loggers may give as a float or a tensor."""
    with suppress(TypeError, ValueError, OverflowError, RuntimeError):
        number = int(step)  # type: ignore[call-overload]
        if number == step:
            return int(number)
    raise UsageError(f"the step must be an integer, not {step!r:.60}", code="bad-option")


class CallbackKeywords(ScoreKeywords, total=False):
    """The fields of `CallbackOptions` as keyword arguments."""

    every: int
    n: int | None
    monitor: str
    mode: Mode
    image_range: ImageRange | None


@dataclass(frozen=True, kw_only=True)
class CallbackOptions(ScoreOptions):
    """Options of a callback: what it draws, scores and monitors; and of the `Evaluator`, unless `real` is one."""

    every: int = option(1, "Interval between two scores, in steps or epochs.", least=1)
    n: int | None = option(None, "Number of images.", unset="all that `generate` returns", least=1)
    monitor: str = option("genpr/f1", "Score that determines the best step.")
    mode: Mode = option("max", "The best value of it, max or min.", choices=("max", "min"))
    image_range: ImageRange | None = option(
        None, "Values of black and white in float images, such as (-1, 1).", check=checked_range
    )
    intervals: bool = option(
        False, "Add both ends of 95 % intervals, as `genpr/precision_low` and `genpr/precision_high`."
    )
    control: bool = option(False, "Score one half of the reals against the other, as a baseline.")
    seed: int = option(0, "Random seed, also of drawing.", least=0)


@takes_options(CallbackOptions)
class GenprCallback(Generic[Model]):
    """Scores a model at regular steps of a training loop, and keeps the best score.

    The reals are embedded and fitted once, when the callback is created. The model draws in evaluation mode, in float32 without
    autocast and without gradients. Random numbers of torch, numpy and `random` are seeded for each batch, equally each time,
    and their states are restored afterwards.

    Args:
        real: An `Evaluator`, or a source of reals for it.
        generate: Called with the model; returns batches of images, tensors (b, 3, h, w) or arrays (b, h, w, 3), uint8 or floats of
            the declared range. Draw them from fixed latents, so that steps differ only by the model.
        log: Called with the scores and the step.
        **options: The fields of `CallbackOptions`.

    Attributes:
        history: All scores, and the best.
        result: The last result.

    Raises:
        UsageError: An option is impossible, or the monitored score is not computed.
        DataError: The reals cannot be used.

    Example:
        >>> import torch
        >>> reals = torch.randint(256, (30, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        >>> callback = GenprCallback(reals, lambda brightness: [reals + brightness], extractor="gabor")
        >>> for step, brightness in enumerate([60, 0, 90]):
        ...     scores = callback(step, brightness)
        >>> callback.history.best.step, callback.history.best.scores["genpr/f1"]
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
        self._evaluator = given_evaluator(real, chosen, options.keys() - {"seed", "intervals"})
        names = list(self._evaluator.plan.extractors)
        ends = [f"{name}_{end}" for name in names for end in ("low", "high")] if chosen.intervals else []
        f1 = ["f1"] if set(names).issuperset(F_SCORE_METRICS) else []
        logged = [f"genpr/{name}" for name in [*names, *f1, *ends]]  # possible keys of `Result.to_flat_dict`
        if chosen.monitor not in logged:
            text = f"monitor {chosen.monitor!r} is not computed; computed scores are {some(logged, 20)}"
            raise UsageError(text, code="bad-option")
        self._generate = generate
        self._log = log
        self._options = chosen
        self.result: Result | None = None

    def __call__(self, step: int, model: Model) -> dict[str, float]:
        """Score the model at steps that are multiples of `every`: `{"genpr/precision": ..., "genpr/f1": ...}`, else empty."""
        return self.score(step, model) if _checked_step(step) % self._options.every == 0 else {}

    def score(self, step: int, model: Model) -> dict[str, float]:
        """Score the model at any step."""
        step, chosen = _checked_step(step), self._options
        self.result = self._evaluator.score(GeneratedBatches(self._generate, model, chosen))
        warn_no_overlap(self.result)
        scores = self.result.to_flat_dict(intervals=chosen.intervals)
        self.history.add(step, scores)
        if self._log is not None:
            self._log(dict(scores), step)
        return scores
