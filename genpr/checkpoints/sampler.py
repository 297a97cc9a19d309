"""Images of a generator at several settings, or of several checkpoints, from the same latents."""

from __future__ import annotations

import gc
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from genpr.checkpoints.generator import (
    RULES,
    LoadedGenerator,
    Route,
    Setting,
    check_generator,
    check_psi,
    device_of,
    draw_latents,
    find_route,
    generator_errors,
    inference_context,
    load_generator,
    network_hashes,
    seed_noise,
    to_uint8,
)
from genpr.checkpoints.options import SamplerKeywords, SamplerOptions
from genpr.errors import DataError, UsageError
from genpr.features.options import takes_options
from genpr.images.arrays import MAX_OUTSIDE, checked_range
from genpr.images.datasets import CountedBatches
from genpr.notices import Notice, notice
from genpr.storage import tensors_sha256
from genpr.validation import check_count, check_unmasked, entry_point, is_plain

CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".safetensors", ".bin")
_NO_TRUNCATION = ("z-scale", 1.0)  # does not change the latents, and passes no axis


@dataclass(frozen=True, eq=False)
class Sampler:
    """A generator with its latents and the axis along which it is varied; `Sampler.of` creates it.

    Attributes:
        generator: The generator of the user.
        name: Its name in messages.
        latents: float32 (n, d), standard normal, on the CPU; equal at all settings.
        labels: (n,) or (n, c) class labels of the samples, if there are any.
        rule: Truncation rule of psi; None if the axis is passed to the generator by name.
        device: Device of the latents.
        options: Seed, axis, range of float images, batch size.
    """

    generator: object = field(repr=False)
    name: str
    latents: Tensor = field(repr=False)
    labels: Tensor | None = field(repr=False)
    rule: str | None
    device: torch.device
    options: SamplerOptions = field(repr=False)
    _route: Route = field(repr=False)
    _loaded: LoadedGenerator | None = field(repr=False)

    @classmethod
    @takes_options(SamplerOptions)
    @entry_point
    def of(
        cls, generator: object, *, n: int, name: str | None = None, **options: Unpack[SamplerKeywords]
    ) -> Sampler:
        """Prepare to draw n images at any setting of a generator.

        Args:
            generator: A callable `(latents, *, labels=None, **axis)`, an object with `mapping` and `synthesis`, or
                a `LoadedGenerator` (see `genpr.checkpoints.generator`).
            n: Images per setting.
            name: Its name in messages.
            **options: The fields of `SamplerOptions`.

        Raises:
            UsageError: An option is impossible, or does not fit the generator.
            ResourceError: CUDA was requested but is not available.

        Example:
            >>> from genpr.demo import ShapesGenerator
            >>> sampler = Sampler.of(ShapesGenerator(), n=10, batch_size=8)
            >>> [tuple(batch.shape) for batch in sampler.images(0.7)]
            [(8, 3, 64, 64), (2, 3, 64, 64)]
        """
        loaded = generator if isinstance(generator, LoadedGenerator) else None
        target: Any = generator if loaded is None else loaded.generator
        name = name or (_name_of(target) if loaded is None else loaded.spec)
        who, chosen = f"generator {name!r}", SamplerOptions(**options)
        check_generator(target, who)
        check_count(chosen.batch_size, "batch_size", minimum=1)
        latents = draw_latents(n, _latent_dim_of(target, chosen.latent_dim, who), seed=chosen.seed)
        labels, device = _label_tensor(chosen.labels, n), device_of(target, chosen.device, who)
        chosen = replace(chosen, image_range=checked_range(chosen.image_range))
        route, rule = find_route(target, chosen, labels, latents.shape[1], device, who)
        return cls(target, name, latents, labels, rule, device, chosen, route, loaded)

    @property
    def n(self) -> int:
        """Images per setting."""
        return len(self.latents)

    def images(self, setting: Setting) -> GeneratedImages:
        """The images at a setting, drawn again in every iteration.

        Raises:
            UsageError: The setting is not a plain value, or is out of the range of the rule.
        """
        if isinstance(setting, np.generic):
            setting = setting.item()
        if not isinstance(setting, bool | int | str) and not (
            isinstance(setting, float) and math.isfinite(setting)
        ):
            text = f"{self.options.axis} must be a finite number or a string, not {setting!r}"
            raise UsageError(text, code="bad-setting")
        if self.rule is not None:
            check_psi(self.rule, setting)
        return GeneratedImages(self, setting)

    @property
    def identity(self) -> dict[str, object]:
        """Everything that determines the images, as plain JSON: if it is equal, images at equal settings are equal.

        The networks are hashed in their current state. For a generator without networks, `weights` is None, and only `name`
        (and `checkpoint` and `code` of a loaded generator) identify it.

        Example:
            >>> from genpr.demo import ShapesGenerator
            >>> Sampler.of(ShapesGenerator(), n=10, rule="z-clip").identity["rule"]
            'z-clip'
        """
        chosen, loaded = self.options, self._loaded
        known = [each for each in network_hashes(self.generator) if each is not None]
        return {
            "name": self.name,
            "n": self.n,
            "latent_dim": self.latents.shape[1],
            "seed": chosen.seed,
            "axis": chosen.axis,
            "rule": self.rule,
            "labels": None if self.labels is None else tensors_sha256({"labels": self.labels}),
            "image_range": None if chosen.image_range is None else list(chosen.image_range),
            "batch_size": chosen.batch_size,
            "device": self.device.type,  # random streams and rounding differ between types of devices
            "weights": hashlib.sha256(" ".join(known).encode()).hexdigest() if known else None,
            "checkpoint": None if loaded is None else loaded.checkpoint_sha256,
            "code": None if loaded is None else loaded.code_sha256,
        }


@dataclass(eq=False)
class GeneratedImages(CountedBatches):
    """The images of a generator at one setting, as batches uint8 (b, 3, h, w) on the CPU, equal in every pass.

    `clamped` is the fraction of values outside the declared range in the last complete pass; None before the first.
    """

    sampler: Sampler
    setting: Setting
    clamped: float | None = field(default=None, init=False)

    def __len__(self) -> int:
        return self.sampler.n

    @property
    def name(self) -> str:
        """The generator and the setting."""
        return f"{self.sampler.name} at {self.sampler.options.axis}={self.setting}"

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Notices of the last complete pass."""
        if self.clamped is None or self.clamped <= MAX_OUTSIDE:
            return ()
        low, high = self.sampler.options.image_range or (0, 255)
        return (notice("clamped", share=f"{self.clamped:.0%}", low=f"{low:g}", high=f"{high:g}"),)

    @property
    def drawn_by(self) -> dict[str, object]:
        """The identity of the sampler, and the setting."""
        return {**self.sampler.identity, "setting": self.setting}

    def __iter__(self) -> Iterator[Tensor]:
        sampler, chosen, step = self.sampler, self.sampler.options, self.sampler.options.batch_size
        checkpoint = None if sampler._loaded is None else sampler._loaded.checkpoint
        draw, clamped = None, 0.0
        for batch, start in enumerate(range(0, sampler.n, step)):
            who = f"generator {self.name!r}, batch {batch},"
            part = slice(start, start + step)
            z = sampler.latents[part]
            if sampler.rule is not None:
                z = RULES[sampler.rule](z, float(self.setting))
            labels = None if sampler.labels is None else sampler.labels[part].to(sampler.device)
            # Modes and random states are restored after every batch, for the code that iterates.
            with inference_context(sampler.generator, sampler.device):
                with generator_errors(who, checkpoint):
                    if draw is None:
                        seed_noise(chosen.seed, -1)
                        draw = sampler._route(self.setting)
                    seed_noise(chosen.seed, batch)
                    # A copy, since a generator may work in place.
                    output = draw(z.to(sampler.device, copy=True), labels, start)
                images, share = to_uint8(output, expected=len(z), image_range=chosen.image_range, who=who)
            clamped += share * len(images)
            yield images
        self.clamped = clamped / sampler.n


@takes_options(SamplerOptions)
class CheckpointImages(CountedBatches):
    """Images of the generator of a checkpoint: batches uint8 (b, 3, h, w), equal in every pass.

    The generator is loaded when iteration begins and released when it ends, so that only one of many checkpoints is in memory.
    Checkpoints with the same options use the same latents and the same noise. Networks are moved to the device.
    `Evaluator.score` accepts it.

    Args:
        spec: "path/to/file.py:factory" or "package.module:factory"; the factory is called with the checkpoint.
        checkpoint: A file or folder.
        n: Number of images.
        setting: Setting on the axis; None draws without truncation, and passes no axis.
        **options: The fields of `SamplerOptions`.

    Raises:
        UsageError: A number is out of range, or a rule or axis is given without a setting. Iteration also raises the errors of
            `load_generator` and `Sampler.of`, and DataError if the generator fails or changes between passes.

    Example:
        >>> images = CheckpointImages("gan.py:load", "step-1000.pt", n=5000, image_range=(-1, 1))
        >>> len(images), images.name
        (5000, 'step-1000.pt')
    """

    notices: tuple[Notice, ...] = ()
    """Notices of the last pass."""
    drawn_by: Mapping[str, object] | None = None
    """`Sampler.identity` and the setting, once iteration began; None before."""

    def __init__(
        self,
        spec: str,
        checkpoint: str | os.PathLike[str],
        *,
        n: int,
        setting: Setting | None = None,
        **options: Unpack[SamplerKeywords],
    ) -> None:
        chosen = SamplerOptions(**options)
        check_count(n, "n", minimum=1)
        check_count(chosen.batch_size, "batch_size", minimum=1)
        checked_range(chosen.image_range)
        if setting is None and (chosen.rule is not None or chosen.axis != SamplerOptions.axis):
            what = f"rule {chosen.rule!r}" if chosen.rule is not None else f"axis {chosen.axis!r}"
            text = f"the {what} needs a setting, such as psi = 0.7, but found none"
            raise UsageError(text, code="bad-setting")
        if setting is not None and chosen.rule is not None:
            check_psi(chosen.rule, setting)
        self.spec, self.checkpoint, self.n, self.setting = spec, checkpoint, n, setting
        self._options = chosen

    def __len__(self) -> int:
        return self.n

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return Path(self.checkpoint).name

    def identify(self) -> dict[str, object]:
        """`drawn_by` of the next pass; loads the generator, but draws nothing."""
        drawn_by = self._load().drawn_by
        gc.collect()  # as after a pass
        return drawn_by

    def _load(self) -> GeneratedImages:
        options, setting = self._options, self.setting
        if setting is None:
            rule, setting = _NO_TRUNCATION
            options = replace(options, rule=rule)
        loaded = load_generator(self.spec, self.checkpoint, device=options.device)
        return Sampler.of(loaded, n=self.n, **vars(options)).images(setting)

    def __iter__(self) -> Iterator[Tensor]:
        images = self._load()
        drawn_by = images.drawn_by
        before = self.drawn_by or drawn_by  # of the last pass, if there was one
        if differing := [key for key in drawn_by if drawn_by[key] != before[key]]:
            raise DataError(
                f"{self.name} has different {' and '.join(differing)} than in the last pass over its images; do not write "
                "to it during a run, and make sure that its factory sets all weights",
                code="checkpoint-changed",
                path=os.fspath(self.checkpoint),
            )
        self.drawn_by = drawn_by
        try:
            yield from images
        finally:
            self.notices = images.notices
            del images
            gc.collect()  # networks with reference cycles stay until the garbage collector runs


def checkpoints_at(
    images_of: Callable[[Path], CheckpointImages], *, pattern: str | None = None
) -> Callable[[Path], CheckpointImages | None]:
    """A `source_of` for `Watcher`: the images of files whose names match `pattern`, or have a common suffix."""

    def source_of(path: Path) -> CheckpointImages | None:
        is_common = path.suffix.lower() in CHECKPOINT_SUFFIXES
        is_named = is_common if pattern is None else fnmatchcase(path.name, pattern)
        return images_of(path) if is_named and path.is_file() else None

    return source_of


def _name_of(generator: object) -> str:
    names = (getattr(generator, attribute, None) for attribute in ("name", "__name__"))
    return next((name for name in names if isinstance(name, str) and name), type(generator).__name__)


def _latent_dim_of(generator: object, given: int | None, who: str) -> int:
    """Dimension of a latent, as given or from `z_dim` or `latent_dim` of the generator."""
    for value in (given, getattr(generator, "z_dim", None), getattr(generator, "latent_dim", None)):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    text = f"latent_dim is needed: {who} has no attribute `z_dim` or `latent_dim`"
    raise UsageError(text, code="latent-dim")


def _label_tensor(labels: object, n: int) -> Tensor | None:
    """A copy of labels as a tensor (n,) or (n, c)."""
    if labels is None:
        return None
    check_unmasked(labels, "labels")
    try:
        rows = torch.as_tensor(labels if isinstance(labels, Tensor) else np.asarray(labels))
    except (TypeError, ValueError, RuntimeError):
        rows = torch.empty(())
    if not is_plain(rows) or rows.ndim not in {1, 2} or len(rows) != n:
        text = f"labels must be numbers (n,) or (n, c) with one row for each of {n} images, not {type(labels).__name__}"
        raise UsageError(text, code="generator-labels")
    return rows.detach().cpu().clone()
