"""A generator swept along its own axis, with the same latents and noise at every setting."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from genpr.checkpoints.generation.sampler import Sampler
from genpr.checkpoints.sweeps.folder import SweepFolder
from genpr.checkpoints.sweeps.sweep import PointProgress, Sweep, sweep
from genpr.evaluation.evaluator import Evaluator


def sweep_sampler(
    sampler: Sampler,
    evaluator: Evaluator,
    settings: Iterable[float],
    *,
    folder: SweepFolder | None = None,
    progress: PointProgress | None = None,
) -> Sweep:
    """Score a sampler at each of some settings of its axis.

    Args:
        sampler: The generator with its latents.
        evaluator: The reals, fitted once.
        settings: Where on the axis.
        folder: Where finished points are kept and looked for.
        progress: Called after each setting.

    Raises:
        UsageError, DataError, ResourceError: As `genpr.checkpoints.sweeps.sweep.sweep`, and what the generator does wrong.
    """
    identity = sampler.identity
    sources = {setting: sampler.images(setting) for setting in settings}
    keys = dict.fromkeys(sources, identity)
    return sweep(evaluator, sources, axis=sampler.axis, keys=keys, folder=folder, progress=progress)


def truncation_sweep(
    generator: object,
    evaluator: Evaluator,
    psis: Iterable[float],
    *,
    n: int,
    seed: int = 0,
    axis: str = "psi",
    rule: str | None = None,
    latent_dim: int | None = None,
    labels: object = None,
    image_range: Sequence[float] | None = None,
    batch_size: int = 64,
    device: str | torch.device = "auto",
    out: str | os.PathLike[str] | None = None,
    progress: PointProgress | None = None,
) -> Sweep:
    """What truncation trades: precision, recall and the other metrics of a generator at each psi.

    Every psi sees the same latents and the same noise, and the reals are embedded once.

    Args:
        generator: A callable `(latents, *, labels=None, **axis)`, an object with `mapping` and `synthesis`, or what
            `genpr.load_generator` gave.
        evaluator: The reals, fitted once.
        psis: Settings of the axis.
        n: Images per setting.
        seed: Of latents and noise.
        axis: Name under which the generator takes its setting, such as "guidance".
        rule: How psi truncates, if not the generator does it; see `genpr.Sampler.of`.
        latent_dim: Coordinates of a latent; None takes the generator's `z_dim` or `latent_dim`.
        labels: (n,) or (n, c), one row per image.
        image_range: Black and white of float images, such as (-1, 1); uint8 images need none.
        batch_size: Images per call of the generator.
        device: "auto" is where the generator's networks are.
        out: Folder where finished points are kept; with the same call again, the sweep goes on from there. What draws the
            images is known by its weights and code where it has any, and a plain function by its name alone: give it
            another folder when you change it.
        progress: Called after each setting: how many are done, of how many, which one, and its result.

    Raises:
        UsageError: Something of this is impossible, or `out` holds points of another sweep.
        DataError: The generator's images cannot be used.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import genpr
        >>> from genpr.demo import ShapesGenerator
        >>> reals = genpr.Sampler.of(ShapesGenerator(), n=60, seed=1).images(1.0)
        >>> evaluator = genpr.Evaluator(reals, extractor="pixels", control=False)
        >>> found = genpr.truncation_sweep(ShapesGenerator(), evaluator, [0.1, 1.0], n=60)
        >>> found.points[0].result["recall"] < found.points[1].result["recall"]
        True
    """
    sampler = Sampler.of(
        generator,
        n=n,
        latent_dim=latent_dim,
        seed=seed,
        axis=axis,
        rule=rule,
        labels=labels,
        image_range=image_range,
        batch_size=batch_size,
        device=device,
    )
    folder = None if out is None else SweepFolder(Path(out))
    return sweep_sampler(sampler, evaluator, psis, folder=folder, progress=progress)
