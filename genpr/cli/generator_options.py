"""Command-line options about a generator, in the same words for every command that draws images from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.checkpoints.options import SamplerOptions
from genpr.evaluation.options import ScoreOptions
from genpr.features.options import option

if TYPE_CHECKING:
    from genpr.checkpoints.sampler import CheckpointImages
    from genpr.evaluation.evaluator import Evaluator

DRAWN_BY_SCORE = ("seed", "axis", "batch_size", "device")
"""Fields of `SamplerOptions` that a command takes from its other options."""


def check_needs_generator(generator: str | None, given: Mapping[str, object]) -> None:
    """Refuse options that change nothing without --generator; None is not given.

    Raises:
        click.UsageError: One was given all the same.
    """
    named = [name for name, value in given.items() if value is not None]
    if generator is None and named:
        raise click.UsageError(f"--{named[0].replace('_', '-')} needs --generator")


@dataclass(frozen=True, kw_only=True)
class GeneratorFlags(SamplerOptions):
    """Which generator draws, and how many images of what kind."""

    generator: str | None = option(
        None,
        "package.module:factory or path/file.py:factory of a generator that draws the fakes.",
        metavar="SPEC",
    )
    n: int | None = option(None, "Images to draw.", unset="as many as reals", least=2, most=2**40)


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(GeneratorFlags):
    """The same for one generator per checkpoint, all at one setting."""

    psi: float | None = option(
        None,
        "Where on its axis the generator draws.",
        unset="no truncation, and no axis is passed",
        flag=("--psi", "--setting"),
        metavar="X",
    )
    axis_name: str | None = option(
        None, "Name of what --setting sets.", unset="psi", flag="--axis", metavar="NAME"
    )

    def check(self, **others: object) -> None:
        """Refuse what can be seen to be wrong before there is any image; `others` need a generator, too.

        Raises:
            click.UsageError: An option needs another one.
            UsageError: A value is impossible, or there is no such generator.
        """
        of_setting = {"rule": self.rule, "axis": self.axis_name}
        own = {
            "n": self.n,
            **of_setting,
            "latent_dim": self.latent_dim,
            "image_range": self.image_range,
            "psi": self.psi,
        }
        check_needs_generator(self.generator, own | others)
        if self.generator is None:
            return
        if self.psi is None and (found := [name for name, value in of_setting.items() if value is not None]):
            raise click.UsageError(f"--{found[0]} needs --psi (or --setting)")
        from genpr.checkpoints.generator import check_factory

        self._images(Path(), n=self.n or 2, options=ScoreOptions())
        check_factory(self.generator)

    def images_of(self, evaluator: Evaluator, options: ScoreOptions) -> Callable[[Path], CheckpointImages]:
        """From a checkpoint to its images: as many as there are reals, if nothing else was asked for."""
        return partial(self._images, n=self.n or evaluator.n_real, options=options)

    def _images(self, path: Path, *, n: int, options: ScoreOptions) -> CheckpointImages:
        from genpr.checkpoints.sampler import CheckpointImages

        assert self.generator is not None
        return CheckpointImages(
            self.generator,
            path,
            n=n,
            setting=self.psi,
            axis=self.axis_name or "psi",
            rule=self.rule,
            latent_dim=self.latent_dim,
            seed=options.seed,
            image_range=self.image_range,
            batch_size=options.batch_size,
            device=options.device,
        )
