"""Scores during training with Lightning, so that `ModelCheckpoint` keeps the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Unpack

from genpr.distributed import TrainingRanks, check_seconds
from genpr.errors import ResourceError
from genpr.features.options import takes_options
from genpr.integrations.callback import (
    CallbackKeywords,
    CallbackOptions,
    GenprCallback,
    History,
    Images,
    Record,
)

try:
    import lightning.pytorch as pl
except ModuleNotFoundError:
    try:
        import pytorch_lightning as pl  # type: ignore[no-redef]
    except ModuleNotFoundError as error:
        raise ResourceError(
            "genpr.integrations.lightning needs Lightning: pip install lightning", code="package-missing"
        ) from error


@takes_options(CallbackOptions)
class GenprLightningCallback(pl.Callback):
    """Scores the module every so many epochs and logs the scores.

    With a validation loop it runs after it, else at the end of the training epoch; in both cases before
    `ModelCheckpoint(monitor="genpr/f1", mode="max")` looks, which needs `every_n_epochs` of the same as `every`. In a distributed run the first rank draws and scores, the
    others wait and log the same; so the module must be whole on one rank, which it is not under FSDP or DeepSpeed stage 3.

    Logged values are float32, as Lightning keeps them; those in `history` are as computed. The history is part of
    Lightning's checkpoints.

    Args:
        real: An `Evaluator`, or what it takes as reals. It is fitted at the first score, on the first rank only.
        generate: Called with the module; see `GenprCallback`.
        prog_bar: Show the monitored score beside the progress.
        timeout: Seconds that the other ranks wait for the first.
        **options: The fields of `CallbackOptions`.

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
        prog_bar: bool = True,
        timeout: float = 3600.0,
        **options: Unpack[CallbackKeywords],
    ) -> None:
        super().__init__()
        chosen = CallbackOptions(**options)
        check_seconds("timeout", timeout)
        self.history = History(chosen.monitor, chosen.mode)
        self._every = chosen.every
        self._prog_bar = prog_bar
        self._timeout = timeout
        self._scorer: GenprCallback[Any] | None = None
        self._make = partial(GenprCallback[Any], real, generate, **options)

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
        """Take up the history of a checkpoint."""
        self.history.load(state_dict)

    def _score(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch
        if (epoch + 1) % self._every:
            return

        def compute() -> dict[str, float]:
            if self._scorer is None:
                self._scorer = self._make()
            return self._scorer.score(epoch, pl_module)

        scores = TrainingRanks.from_group().broadcast_from_rank0(
            "genpr's score", compute, timeout=self._timeout
        )
        self.history.add(epoch, scores)
        # Every rank logs, since every rank has a ModelCheckpoint; they are equal, so there is nothing to reduce.
        for name, value in scores.items():
            is_shown = self._prog_bar and name == self.history.monitor
            pl_module.log(name, value, on_step=False, on_epoch=True, prog_bar=is_shown, batch_size=1)
