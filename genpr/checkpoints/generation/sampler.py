"""The same samples at every setting of a generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from genpr.checkpoints.generation.arguments import checked_labels, latent_dim_of, own_name, plain_setting
from genpr.checkpoints.generation.generator import (
    Route,
    Setting,
    at_work,
    blamed_on,
    check_generator,
    device_of,
    find_route,
    seed_noise,
)
from genpr.checkpoints.generation.latents import Latents, check_count, check_psi
from genpr.checkpoints.generation.load import LoadedGenerator
from genpr.checkpoints.generation.pixels import to_uint8
from genpr.features.code_closure import UncoveredError
from genpr.features.fingerprint import weights_sha256
from genpr.features.user_objects import networks_of
from genpr.images.datasets import CountedBatches
from genpr.images.float_range import MOST_OUTSIDE, ImageRange, checked_range
from genpr.notices import Notice, notice


@dataclass(frozen=True, eq=False)
class Sampler:
    """A generator, the latents it is given, and the axis along which it is varied. Made by `Sampler.of`.

    Attributes:
        generator: What the user gave.
        name: What to call it.
        latents: (n, d), the same at every setting.
        axis: Name of what is varied, such as "psi" or "guidance".
        rule: How psi truncates; None where the generator is given the axis by name.
        labels: (n,) or (n, c) class labels of the samples, if there are any.
        image_range: What black and white are in float images.
        batch_size: Images per call of the generator.
        device: Where the latents are sent.
    """

    generator: object = field(repr=False)
    name: str
    latents: Latents
    axis: str
    rule: str | None
    labels: Tensor | None = field(repr=False)
    image_range: ImageRange | None
    batch_size: int
    device: torch.device
    _route: Route = field(repr=False)
    _loaded: LoadedGenerator | None = field(repr=False)

    @classmethod
    def of(
        cls,
        generator: object,
        *,
        n: int,
        latent_dim: int | None = None,
        seed: int = 0,
        axis: str = "psi",
        rule: str | None = None,
        labels: object = None,
        image_range: Sequence[float] | None = None,
        batch_size: int = 64,
        device: str | torch.device = "auto",
        name: str | None = None,
    ) -> Sampler:
        """Prepare to draw n images at any setting of a generator.

        Args:
            generator: A callable `(latents, *, labels=None, **axis)`, an object with `mapping` and `synthesis`, or
                what `genpr.load_generator` gave (see `genpr.checkpoints.generation.generator`).
            n: Images per setting.
            latent_dim: Coordinates of a latent; None takes the generator's `z_dim` or `latent_dim`.
            seed: Of the latents, and of whatever noise the generator adds.
            axis: What `images` varies: passed to the generator by this name, unless a rule applies it.
            rule: `z-scale`, `z-clip` or `z-resample` truncate the latents themselves, `w-interpolate` what the
                mapping makes of them (see `genpr.checkpoints.generation.latents`); the generator is then not given psi. None is
                `w-interpolate` for an object with `mapping` and `synthesis`, and the axis by name for any other.
            labels: (n,) or (n, c), one row per image.
            image_range: Black and white of float images, such as (-1, 1); uint8 images need none.
            batch_size: Images per call of the generator.
            device: "auto" is where the generator's networks are, and the CPU if none are found.
            name: What to call it in messages.

        Raises:
            UsageError: Something of this is impossible, or the generator does not take it.
            ResourceError: CUDA was asked for and is not there.

        Example:
            >>> from genpr.demo import ShapesGenerator
            >>> sampler = Sampler.of(ShapesGenerator(), n=10, batch_size=8)
            >>> [tuple(batch.shape) for batch in sampler.images(0.7)]
            [(8, 3, 64, 64), (2, 3, 64, 64)]
        """
        loaded = generator if isinstance(generator, LoadedGenerator) else None
        target: Any = generator if loaded is None else loaded.generator
        name = name or (own_name(target) if loaded is None else loaded.spec)
        who = f"generator {name!r}"
        check_generator(target, who)
        check_count("batch_size", batch_size)
        latents = Latents.drawn(n, latent_dim_of(target, latent_dim, who), seed=seed)
        rows = checked_labels(labels, n)
        where = device_of(target, device, who)
        route, rule = find_route(
            target,
            axis=axis,
            rule=rule,
            labels=rows,
            latent_dim=latents.z.shape[1],
            device=where,
            who=who,
        )
        return cls(
            generator=target,
            name=name,
            latents=latents,
            axis=axis,
            rule=rule,
            labels=rows,
            image_range=checked_range(image_range),
            batch_size=batch_size,
            device=where,
            _route=route,
            _loaded=loaded,
        )

    @property
    def n(self) -> int:
        """Images per setting."""
        return len(self.latents)

    def images(self, setting: Setting) -> GeneratedImages:
        """The images at a setting, drawn anew whenever they are iterated over.

        Raises:
            UsageError: The setting is no plain value, or makes no sense for the rule.
        """
        setting = plain_setting(setting, self.axis)
        if self.rule is not None:
            check_psi(self.rule, setting)
        return GeneratedImages(self, setting)

    @property
    def identity(self) -> dict[str, object]:
        """What decides the images, as plain JSON: if it is equal, so are the images at equal settings.

        The networks are hashed as they are now. Of a generator without networks, `weights` is None, and then nothing
        but `name` (and of a loaded one `checkpoint` and `code`) tells one such function from another.

        Example:
            >>> from genpr.demo import ShapesGenerator
            >>> Sampler.of(ShapesGenerator(), n=10, rule="z-clip").identity["rule"]
            'z-clip'
        """
        return {
            "name": self.name,
            "n": self.n,
            "latent_dim": self.latents.z.shape[1],
            "seed": self.latents.seed,
            "axis": self.axis,
            "rule": self.rule,
            "labels": None if self.labels is None else _tensor_sha256(self.labels),
            "image_range": None if self.image_range is None else list(self.image_range),
            "batch_size": self.batch_size,
            "device": self.device.type,  # random streams and rounding differ between kinds of devices
            "weights": _weights(self.generator),
            "checkpoint": None if self._loaded is None else self._loaded.checkpoint_sha256,
            "code": None if self._loaded is None else self._loaded.code_sha256,
        }


@dataclass(eq=False)
class GeneratedImages(CountedBatches):
    """The images of a generator at one setting: an iterable of batches uint8 (b, 3, h, w) on the CPU.

    It can be iterated any number of times and gives the same images every time. `Evaluator.score` takes it.

    Attributes:
        sampler: What draws them.
        setting: Where on its axis.
        clamped: Share of values that were outside of the declared range by more than one level of 255 and were cut
            off, in the last whole pass; None before the first.
    """

    sampler: Sampler
    setting: Setting
    clamped: float | None = field(default=None, init=False)

    def __len__(self) -> int:
        return self.sampler.n

    @property
    def n_images(self) -> int:
        """The number of images, which is also the length."""
        return len(self)

    @property
    def name(self) -> str:
        """The generator and the setting."""
        return f"{self.sampler.name} at {self.sampler.axis}={self.setting}"

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What the last whole pass noticed."""
        if self.clamped is None or self.clamped <= MOST_OUTSIDE:
            return ()
        assert self.sampler.image_range is not None
        low, high = self.sampler.image_range
        return (notice("clamped", share=f"{self.clamped:.0%}", low=f"{low:g}", high=f"{high:g}"),)

    @property
    def drawn_by(self) -> dict[str, object]:
        """The identity of the sampler, and the setting."""
        return {**self.sampler.identity, "setting": self.setting}

    def __iter__(self) -> Iterator[Tensor]:
        sampler, clamped = self.sampler, 0.0
        for batch, start in enumerate(range(0, sampler.n, sampler.batch_size)):
            stop = min(start + sampler.batch_size, sampler.n)
            # Modes and random streams are put back after every batch: whoever iterates has a life in between.
            with at_work(sampler.generator, sampler.device):
                images, share = self._draw(batch, start, stop)
            clamped += share * len(images)
            yield images
        self.clamped = clamped / sampler.n

    def _draw(self, batch: int, start: int, stop: int) -> tuple[Tensor, float]:
        sampler = self.sampler
        latents = sampler.latents.rows(start, stop)
        z = latents.z if sampler.rule is None else latents.at(sampler.rule, float(self.setting))
        labels = None if sampler.labels is None else sampler.labels[start:stop].to(sampler.device)
        who = f"generator {self.name!r}, batch {batch},"
        with blamed_on(who):
            if batch == 0:
                seed_noise(sampler.latents.seed, -1)
                sampler._route.prepare()
            seed_noise(sampler.latents.seed, batch)  # after what only some passes need
            # A copy, since a generator may work in place.
            output = sampler._route(z.to(sampler.device, copy=True), labels, self.setting, start)
        return to_uint8(output, expected=stop - start, image_range=sampler.image_range, who=who)


def _tensor_sha256(tensor: Tensor) -> str:
    header = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    return hashlib.sha256(header + tensor.contiguous().numpy().tobytes()).hexdigest()


def _weights(generator: object) -> str | None:
    """One hash over the weights of all networks of a generator; None if there are none that can be hashed."""
    try:
        hashes = [weights_sha256(network) for network in networks_of(generator)]
    except UncoveredError:
        return None
    known = [one for one in hashes if one is not None]
    return hashlib.sha256(" ".join(known).encode()).hexdigest() if known else None
