"""Scores during training with Lightning, so that `ModelCheckpoint` keeps the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Unpack

from genpr.distributed import barrier
from genpr.errors import ResourceError, UsageError
from genpr.features.options import shared_options, takes_options
from genpr.integrations.callback import CallbackKeywords, CallbackOptions, GenprCallback, History, Images
from genpr.validation import check_seconds

try:
    import lightning.pytorch as pl
except ModuleNotFoundError:
    try:
        import pytorch_lightning as pl  # type: ignore[no-redef]
    except ModuleNotFoundError as error:
        raise ResourceError(
            "genpr.integrations.lightning needs Lightning: pip install lightning", code="package-missing"
        ) from error

_PREFIX = "genpr/"


@takes_options(CallbackOptions)
class GenprLightningCallback(pl.Callback):
    """Scores the module at regular epochs and logs the scores.

    It runs after the validation loop, or at the end of the training epoch if there is none; in both cases before
    `ModelCheckpoint(monitor="genpr/f1", mode="max")`, whose `every_n_epochs` must equal `every`. In a distributed run, rank 0 draws
    and scores, and the other ranks wait and log the same values. Therefore rank 0 must have the whole module, which excludes FSDP
    and DeepSpeed stage 3.

    Logged values are float32, as Lightning stores them; `history` has the exact values. The history is part of Lightning's
    checkpoints.

    Args:
        real: An `Evaluator`, or a source of reals for it. It is fitted at the first score, on rank 0 only.
        generate: Called with the module; see `GenprCallback`.
        prog_bar: Show the monitored score in the progress bar.
        timeout: Seconds that the other ranks wait for rank 0.
        prefix: Replaces `genpr/` in the logged names, such as `ema/`, but not in `monitor` and `history`. Several callbacks of one
            Trainer need different ones.
        **options: The fields of `CallbackOptions`.

    Attributes:
        history: All scores, with epochs (from 0) as steps, and the best; equal on every rank.

    Raises:
        UsageError: An option is impossible; at the start of a fit, also if `every` is no multiple of `check_val_every_n_epoch`.
    """

    def __init__(
        self,
        real: object,
        generate: Callable[[Any], Iterable[Images]],
        *,
        prog_bar: bool = True,
        timeout: float = 3600.0,
        prefix: str = _PREFIX,
        **options: Unpack[CallbackKeywords],
    ) -> None:
        super().__init__()
        chosen = CallbackOptions(**options)
        check_seconds("timeout", timeout)
        self.history = History(chosen.monitor, chosen.mode)
        self._every = chosen.every
        self._shared, self._is_checked = shared_options(chosen) | {"prefix": prefix}, False
        self._prog_bar = prog_bar
        self._timeout = timeout
        self._prefix = prefix
        self._scorer: GenprCallback[Any] | None = None
        self._make = partial(GenprCallback[Any], real, generate, **options)

    @property
    def state_key(self) -> str:
        """Identifies this callback in Lightning's checkpoints."""
        return super().state_key + self._prefix.removeprefix(_PREFIX)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse an `every` of which some epochs have no validation loop, after which they would be scored."""
        between = trainer.check_val_every_n_epoch if trainer.enable_validation else None
        if self._every % (between or 1):
            text = f"every must be a multiple of check_val_every_n_epoch = {between}, not {self._every}"
            raise UsageError(text, code="bad-option")

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Score if training has a validation loop."""
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._score(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Score if training has no validation loop."""
        if not trainer.enable_validation:
            self._score(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The history, for Lightning's checkpoints."""
        return self.history.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the history of a checkpoint."""
        self.history.load_state_dict(state_dict)

    def _score(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch, name = trainer.current_epoch, f"options of {type(self).__name__}"
        if not self._is_checked:  # with another `every`, a rank would wait for rank 0
            barrier(name, timeout=self._timeout, hint="add the callback on all ranks", own=self._shared)
            self._is_checked = True
        if (epoch + 1) % self._every:
            return
        scores: dict[str, float] = {}
        if trainer.is_global_zero:
            self._scorer = self._scorer or self._make()
            scores = self._scorer.score(epoch, pl_module)
        # In the store, since a collective operation would end at the time limit of the process group.
        barrier(
            "genpr's score", timeout=self._timeout, hint="look for the error of rank 0, or increase timeout"
        )
        scores = trainer.strategy.broadcast(scores)
        self.history.add(epoch, scores)
        # Every rank logs, since every rank has a ModelCheckpoint. Values are equal, so there is nothing to reduce.
        for name, value in scores.items():
            is_shown = self._prog_bar and name == self.history.monitor
            logged = self._prefix + name.removeprefix(_PREFIX)
            pl_module.log(logged, value, on_step=False, on_epoch=True, prog_bar=is_shown, batch_size=1)
