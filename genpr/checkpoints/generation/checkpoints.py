"""The images of a checkpoint file, whose generator is there only while they are drawn."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor

from genpr.checkpoints.generation.generator import Setting
from genpr.checkpoints.generation.latents import check_count, check_psi
from genpr.checkpoints.generation.load import load_generator
from genpr.checkpoints.generation.sampler import GeneratedImages, Sampler
from genpr.errors import DataError, UsageError
from genpr.images.datasets import CountedBatches
from genpr.images.float_range import checked_range
from genpr.notices import Notice

CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".safetensors", ".bin")
_AS_IT_IS = ("z-scale", 1.0)  # the latents as they are, and no axis is passed


@dataclass(eq=False)
class CheckpointImages(CountedBatches):
    """What the generator of a checkpoint draws: batches uint8 (b, 3, h, w), the same whenever they are iterated over.

    The generator is loaded when iteration begins and let go when it ends, so that of many checkpoints one is in memory.
    Checkpoints drawn with the same options get the same latents and the same noise. `Evaluator.score` takes it.

    Args:
        spec: "path/to/file.py:factory" or "package.module:factory"; the factory is called with the checkpoint.
        checkpoint: A file or folder.
        n: Images.
        setting: Where on the axis; None draws from the latents as they are, and passes no axis.
        axis: Name of the axis.
        rule: How psi truncates, if not the generator does it; see `genpr.Sampler.of`.
        latent_dim: Coordinates of a latent; None takes the generator's `z_dim` or `latent_dim`.
        seed: Of latents and noise.
        labels: (n,) or (n, c), one row per image.
        image_range: Black and white of float images, such as (-1, 1); uint8 images need none.
        batch_size: Images per call of the generator.
        device: "auto", "cpu", "cuda" or "cuda:N"; networks are moved there.

    Raises:
        UsageError: A number is out of range, or a rule or axis comes without a setting. Iteration raises what
            `load_generator` and `Sampler.of` do, and DataError where the generator fails, or is another one at each reading.

    Example:
        >>> images = CheckpointImages("gan.py:load", "step-1000.pt", n=5000, image_range=(-1, 1))
        >>> len(images), images.name
        (5000, 'step-1000.pt')
    """

    spec: str
    checkpoint: str | os.PathLike[str]
    _: KW_ONLY
    n: int
    setting: Setting | None = None
    axis: str = "psi"
    rule: str | None = None
    latent_dim: int | None = None
    seed: int = 0
    labels: object = field(default=None, repr=False)
    image_range: Sequence[float] | None = None
    batch_size: int = 64
    device: str | torch.device = "auto"
    _drawn_by: dict[str, object] | None = field(default=None, init=False, repr=False)
    _notices: tuple[Notice, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_count("batch_size", self.batch_size)
        checked_range(self.image_range)
        if self.setting is None and (self.rule is not None or self.axis != "psi"):
            what = f"rule {self.rule!r}" if self.rule is not None else f"axis {self.axis!r}"
            raise UsageError(
                f"the {what} needs a setting, such as psi = 0.7, and found none", code="bad-setting"
            )
        if self.setting is not None and self.rule is not None:
            check_psi(self.rule, self.setting)

    def __len__(self) -> int:
        return self.n

    @property
    def n_images(self) -> int:
        """The number of images, which is also the length."""
        return self.n

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return Path(self.checkpoint).name

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What the last pass noticed."""
        return self._notices

    @property
    def drawn_by(self) -> Mapping[str, object] | None:
        """`Sampler.identity` and the setting, once iteration began; None before."""
        return self._drawn_by

    def __iter__(self) -> Iterator[Tensor]:
        images = self._load()
        self._check_same(images.drawn_by)
        try:
            yield from images
        except UsageError as error:
            if error.code != "generator-failed":
                raise
            raise DataError(
                f"{self.name}: {error}", code=error.code, path=os.fspath(self.checkpoint)
            ) from error
        finally:
            self._notices = images.notices
            is_there = _watched(images.sampler.generator)
            del images
            if is_there():
                gc.collect()  # networks that refer to themselves stay until somebody looks

    def _load(self) -> GeneratedImages:
        rule, setting = (self.rule, self.setting) if self.setting is not None else _AS_IT_IS
        sampler = Sampler.of(
            load_generator(self.spec, self.checkpoint, device=self.device),
            n=self.n,
            latent_dim=self.latent_dim,
            seed=self.seed,
            axis=self.axis,
            rule=rule,
            labels=self.labels,
            image_range=self.image_range,
            batch_size=self.batch_size,
            device=self.device,
        )
        return sampler.images(setting)

    def _check_same(self, drawn_by: dict[str, object]) -> None:
        """Several networks that embed read the images anew, and must see the same ones."""
        before = self._drawn_by or drawn_by
        if differing := [key for key in drawn_by if drawn_by[key] != before[key]]:
            raise DataError(
                f"{self.name} has other {' and '.join(differing)} than when its images were read before; was it written to "
                "meanwhile, or does its factory leave weights to chance?",
                code="checkpoint-changed",
                path=os.fspath(self.checkpoint),
            )
        self._drawn_by = drawn_by


def _watched(thing: object) -> Callable[[], bool]:
    """Whether it is still in memory, as far as can be known."""
    try:
        reference = weakref.ref(thing)
    except TypeError:
        return lambda: True
    return lambda: reference() is not None


def checkpoints_at(
    images_of: Callable[[Path], CheckpointImages], *, pattern: str | None = None
) -> Callable[[Path], CheckpointImages | None]:
    """From a path to its images, and to None if it is no checkpoint file: what `Watcher` takes as `source_of`.

    Args:
        images_of: From a checkpoint to its images.
        pattern: Which names are checkpoints, such as "*ema.pt"; None goes by the suffix.
    """

    def source_of(path: Path) -> CheckpointImages | None:
        is_named = (
            path.suffix.lower() in CHECKPOINT_SUFFIXES if pattern is None else fnmatchcase(path.name, pattern)
        )
        return images_of(path) if is_named and path.is_file() else None

    return source_of
