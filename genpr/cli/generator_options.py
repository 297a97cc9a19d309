"""Command-line options about a generator, in the same words for every command that draws images from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from genpr.cli.options import Command, with_options

if TYPE_CHECKING:
    from genpr.checkpoints.sampler import CheckpointImages
    from genpr.evaluation.evaluator import Evaluator

_MOST_STEPS = 10_000


def number_list(text: str) -> list[float]:
    """`0.5,0.7,1`, or `0.2:1:0.1` with both ends."""
    try:
        numbers = _range(*map(float, text.split(":"))) if ":" in text else list(map(float, text.split(",")))
    except (TypeError, ValueError, ZeroDivisionError):
        numbers = []
    if not numbers:
        raise click.BadParameter(
            f"{text!r}: needed numbers, such as 0.5,0.7,1, or first:last:step, such as 0.2:1:0.1"
        )
    return numbers


def _range(first: float, last: float, step: float) -> list[float]:
    """Nothing where no whole number of steps leads to the last."""
    steps = (last - first) / step
    if not 0 <= steps <= _MOST_STEPS or abs(steps - round(steps)) > 1e-6:
        return []
    return [round(first + place * step, 12) for place in range(round(steps) + 1)]


def generator_options(command: Command) -> Command:
    """Which generator draws, and how many images of what kind."""
    return with_options(command, _GENERATOR_OPTIONS)


def checkpoint_options(command: Command) -> Command:
    """The same for one generator per checkpoint, all at one setting."""
    return with_options(command, (*_GENERATOR_OPTIONS, *_SETTING_OPTIONS))


def check_needs_generator(generator: str | None, given: Mapping[str, object]) -> None:
    """Refuse options that change nothing without --generator; None is not given.

    Raises:
        click.UsageError: One was given all the same.
    """
    named = [name for name, value in given.items() if value is not None]
    if generator is None and named:
        raise click.UsageError(f"--{named[0].replace('_', '-')} needs --generator")


@dataclass(frozen=True)
class CheckpointOptions:
    """What `checkpoint_options` gave."""

    generator: str | None
    n: int | None
    rule: str | None
    latent_dim: int | None
    image_range: list[float] | None
    psi: float | None
    axis: str | None

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Self:
        """Take them out of all options of a command."""
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    def check(self, **others: object) -> None:
        """Refuse what can be seen to be wrong before there is any image; `others` need a generator, too.

        Raises:
            click.UsageError: An option needs another one.
            UsageError: A value is impossible, or there is no such generator.
        """
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "generator"}
        check_needs_generator(self.generator, own | others)
        if self.generator is None:
            return
        if self.psi is None and (found := [name for name in ("rule", "axis") if own[name] is not None]):
            raise click.UsageError(f"--{found[0]} needs --psi (or --setting)")
        from genpr.checkpoints.generator import check_factory

        self._images(Path(), n=self.n or 2, seed=0, batch_size=1, device="auto")
        check_factory(self.generator)

    def images_of(
        self, evaluator: Evaluator, *, seed: int, batch_size: int, device: str
    ) -> Callable[[Path], CheckpointImages]:
        """From a checkpoint to its images: as many as there are reals, if nothing else was asked for."""
        n = self.n or evaluator.n_real
        return partial(self._images, n=n, seed=seed, batch_size=batch_size, device=device)

    def _images(self, path: Path, *, n: int, seed: int, batch_size: int, device: str) -> CheckpointImages:
        from genpr.checkpoints.sampler import CheckpointImages

        assert self.generator is not None
        return CheckpointImages(
            self.generator,
            path,
            n=n,
            setting=self.psi,
            axis=self.axis or "psi",
            rule=self.rule,
            latent_dim=self.latent_dim,
            seed=seed,
            image_range=self.image_range,
            batch_size=batch_size,
            device=device,
        )


_GENERATOR_OPTIONS = (
    click.option(
        "--generator",
        metavar="SPEC",
        help="package.module:factory or path/file.py:factory of a generator that draws the fakes.",
    ),
    click.option("--n", type=click.IntRange(2, 2**40), help="Images to draw.  [default: as many as reals]"),
    click.option(
        "--rule",
        type=click.Choice(["w-interpolate", "z-resample", "z-scale", "z-clip"]),
        help="How psi truncates, if not the generator does it.",
    ),
    click.option(
        "--latent-dim",
        type=click.IntRange(1, 2**31),
        help="Coordinates of a latent.  [default: the generator's]",
    ),
    click.option(
        "--image-range",
        type=number_list,
        metavar="LOW,HIGH",
        help="Black and white of float images, such as -1,1.",
    ),
)
_SETTING_OPTIONS = (
    click.option(
        "--psi",
        "--setting",
        "psi",
        type=float,
        metavar="X",
        help="Where on its axis the generator draws.  [default: no truncation, and no axis is passed]",
    ),
    click.option("--axis", metavar="NAME", help="Name of what --setting sets.  [default: psi]"),
)
