"""Scores during training with Lightning, so that `ModelCheckpoint` keeps the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from genpr.distributed import TrainingRanks, check_seconds
from genpr.errors import ResourceError
from genpr.features.extractor import FeatureExtractor
from genpr.images.arrays import ImageRange, checked_range
from genpr.integrations.callback import GenprCallback
from genpr.integrations.drawn import Images, check_count
from genpr.integrations.history import History, Mode, Record

try:
    import lightning.pytorch as pl
except ModuleNotFoundError:
    try:
        import pytorch_lightning as pl  # type: ignore[no-redef]
    except ModuleNotFoundError as error:
        raise ResourceError(
            "genpr.integrations.lightning needs Lightning: pip install lightning", code="package-missing"
        ) from error


class GenprLightningCallback(pl.Callback):
    """Scores the module every so many epochs and logs the scores.

    With a validation loop it runs after it, else at the end of the training epoch; in both cases before
    `ModelCheckpoint(monitor="genpr/f1", mode="max")` looks. In a distributed run the first rank draws and scores, the
    others wait and log the same; so the module must be whole on one rank, which it is not under FSDP or DeepSpeed stage 3.

    Logged values are float32, as Lightning keeps them; those in `history` are as computed. The history is part of
    Lightning's checkpoints.

    Args:
        real: An `Evaluator`, or what it takes as reals. It is fitted at the first score, on the first rank only.
        generate: Called with the module; see `GenprCallback`, as for all down to `metrics`.
        every: Score after each `every` epochs; a `ModelCheckpoint` that monitors a score needs `every_n_epochs` of the same.
        n: Images to score.
        monitor: The score that decides which epoch is the best.
        mode: Whether more ("max") or less ("min") of it is better.
        intervals: Add both ends of 95 % intervals.
        image_range: What float images run from and to.
        seed: Of random numbers while drawing.
        extractor: See `genpr.Evaluator`.
        metrics: Names.
        prog_bar: Show the monitored score beside the progress.
        timeout: Seconds that the other ranks wait for the first.

    Attributes:
        history: All scores, with epochs (from 0) as steps, and the best; the same on every rank.

    Raises:
        UsageError: An option is impossible.
    """

    def __init__(
        self,
        real: object,
        generate: Callable[[Any], Iterable[Images]],
        *,
        every: int = 1,
        n: int | None = None,
        monitor: str = "genpr/f1",
        mode: Mode = "max",
        intervals: bool = False,
        image_range: ImageRange | None = None,
        seed: int = 0,
        extractor: str | FeatureExtractor | None = None,
        metrics: Sequence[str] | None = None,
        prog_bar: bool = True,
        timeout: float = 3600.0,
    ) -> None:
        super().__init__()
        check_count("every", every)
        if n is not None:
            check_count("n", n)
        checked_range(image_range)
        check_seconds("timeout", timeout)
        self.history = History(monitor, mode)
        self._every = every
        self._prog_bar = prog_bar
        self._timeout = timeout
        self._scorer: GenprCallback[Any] | None = None

        def make() -> GenprCallback[Any]:
            return GenprCallback(
                real,
                generate,
                n=n,
                monitor=monitor,
                mode=mode,
                intervals=intervals,
                image_range=image_range,
                seed=seed,
                extractor=extractor,
                metrics=metrics,
            )

        self._make = make

    @property
    def best(self) -> Record | None:
        """The best so far; the first of equals."""
        return self.history.best

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Score, where training has a validation loop."""
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._score(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Score, where training has none."""
        if not trainer.enable_validation:
            self._score(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The history, for Lightning's checkpoints."""
        return self.history.to_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the history of a checkpoint.

        Raises:
            DataError: It is none.
        """
        self.history.load(state_dict)

    def _score(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch
        if (epoch + 1) % self._every:
            return

        def compute() -> dict[str, float]:
            if self._scorer is None:
                self._scorer = self._make()
            return self._scorer.score(epoch, pl_module)

        scores = TrainingRanks.of().broadcast_from_rank0("genpr's score", compute, timeout=self._timeout)
        self.history.add(epoch, scores)
        monitor = self.history.monitor
        shown = {name: value for name, value in scores.items() if name == monitor}
        rest = {name: value for name, value in scores.items() if name != monitor}
        # Every rank logs, since every rank has a ModelCheckpoint; they are equal, so there is nothing to reduce.
        pl_module.log_dict(shown, on_step=False, on_epoch=True, prog_bar=self._prog_bar, batch_size=1)
        pl_module.log_dict(rest, on_step=False, on_epoch=True, batch_size=1)
