"""Images that a model under training draws for a score, without a trace in the training."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from genpr.errors import DataError, UsageError
from genpr.images.arrays import MOST_OUTSIDE, ImageRange, checked_range, levels_of

Model = TypeVar("Model")
Images = Tensor | np.ndarray[Any, np.dtype[np.uint8]]
Generate = Callable[[Model], Iterable[Images]]


@dataclass(frozen=True)
class Drawn(Generic[Model]):
    """The images of one model, batch by batch; each pass over them calls `generate` again, from the same seed.

    Args:
        generate: Called with the model; gives batches (b, 3, h, w).
        model: The model.
        n: Images to take, the rest is not drawn; None takes all.
        seed: Of torch, numpy and `random` while drawing.
        image_range: What float images run from and to.
    """

    generate: Generate[Model]
    model: Model
    n: int | None
    seed: int
    image_range: ImageRange | None

    def __iter__(self) -> Iterator[Images]:
        """Batches of at most `n` images together.

        Raises:
            DataError: They are fewer than `n`, or of a kind that cannot be scored.
        """
        _seed(self.seed)
        left = self.n
        with _without_gradients():  # the first lines of `generate` may run the model, too
            batches = iter(self.generate(self.model))
        while left != 0:
            with _without_gradients():  # not around the loop: a scorer should not find its own mode changed
                batch = next(batches, None)
            if batch is None:
                break
            taken = self._taken(batch, left)
            left = None if left is None else left - len(taken)
            yield taken
        if left:
            raise DataError(
                f"generate gave {(self.n or 0) - left} images, but n = {self.n} are to be scored; let it give more, or "
                "lower n",
                code="too-few-images",
            )

    def _taken(self, batch: object, left: int | None) -> Images:
        if not isinstance(batch, Tensor | np.ndarray) or batch.ndim != 4:
            came = f"{type(batch).__name__}{tuple(getattr(batch, 'shape', ())) or ''}"
            raise DataError(
                f"generate must give batches of images, uint8 (b, 3, h, w), but gave {came}; does it return one batch "
                "instead of a list of batches?",
                code="array-type",
            )
        images: Images = as_uint8(batch, self.image_range) if isinstance(batch, Tensor) else batch
        return images if left is None else images[:left]


@contextmanager
def _without_gradients() -> Iterator[None]:
    """And not in a scorer's inference mode, whose tensors a model that keeps some could not train with afterwards."""
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextmanager
def undisturbed(model: object) -> Iterator[None]:
    """Evaluation mode inside; outside, training flags and random numbers are as if nothing had happened.

    The flag of every submodule is restored by itself, since some may have been frozen.
    """
    flags = [(module, module.training) for module in model.modules()] if isinstance(model, nn.Module) else []
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 - that of the user's code
        try:
            if isinstance(model, nn.Module):
                model.eval()
            yield
        finally:
            for module, training in flags:
                module.training = training


def check_count(name: str, value: object) -> None:
    """Refuse what is no positive integer.

    Raises:
        UsageError: "bad-option".
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} must be an integer of at least 1, not {value!r}", code="bad-option")


def _seed(seed: int) -> None:
    torch.manual_seed(seed)  # of all devices
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - that of the user's code


def declared_range(*, normalize: bool, image_range: ImageRange | None) -> ImageRange | None:
    """The range of float images, from torchmetrics' way to say it or from genpr's.

    Raises:
        UsageError: It is said in both ways, or is none ("image-range").
    """
    if normalize and image_range is not None:
        raise UsageError("normalize=True says image_range=(0, 1); give one of the two", code="image-range")
    return (0.0, 1.0) if normalize else checked_range(image_range)


def as_uint8(images: Tensor, image_range: ImageRange | None) -> Tensor:
    """Images as uint8; uint8 ones as they are.

    Floats are rounded half up (see `genpr.images.arrays`); truncation, which torchmetrics' own metrics use, makes
    every image half a level darker.

    Args:
        images: (n, 3, h, w), uint8 or floats.
        image_range: The floats that are black and white; values beyond it are cut off, with a Python warning if
            they are more than a tenth.

    Raises:
        DataError: Floats without a range, or not finite.
    """
    if not isinstance(images, Tensor) or not images.is_floating_point():
        return images  # the source that takes them says what is wrong with anything else
    if image_range is None:
        raise DataError(
            f"images are {images.dtype}, and only their maker knows which values are black and white; declare it: "
            "normalize=True for values in 0..1, else image_range=(-1, 1) or whatever it is",
            code="image-range",
        )
    if not images.isfinite().all():
        raise DataError("images hold NaN or infinite values; did the generator diverge?", code="non-finite")
    levels, outside = levels_of(images.detach(), image_range)
    if outside > MOST_OUTSIDE:
        low, high = image_range
        # The same words each time, so that Python shows them once and not at every batch.
        warnings.warn(
            f"more than {MOST_OUTSIDE:.0%} of the values of images lie outside of their declared range {low:g} to {high:g} "
            "and were cut off; check it (normalize, image_range). A generator in training may also overshoot that much for a "
            "while",
            stacklevel=2,
        )
    return levels
